"""Files of all kinds are known by what is in them, and come back in the order of their ranks."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest

from hpc_utils.analyze.profiles import readers
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
    (tmp_path / "rank_9").mkdir()
    write(tmp_path / "rank7.json", made.trace([kernel("k", 1, 1, device=one) for one in (1, 0)], **ranked))
    for name in ("trace-rank12.json.gz", "rank_9/trace.json", "frank5-nobody.json"):
        write(tmp_path / name, made.trace([kernel("k", 1, 1)]))
    found = readers.gather([tmp_path]).timelines
    assert [(one.rank, one.device) for one in found] == [(3, 0), (3, 1), (9, 0), (12, 0), (None, 0)]
    one_by_one = readers.gather([*sorted(tmp_path.iterdir()), tmp_path / "rank7.json"]).timelines
    assert [one.label for one in one_by_one] == [one.label for one in found]


def test_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "profile/rank0").mkdir(parents=True)
    (run / "results.json").write_text("{}")
    header = "epoch,data_seconds,forward_seconds,backward_seconds,optimizer_seconds\n"
    (run / "epochs.csv").write_text(f"{header}1,0.1,0.2,0.3,0.4\n2,0.3,0.2,0.3,0.4\n")
    found = readers.gather([run])  # it has no profile, but its own clocks
    assert found.timelines == []
    assert found.phases == pytest.approx({"data": 0.2, "forward": 0.2, "backward": 0.3, "optimizer": 0.4})
    header = header.replace("\n", ",comm_seconds,overlap_seconds\n")
    (run / "epochs.csv").write_text(f"{header}1,0.1,0.2,0.3,0.4,,\n")
    assert "communication" not in readers.gather([run]).phases, "one rank has none"
    (run / "epochs.csv").write_text(f"{header}1,0.1,0.2,0.3,0.4,0.25,0.05\n")
    assert readers.gather([run]).phases == pytest.approx(
        {"data": 0.1, "forward": 0.2, "backward": 0.1, "optimizer": 0.4, "communication": 0.2}
    )
    assert readers.gather([run]).load == 0, "it has no record of its ranks"
    write(run / "run.json", {"threads_per_rank": 2})
    (run / "ranks.csv").write_text("rank,seconds,outside_seconds,steal_seconds\n0,10,,\n1,10,5,1\n")
    assert readers.gather([run]).load == pytest.approx(0.3)
    assert math.isnan(readers.gather([run]).step_seconds), "its epochs have no medians"
    steps = header.replace("\n", ",step_p50\n")
    (run / "epochs.csv").write_text(
        f"{steps}1,0.1,0.2,0.3,0.4,,,0.5\n2,0.1,0.2,0.3,0.4,,,0.1\n3,0.1,0.2,0.3,0.4,,,0.2\n"
    )
    assert readers.gather([run]).step_seconds == pytest.approx(0.2)
    write(run / "profile/rank0/trace.json", made.trace([kernel("k", 1, 1)]))
    write(run / "profile/rank0/window.json", {"steps": 3})
    (run / "epochs.csv").write_text(f"{header}1,0.1,0.2,0.3,0.4,0.25,0.05\n2,0.1")
    assert readers.gather([run]).phases["data"] == pytest.approx(0.1), "a truncated last line"
    write(run / "profile/rank0/notes.txt", "anything")
    assert [one.source for one in readers.gather([run]).timelines] == [str(run / "profile/rank0/trace.json")]


def test_a_captured_run_has_options_but_no_phases(tmp_path: Path) -> None:
    write(tmp_path / "run.json", {"config": {"step_graph": True}})
    columns = "epoch,data_seconds,forward_seconds,backward_seconds,optimizer_seconds,step_p50\n"
    (tmp_path / "epochs.csv").write_text(f"{columns}1,0.1,,,,0.5\n")
    with pytest.raises(ProfileError, match="holds no profile"):
        readers.gather([tmp_path])
    (tmp_path / "profile/rank0").mkdir(parents=True)
    write(tmp_path / "profile/rank0/trace.json", made.trace([kernel("k", 1, 1)]))
    found = readers.gather([tmp_path])
    assert found.phases is None and found.config == {"step_graph": True} and found.step_seconds == 0.5


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


def test_two_files_of_one_rank_are_reported(tmp_path: Path) -> None:
    for name in ("rank0-a.json", "rank0-b.json"):
        write(tmp_path / name, made.trace([kernel("k", 1, 1)]))
    both, one = (judge(readers.gather([path])).confidence for path in (tmp_path, tmp_path / "rank0-a.json"))
    assert 0 < both < one


def test_files_without_a_rank_are_each_another_rank(tmp_path: Path) -> None:
    """So what they lack is not known, instead of zero; and none is taken for a repeat of the other."""
    for name in "ab":
        write(tmp_path / f"{name}.json", made.trace([kernel("k", 1, 1)]))
    found = readers.gather([tmp_path])
    assert world(found.timelines) == (2, 2)
    assert [part["communication_ns"] for part in found.parts] == [None, None]


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="profile=torch"):
        readers.gather([tmp_path])
    with pytest.raises(ProfileError, match="cannot be read"):
        readers.gather([tmp_path / "none"])
    for content in ("", "rank,seconds\n"):
        with pytest.raises(ProfileError, match="is empty or not a known profile"):
            readers.gather([write(tmp_path / "x", content)])
