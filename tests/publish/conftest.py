"""The figures' look, for tests that draw."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from hpc_utils.publish import style


@pytest.fixture
def styled() -> Iterator[None]:
    """`style.apply` for this test alone; its figures are closed."""
    with matplotlib.rc_context(), pd.option_context("display.float_format", None, "display.max_colwidth", 50):
        style.apply()
        yield
        plt.close("all")
