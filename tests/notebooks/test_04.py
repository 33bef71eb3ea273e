"""Chapter 04, executed: profiles come to their verdicts; what is not there, it says."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from hpc_utils import paths, records
from hpc_utils.publish import exports, staleness

CHAPTER = "04_profiling"
OWN = paths.root() / "results/reference/epyc-avx512-profiles"
PROFILES = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared") / "profiles"


def test_our_own_runs_come_to_their_verdicts_and_what_is_missing_is_stated(executed, tmp_path):
    text, figures = executed(OWN, CHAPTER, examples=str(tmp_path / "none"))
    assert "0 of 5 examples" in text and "0 kernels were counted" in text
    assert {"profiling-items", "profiling-small-steps", "profiling-steps", "profiling-promises"} <= figures
    assert not {"profiling-eight", "profiling-roofline"} & figures
    found, kept = exports.read_exports(tmp_path / "results"), exports.read_exports(OWN)
    for table, keys in (("profiling-profiles", ["name"]), ("profiling-promises", ["name", "other"])):
        own, there = (one.frame(table).set_index(keys) for one in (found, kept))
        pd.testing.assert_frame_equal(own, there.loc[own.index, own.columns], check_dtype=False)
    assert staleness.faults(kept, records.load(OWN)) == []


@pytest.mark.soak
def test_real_profiles_come_to_their_verdicts(executed, tmp_path):
    if not PROFILES.exists():
        pytest.skip("no folder of real profiles (HPC_DATA_MIRROR)")
    _, figures = executed(OWN, CHAPTER, examples=str(PROFILES))
    found = exports.read_exports(tmp_path / "results")
    assert figures == set(exports.read_exports(OWN).figures)
    assert "profile:torch/v100-resnet50-workers0.pt.trace.json.gz" in found.tables["profiling-profiles"].evidence
    profiles = found.frame("profiling-profiles").set_index("name")
    assert profiles.verdict["before"] == "input-bound" != profiles.verdict["after"]
    eight = profiles.loc["eight"]
    assert (eight.verdict, eight.straggler) == ("straggler-bound", "rank 1, GPU 1") and eight.waiting > eight.wire
    gain = found.frame("profiling-promises").set_index("name").loc["before"]
    assert 1 < gain.gain < gain.at_most
