"""Which profile is found for what is to be computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpc_utils.config import RunConfig
from hpc_utils.records import compute_profile, probes

CONFIG = RunConfig(workload="cnn", dataset="digits", device="emulated", evaluate_every=0)
GPU = {"device": "cuda", "threads_per_rank": 8, "threads_asked": None}  # its share of a node's cores
GPU_OF_FOUR = GPU | {"threads_per_rank": 4, "threads_asked": 4}
CPU = {"device": "cpu", "threads_per_rank": 1, "threads_asked": 1}
FORMER = {"device": "cpu", "threads_per_rank": 1}


@pytest.mark.parametrize(
    ("record", "asked", "found"),
    [(GPU, None, True), (GPU, 8, False), (GPU_OF_FOUR, None, False), (GPU_OF_FOUR, 4, True),
     (CPU, None, True), (CPU, 1, True), (CPU, 2, False), (FORMER, None, True), (FORMER, 2, False)],
)  # fmt: skip
def test_a_profile_is_found_by_the_threads_that_were_asked_for(
    results: Path, record: dict[str, Any], asked: int | None, found: bool
) -> None:
    """A GPU's usual threads are its share of the cores, which nobody knows where runs are planned."""
    probes.keep("compute", "p", compute_profile.computed(CONFIG) | {"hardware_id": "0123abcd"} | record)
    config = CONFIG.model_copy(update={"threads_per_rank": asked})
    assert (compute_profile.newest(config, "0123abcd") is not None) == found
    assert compute_profile.newest(config, "elsewhere") is None
