from __future__ import annotations

import copy

from hpc_utils import provenance

from .test_system import LAPTOP, NODE


def changes(then: dict, now: dict) -> dict[str, tuple[str, str]]:
    return {what: (before, after) for what, before, after in provenance.differences(then, now)}


def test_equal_records_differ_in_nothing_and_times_and_job_numbers_are_no_difference() -> None:
    later = copy.deepcopy(NODE) | {"collected_at": "2026-01-01T00:00:00+00:00"}
    later["job"] |= {"id": "99", "nodelist": "gpu07"}
    later["host"] |= {"hostname": "gpu07"}
    assert provenance.differences(NODE, later) == []


def test_each_part_that_matters_is_named() -> None:
    now = copy.deepcopy(NODE) | {"digest": "e" * 64, "commit": "0" * 40, "dirty": True, "environment": {}}
    now["versions"]["torch"] = "2.7.0"
    now["hardware"]["cpu"] |= {"flags": ["avx2", "avx512f"], "usable": 8}
    now["hardware"]["gpus"] = []
    now["host"]["kernel"] = "6.1"
    assert changes(NODE, now) == {
        "digest of the measuring code": ("abcabcabcabc", "eeeeeeeeeeee"),
        "commit": ("ffffffffffff", "000000000000 with uncommitted changes"),
        "logical CPUs usable by a run": ("32", "8"),
        "instruction sets": ("avx2", "avx2 avx512f"),
        "GPUs": ("2 x NVIDIA A100-SXM4-40GB (40 GiB, driver 535.129.03, PCIe gen 4 x16)", "none"),
        "torch": ("2.6.0", "2.7.0"),
        "kernel": ("5.14", "6.1"),
        "OMP_NUM_THREADS": ("8", "unset"),
    }


def test_facts_that_one_record_lacks_are_no_difference() -> None:
    now = copy.deepcopy(NODE)
    now["hardware"]["cpu"]["governor"] = "performance"
    now["host"]["container"] = "x.sif"
    assert provenance.differences(NODE, now) == []
    assert provenance.differences({**NODE, "digest": "d" * 64, "digest_rule": None}, NODE) == []
    found = changes(LAPTOP, NODE)
    assert found["commit"] == ("not known", "f" * 12) and "operating system" not in found
