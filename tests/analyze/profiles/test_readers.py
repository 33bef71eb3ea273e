"""Files of all kinds are known by what is in them, and come back in the order of their ranks."""

from __future__ import annotations

import math
import shutil
import sqlite3
from pathlib import Path

import pytest

from hpc_utils.analyze.profiles import readers
from hpc_utils.analyze.profiles.breakdown import breakdowns
from hpc_utils.analyze.profiles.judge import judge
from hpc_utils.analyze.profiles.readers import FileKind
from hpc_utils.analyze.profiles.timeline import ProfileError, world

from . import torch_traces as made
from .torch_traces import kernel, write


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    some = made.trace([kernel("a", 1, 1)])
    sqlite3.connect(tmp_path / "x.json").execute("create table t (a)").connection.commit()
    contents = {
        "x.sqlite": (some, FileKind.TRACE),
        "y.gz": (some, FileKind.TRACE),
        "z.csv": (b"NVR\0\0\2", FileKind.NCU_REPORT),
        "z.txt": (b"NVIDIA Tegra Profiler Report 1.\n\0", FileKind.NSYS_REPORT),
        "plan": ('{"steps": 3}', None),
        "table": ("rank,seconds\n0,1\n", None),
        "empty": ("", None),
    }
    assert readers.kind(tmp_path / "x.json") == FileKind.NSYS_EXPORT
    for name, (content, kind) in contents.items():
        assert readers.kind(write(tmp_path / name, content)) == kind, name


def test_timelines_are_ordered_by_rank_then_device_and_unnumbered_ones_come_last(tmp_path: Path) -> None:
    ranked = {"distributedInfo": {"rank": 3, "world_size": 16}}
    for folder in ("rank_9", "lora_rank8"):
        (tmp_path / folder).mkdir()
    write(tmp_path / "rank7.json", made.trace([kernel("k", 1, 1, device=one) for one in (1, 0)], **ranked))
    for name in ("trace-rank12.json.gz", "rank_9/trace.json", "frank5-nobody.json", "lora_rank8/trace.json"):
        write(tmp_path / name, made.trace([kernel("k", 1, 1)]))
    found = readers.gather([tmp_path]).timelines
    assert [(one.rank, one.device) for one in found] == [(3, 0), (3, 1), (9, 0), (12, 0), (None, 0), (None, 0)]
    one_by_one = readers.gather([*sorted(tmp_path.iterdir()), tmp_path / "rank7.json"]).timelines
    assert [one.label for one in one_by_one] == [one.label for one in found]


HEADER = (
    "epoch,data_seconds,forward_seconds,backward_seconds,optimizer_seconds,comm_seconds,overlap_seconds,step_p50\n"
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with a profile of a rank."""
    (tmp_path / "run/profile/rank0").mkdir(parents=True)
    write(tmp_path / "run/profile/rank0/trace.json", made.trace([kernel("k", 1, 1)]))
    write(tmp_path / "run/profile/rank0/notes.txt", "anything")
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("rows", "phases", "step"),
    [
        (
            "1,0.1,0.2,0.3,0.4,,,\n2,0.3,0.2,0.3,0.4,,,\n",
            {"data": 0.2, "forward": 0.2, "backward": 0.3, "optimizer": 0.4},
            math.nan,
        ),
        (
            "1,0.1,0.2,0.3,0.4,0.25,0.05,0.5\n2,0.1",  # a truncated last line
            {"data": 0.1, "forward": 0.2, "backward": 0.1, "optimizer": 0.4, "communication": 0.2},
            0.5,
        ),
        ("1,0.1,,,,,,0.5\n2,0.1,,,,,,0.1\n3,0.1,,,,,,0.2\n", None, 0.2),  # a captured step has no phases
    ],
)
def test_a_run_s_phases_are_those_of_its_own_clocks(run: Path, rows: str, phases: dict | None, step: float) -> None:
    (run / "epochs.csv").write_text(HEADER + rows)
    found = readers.gather([run])
    assert [one.source for one in found.timelines] == [str(run / "profile/rank0/trace.json")]
    assert found.phases == (phases and pytest.approx(phases))
    assert found.step_seconds == pytest.approx(step, nan_ok=True) and found.load == 0


def test_a_run_s_load_is_read_and_without_a_profile_its_clocks_are_enough(run: Path) -> None:
    (run / "epochs.csv").write_text(f"{HEADER}1,0.1,0.2,0.3,0.4,,,\n")
    write(run / "run.json", {"threads_per_rank": 2, "config": {"step_graph": True}})
    (run / "ranks.csv").write_text("rank,seconds,outside_seconds,steal_seconds\n0,10,,\n1,10,5,1\n")
    found = readers.gather([run])
    assert found.load == pytest.approx(0.3) and found.config == {"step_graph": True}
    shutil.rmtree(run / "profile")
    found = readers.gather([run])
    assert found.timelines == [] and found.phases["data"] == pytest.approx(0.1)
    (run / "epochs.csv").write_text(f"{HEADER}1,0.1,,,,,,0.5\n")
    with pytest.raises(ProfileError, match="holds no profile"):
        readers.gather([run])


def test_a_profile_that_was_never_filled_is_not_overlooked_in_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json.gz", made.trace([kernel("k", 1, 1)]))
    for name, content in (("rank1.json.gz", b""), ("rank1.json", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ProfileError, match=r"rank1.* is empty"):
            readers.gather([tmp_path])
        (tmp_path / name).unlink()
    assert len(readers.gather([tmp_path]).timelines) == 1


def test_an_export_stands_for_its_report(tmp_path: Path) -> None:
    export = made.real("8xH100-compiled").parent.parent / "nsys/export-2026.2-2gpu-after.sqlite"
    (tmp_path / "a.sqlite").symlink_to(export)
    (tmp_path / "a.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 1.")
    for given in ([tmp_path], [tmp_path / "a.nsys-rep", tmp_path / "a.sqlite"]):
        assert {one.source for one in readers.gather(given).timelines} == {str(tmp_path / "a.sqlite")}


RANK0 = {"distributedInfo": {"rank": 0, "world_size": 2}}
H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]}


@pytest.mark.parametrize(
    "other",
    [
        RANK0,
        {},
        {"distributedInfo": {"rank": 1, "world_size": 4}},
        {"distributedInfo": {"rank": 1, "world_size": 2}, "deviceProperties": [{"id": 0, "name": "Tesla V100"}]},
        {"distributedInfo": {"rank": 1, "world_size": 2}, "baseTimeNanoseconds": 2 * 10**18},
    ],
    ids=["same rank", "no rank", "world", "device", "time"],
)
def test_files_of_different_runs_are_refused_by_name(tmp_path: Path, other: dict) -> None:
    first = RANK0 | H100 | {"baseTimeNanoseconds": 10**18}
    work = [kernel("k", start, 1) for start in range(5)]
    files = [write(tmp_path / f"{n}.json", made.trace(work, **head)) for n, head in enumerate((first, other))]
    with pytest.raises(ProfileError, match=r"0\.json and .*1\.json"):
        judge(readers.gather(files))
    same = {"distributedInfo": {"rank": 1, "world_size": 2}, "baseTimeNanoseconds": 10**18}
    write(files[1], made.trace(work, **H100 | same))
    assert judge(readers.gather(files)).confidence > 0


def test_files_without_a_rank_are_each_another_and_not_judged_together(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.json", made.trace([kernel("k", start, 1) for start in range(5)]))
    found = readers.gather([tmp_path]).timelines
    assert world(found) == (2, 2)
    assert [part["communication_ns"] for part in breakdowns(found)] == [None, None], "unknown, not zero"
    with pytest.raises(ProfileError, match=r"a\.json and .*b\.json"):
        judge(readers.gather([tmp_path]))


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="profile=torch"):
        readers.gather([tmp_path])
    with pytest.raises(ProfileError, match="cannot be read"):
        readers.gather([tmp_path / "none"])
    for content in ("", "rank,seconds\n"):
        with pytest.raises(ProfileError, match="is empty or not a known profile"):
            readers.gather([write(tmp_path / "x", content)])
