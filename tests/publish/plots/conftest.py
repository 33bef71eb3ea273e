"""Every test of a chart draws in the figures' look."""

from __future__ import annotations

import pytest

from hpc_utils.publish.plots import style


@pytest.fixture(autouse=True)
def _styled(_own_style: None) -> None:
    style.apply()
