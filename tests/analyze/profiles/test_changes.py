"""Two profiles compared: time per unit of work, and whether it is the same work."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.analyze.profiles.changes import compare
from hpc_utils.analyze.profiles.readers import Reports, gather, two_sides
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, ProfileError

from .test_explain import explain
from .timelines import ALL_REDUCE, MS, timeline
from .torch_traces import trained

_PROFILES = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared") / "profiles"
GEMM = "ampere_sgemm_128x128_nt"


def reports(
    steps: int, compute: int, communication: int, gap: int, *, marked: bool = True, gemms: int = 1
) -> Reports:
    """Steps of a GEMM or more, an all-reduce and a gap, in ms."""
    work, marks, start = [], [], 0
    for _ in range(steps):
        end = start + compute * MS
        lengths = [start + (end - start) * n // gemms for n in range(gemms + 1)]
        work += [(*pair, COMPUTE, {"name": GEMM}) for pair in itertools.pairwise(lengths)]
        work.append((end, end + communication * MS, COMMUNICATION, {"name": ALL_REDUCE}))
        marks.append((start, end + (communication + gap) * MS, "step"))
        start = marks[-1][1]
    return Reports([timeline([*work, (start, start + 1, COMPUTE)], marks if marked else ())])


def test_time_a_step_by_part_kernel_and_phase() -> None:
    rows, sentences = compare(reports(10, 6, 2, 4), reports(5, 6, 3, 1))
    parts = rows.loc["part"]
    assert parts.loc["GEMM kernels", ["before", "after"]].tolist() == pytest.approx([6, 6], rel=1e-5)
    assert parts.loc["exposed communication", "change"] == pytest.approx(1, rel=1e-5)
    assert parts.loc["gaps", ["before", "after"]].tolist() == pytest.approx([4, 1], rel=1e-5)
    assert parts.index[0] == "gaps"
    assert rows.loc[("phase", "step"), "before"] == pytest.approx(12)
    assert len(sentences) == 1 and "step" in sentences[0]
    assert compare(reports(10, 6, 2, 0), reports(10, 6, 2, 0))[1], "without gaps"


def test_unmarked_profiles_are_compared_by_calls_of_a_kernel_in_both() -> None:
    rows, [sentence] = compare(reports(10, 6, 2, 4, marked=False), reports(5, 6, 3, 1, marked=False))
    assert rows.loc[("kernel", ALL_REDUCE), "change"] == pytest.approx(1)
    assert GEMM in sentence and "10 and 5" in sentence


def test_different_work_is_said_to_be_different() -> None:
    _, sentences = compare(reports(10, 6, 2, 4), reports(10, 6, 2, 4, gemms=2))
    assert any("different work" in sentence and "GEMM" in sentence for sentence in sentences)
    with pytest.raises(ProfileError, match="no kernel in common"):
        compare(reports(10, 6, 2, 4), Reports([timeline([(0, 10, COMPUTE, {"name": "other_kernel"})])]))


def test_marked_steps_are_compared_without_a_kernel_in_common() -> None:
    """As fp32 and fp16, whose kernels have other names."""
    half = reports(10, 3, 2, 4)
    [timelines] = half.timelines
    names = [name.replace("sgemm", "h16816gemm") for name in timelines.ops.names]
    renamed = replace(timelines, ops=replace(timelines.ops, names=names))
    rows, sentences = compare(reports(10, 6, 2, 4), Reports([renamed]))
    assert rows.loc[("part", "GEMM kernels"), "change"] == pytest.approx(-3, rel=1e-4)
    assert len(sentences) == 1 and "gaps" not in sentences[0], "parts that did not change are not named"


def test_two_profiles_of_one_rank_are_compared_and_two_ranks_are_not(tmp_path: Path) -> None:
    before, after, other = (
        trained(tmp_path / f"{name}.json", [(GEMM, 0, length)], rank=rank, ranks=2)
        for name, length, rank in (("before", 9_000, 0), ("after", 4_000, 0), ("other", 9_000, 1))
    )
    assert two_sides(gather([before, other]), [before, other]) == []
    found = json.loads(explain("--json", before, after).stdout)
    [gemm] = [row for row in found["changes"] if row["name"] == "GEMM kernels"]
    assert (gemm["before"], gemm["after"]) == (9, 4)
    done = explain(before, after)
    assert done.exit_code == 0 and "GEMM kernels" in done.stdout
    assert json.loads(explain("--json", before, other).stdout).keys() == {"ranks", "verdict"}


SIZED = {"flops_per_sample": 7.0, "parameters": 10, "batch_per_device": 8}


@pytest.mark.parametrize(
    ("before", "after", "differing"),
    [
        (SIZED, SIZED, []),
        (SIZED, SIZED | {"parameters": 20}, ["parameters 10 and 20"]),
        (SIZED, SIZED | {"batch_per_device": 4}, ["batch_per_device 8 and 4"]),
        ({"workload_args": {"width": 8}}, {"workload_args": {"width": 16}}, ["width 8 and 16"]),
        (SIZED | {"workload_args": {"dropout": 0.1}}, SIZED, []),  # the counts decide
        (SIZED | {"workload_args": {"width": 8}}, {"batch_per_device": 8, "workload_args": {"width": 8}}, []),
        (SIZED, {}, []),  # no records
    ],
)
def test_the_records_of_two_runs_tell_different_work(
    tmp_path: Path, before: dict, after: dict, differing: list[str]
) -> None:
    folders = [tmp_path / "before", tmp_path / "after"]
    for folder, run in zip(folders, (before, after), strict=True):
        (folder / "profile").mkdir(parents=True)
        trained(folder / "profile" / "rank0.json", [(GEMM, 0, 9_000)], rank=0, ranks=1)
        if run:
            (folder / "epochs.csv").write_text("step_p50\n0.1\n")
            (folder / "run.json").write_text(json.dumps(run | {"config": run}))
    _, *sentences = compare(*two_sides(gather(folders), folders))[1]
    assert [sentence.partition(": ")[2] for sentence in sentences] == differing


def test_the_pair_beside_the_project_does_less_in_equal_time() -> None:
    """68 and 60 calls of attention, idle 10 and 17 % of 300 ms."""
    files = [_PROFILES / f"nsys/export-2026.2-2gpu-{side}.sqlite" for side in ("before", "after")]
    if not files[0].exists():
        pytest.skip(f"no real profiles at {_PROFILES} (set HPC_DATA_MIRROR)")
    rows, [sentence] = compare(*map(gather, [[file] for file in files]))
    assert "68 and 60" in sentence and "10% and 17%" in sentence
    assert rows.loc["part"].index[0] == "gaps"
    assert rows.loc[("part", "attention kernels"), "change"] == pytest.approx(0, abs=0.02)
