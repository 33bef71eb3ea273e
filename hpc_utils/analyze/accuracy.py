"""What each configuration has learnt at the end: accuracy over every evaluation sample, with its interval over repeats."""

from __future__ import annotations

import numpy as np
import pandas as pd

from . import stats
from .points import POINT, SAME, gather


def final(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a configuration whose runs were evaluated: columns of `SAME` and `POINT`, layout; epochs; accuracy (a share,
    the median of the runs' last evaluations), low, high (95 %; at most 1), repeats, runs.

    Profiled runs learn as others do.
    """
    runs = runs[pd.to_numeric(runs.test_accuracy).notna()]
    found = gather(runs)
    reached, epochs = (pd.to_numeric(runs[name]).to_numpy(float) for name in ("test_accuracy", "epochs"))
    found["epochs"] = [float(np.median(epochs[at])) for at in found["at"]]
    each = [reached[at] for at in found["at"]]
    # A share of nothing has no logarithm: such a configuration has a median, and no interval.
    known = [at for at, own in enumerate(each) if (own > 0).all()]
    ends = np.full((len(each), 4), np.nan)
    ends[known] = stats.medians([each[at] for at in known])
    found["accuracy"] = [float(np.median(own)) for own in each]
    found["low"], found["high"] = ends[:, 1], np.minimum(ends[:, 2], 1.0)
    return found[[*SAME, *POINT, "layout", "epochs", "accuracy", "low", "high", "repeats", "runs"]]
