"""Chapter 04, executed: real profiles to their verdicts where they are at hand; what is not there, it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.publish import freshness, ledger

from .test_03 import executed  # noqa: F401

CHAPTER = "04_profiling"
LAPTOP = paths.root() / "results/reference/epyc-2core"
OWN = paths.root() / "results/reference/epyc-avx512-profiles"
PROFILES = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared") / "profiles"


def test_without_profiles_it_says_what_is_missing(executed, tmp_path):  # noqa: F811
    text, figures = executed(LAPTOP, CHAPTER, study="laptop", examples=str(tmp_path / "none"))
    assert "0 of 5 examples" in text and "No run here was profiled" in text
    assert "No kernel was counted" in text and not figures


@pytest.mark.skipif(not PROFILES.exists(), reason="no folder of real profiles (HPC_DATA_MIRROR)")
def test_real_profiles_come_to_their_verdicts(executed, tmp_path):  # noqa: F811
    text, figures = executed(LAPTOP, CHAPTER, study="laptop")
    assert "0 workers: input-bound (high confidence" in text and "4 workers: input-bound" not in text
    assert "straggler-bound" in text and "rank 1, GPU 1" in text
    assert {"laptop-eight", "laptop-eight-parts", "laptop-eight-overlap", "laptop-workers"} <= figures
    handed = ledger.read(tmp_path / "results")
    assert handed.values["profile.before.gain-at-most"].files == (
        "profile:torch/v100-resnet50-workers0.pt.trace.json.gz",
    )
    assert handed.values["profile.eight.exposed-waiting"].value > handed.values["profile.eight.exposed-wire"].value
    assert handed.values["profile.before.gain.after"].value < handed.values["profile.before.gain-at-most"].value


def test_our_own_runs_come_to_verdicts_and_say_whether_their_advice_helped(executed, tmp_path):  # noqa: F811
    _, figures = executed(OWN, CHAPTER, examples=str(tmp_path / "none"))
    assert {"profiling-items", "profiling-small-steps", "profiling-steps", "profiling-promises"} <= figures
    assert not {"profiling-eight", "profiling-roofline"} & figures, (
        "of others' profiles nothing is drawn without them"
    )
    values, kept = ledger.read(tmp_path / "results").values, ledger.read(OWN).values
    own = [name for name, value in values.items() if value.runs]
    assert len(own) > 100 and all(values[name] == kept[name] for name in own), "the kept set says what its runs say"
    assert values["profile.items.verdict"].value == "input-bound"
    assert values["profile.resnet.verdict"].value == "compute-bound"
    gain = values["profile.items.gain.batches"]
    assert gain.repeats == 5 and len(gain.runs) == 10 and gain.low > 1
    assert values["profile.items.gain.batches.told"].value == "faster"
    assert freshness.faults(OWN) == []
