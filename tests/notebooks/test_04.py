"""Chapter 04, executed: real profiles to their verdicts where they are at hand; what is not there, it says."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from hpc_utils import paths
from hpc_utils.publish import exports, staleness

CHAPTER = "04_profiling"
LAPTOP = paths.root() / "results/reference/epyc-2core"
OWN = paths.root() / "results/reference/epyc-avx512-profiles"
PROFILES = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared") / "profiles"


def test_without_profiles_it_states_what_is_missing(executed, tmp_path):
    text, figures = executed(LAPTOP, CHAPTER, study="laptop", examples=str(tmp_path / "none"))
    assert "0 of 5 examples" in text and "0 configurations" in text
    assert "0 kernels were counted" in text and "Not measured" in text and not figures
    tables = exports.read(tmp_path / "results").tables
    assert "laptop-profiling-thresholds" in tables and "laptop-profiling-profiles" not in tables


def test_real_profiles_and_our_own_runs_come_to_their_verdicts(executed, tmp_path):
    """The chapter as committed; without the real profiles, the part on our own runs."""
    _, figures = executed(OWN, CHAPTER, examples=str(PROFILES))
    found, kept = exports.read(tmp_path / "results"), exports.read(OWN)
    assert {"profiling-items", "profiling-small-steps", "profiling-steps", "profiling-promises"} <= figures
    for table, keys in (("profiling-profiles", ["name"]), ("profiling-promises", ["name", "other"])):
        own, there = (one.frame(table).set_index(keys) for one in (found, kept))
        pd.testing.assert_frame_equal(own, there.loc[own.index, own.columns], check_dtype=False)
    profiles = found.frame("profiling-profiles").set_index("name")
    assert (profiles.verdict["items"], profiles.verdict["resnet"]) == ("input-bound", "compute-bound")
    gain = found.frame("profiling-promises").set_index("other").loc["batches"]
    assert (gain.repeats, gain.verdict, len(gain.runs.split())) == (5, "faster", 10) and gain.gain_low > 1
    assert staleness.faults(exports.read(OWN)) == []
    if not PROFILES.exists():
        assert not {"profiling-eight", "profiling-roofline"} & figures
        pytest.skip("our own runs hold; no folder of real profiles (HPC_DATA_MIRROR)")
    assert {f"profiling-{name}" for name in ("eight", "eight-parts", "eight-overlap", "workers")} <= figures
    assert figures == set(kept.figures)
    assert "profile:torch/v100-resnet50-workers0.pt.trace.json.gz" in found.tables["profiling-profiles"].evidence
    assert profiles.verdict["before"] == "input-bound" != profiles.verdict["after"]
    eight = profiles.loc["eight"]
    assert (eight.verdict, eight.straggler) == ("straggler-bound", "rank 1, GPU 1") and eight.waiting > eight.wire
    gain = found.frame("profiling-promises").set_index("name").loc["before"]
    assert 1 < gain.gain < gain.at_most
