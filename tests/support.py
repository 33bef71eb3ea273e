"""For parameters of tests, in any room."""

from __future__ import annotations

import pytest


def soak(*values: object) -> object:
    """A set of parameters that is tried in `make soak` only: another way to the same end."""
    return pytest.param(*values, marks=pytest.mark.soak)
