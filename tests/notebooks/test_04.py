"""Chapter 04, executed: real profiles to their verdicts where they are at hand; what is not there, it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpc_utils import paths

from .test_03 import executed  # noqa: F401

CHAPTER = "04_profiling"
LAPTOP = paths.root() / "results/reference/epyc-2core"
PROFILES = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared") / "profiles"


def test_without_profiles_it_says_what_is_missing(executed, tmp_path):  # noqa: F811
    text, figures = executed(LAPTOP, CHAPTER, study="laptop", examples=str(tmp_path / "none"))
    assert "0 of 5 examples" in text and "No run here was profiled" in text
    assert "No kernel was counted" in text and not figures


@pytest.mark.skipif(not PROFILES.exists(), reason="no folder of real profiles (HPC_DATA_MIRROR)")
def test_real_profiles_come_to_their_verdicts(executed):  # noqa: F811
    text, figures = executed(LAPTOP, CHAPTER, study="laptop")
    assert "0 workers: input-bound (high confidence" in text and "4 workers: input-bound" not in text
    assert "straggler-bound" in text and "rank 1, GPU 1" in text
    assert {"laptop-eight-timeline", "laptop-eight-parts", "laptop-eight-overlap", "laptop-workers"} <= figures
