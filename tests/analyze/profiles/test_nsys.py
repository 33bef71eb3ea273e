"""Exports of Nsight Systems: real ones against plain SQL, made ones against what was put into them, hostile ones."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from benchmarks import synthetic_export
from hpc_utils.analyze.profiles import nsys
from hpc_utils.analyze.profiles.breakdown import breakdowns
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, UNKNOWN, ProfileError, Timeline

from .timelines import named


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.sqlite"
    synthetic_export.write_export(path, kernels=300, ranks=2, steps=3)
    return path


def sql(path: Path, *statements: str) -> list[tuple]:
    """Change an export, or ask it; the last answer."""
    with sqlite3.connect(path) as connection:
        rows = [connection.execute(statement).fetchall() for statement in statements]
    connection.close()
    return rows[-1]


def remarks_of(timelines: list[Timeline]) -> str:
    return "\n".join(dict.fromkeys(text for one in timelines for text in one.remarks))


@pytest.mark.parametrize(
    ("version", "ranks", "devices"),
    [(*pair, 1) for pair in zip(synthetic_export.VERSIONS, (1, 3), strict=True)]
    + [(synthetic_export.VERSIONS[-1], 2, 2)],
)
def test_what_was_put_in_comes_out(tmp_path: Path, version: str, ranks: int, devices: int) -> None:
    path = tmp_path / "made.sqlite"
    made = synthetic_export.write_export(path, version=version, kernels=2_000, ranks=ranks, devices=devices, steps=4)
    found = nsys.read_report(path)
    assert len(found) == ranks * devices
    for place, one in enumerate(found):
        truth = made[place // devices]
        assert (one.device, one.aligned, one.device_name) == (place, True, "NVIDIA H100 80GB HBM3")
        assert one.ranges.start.min() == min(at for spans in truth.ranges.values() for at, _ in spans)
        own = truth.kernels[truth.kernels[:, 4] == place]
        order = np.argsort(own[:, 0], kind="stable")
        kernels = one.ops.of_kind(COMPUTE, COMMUNICATION)
        ours = np.column_stack([kernels.start, kernels.end, kernels.launched, kernels.kind == COMMUNICATION])
        assert np.array_equal(ours, own[order, :4])
        memory = one.ops.of_kind(MEMORY)
        copies, fills = memory.where(memory.copy == 1), memory.where(memory.copy == 0)
        if place == truth.device:
            columns = [copies.start, copies.end, copies.launched, copies.pageable]
            assert np.array_equal(np.column_stack(columns), truth.copies[:, [0, 1, 2, 4]])
            columns = [fills.start, fills.end, fills.launched]
            assert np.array_equal(np.column_stack(columns), truth.fills[:, :3])
        else:
            assert not len(memory)
        for name, spans in truth.ranges.items():
            assert list(zip(*(times.tolist() for times in named(one.ranges, name)), strict=True)) == spans


def test_ranks_are_known_by_device_where_one_torchrun_started_one_each(tmp_path: Path) -> None:
    path = tmp_path / "made.sqlite"
    synthetic_export.write_export(path, kernels=50, ranks=3)
    found = nsys.read_report(path)
    assert [(one.rank, one.world_size) for one in found] == [(0, 3), (1, 3), (2, 3)]
    assert "rank taken from the device's number" in remarks_of(found)
    sql(path, "UPDATE META_DATA_CAPTURE SET value = '--nnodes=2' WHERE value = '--nnodes=1'")
    assert [(one.rank, one.world_size) for one in nsys.read_report(path)] == [(None, None)] * 3


# -- what an export lacks -------------------------------------------------------------------------------------


def test_a_missing_table_is_no_such_events_and_is_reported(small: Path) -> None:
    sql(small, "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME", "DROP TABLE CUPTI_ACTIVITY_KIND_MEMCPY")
    found = nsys.read_report(small)
    assert all(np.all(one.ops.launched == -1) for one in found)
    assert not any(np.any(one.ops.copy) for one in found)
    assert "launch times are not known" in remarks_of(found)
    sql(small, "DROP TABLE NVTX_EVENTS", "DROP TABLE TARGET_INFO_SESSION_START_TIME")
    found = nsys.read_report(small)
    assert [len(one.ranges) for one in found] == [0, 0]
    assert "no NVTX ranges" in remarks_of(found)
    assert not any(one.aligned for one in found)


def test_communication_by_mpi_is_not_known_rather_than_none(tmp_path: Path) -> None:
    path = tmp_path / "mpi.sqlite"
    synthetic_export.write_export(path, kernels=300, ranks=1, steps=3)
    sql(
        path,
        "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE demangledName IN (SELECT id FROM StringIds WHERE value LIKE '%nccl%')",
    )
    assert breakdowns(nsys.read_report(path))[0]["communication_ns"] == 0
    sql(path, "CREATE TABLE MPI_P2P_EVENTS (start, [end])")
    assert breakdowns(nsys.read_report(path))[0]["communication_ns"] is None


def test_data_ranges_of_a_thread_that_prefetches_are_not_the_loop_s(small: Path) -> None:
    before = nsys.read_report(small)
    row = "SELECT start, [end] + 7, eventType, globalTid + {}, domainId, 'data' FROM NVTX_EVENTS WHERE text = 'step'"
    insert = "INSERT INTO NVTX_EVENTS (start, [end], eventType, globalTid, domainId, text) "
    counts = []
    for thread in (1, 0):
        sql(small, insert + row.format(thread))
        counts.append(
            [len(now.ranges) - len(then.ranges) for now, then in zip(nsys.read_report(small), before, strict=True)]
        )
    assert counts == [[0, 0], [3, 3]]


def test_an_export_without_a_gpu_has_ranges_and_no_work(small: Path) -> None:
    for table in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME"):
        sql(small, f"DELETE FROM CUPTI_ACTIVITY_KIND_{table}")
    found = nsys.read_report(small)
    assert [(one.ops, one.device, len(named(one.ranges, "step")[0])) for one in found] == [(None, None, 3)] * 2
    assert "no events of a GPU" in remarks_of(found)
    assert all(one["busy_ns"] is None for one in breakdowns(found))
    sql(small, "DROP TABLE NVTX_EVENTS")
    [one] = nsys.read_report(small)
    assert one.ops is None
    assert "no NVTX ranges" in remarks_of([one])


def test_graphs_that_were_traced_whole_are_unknown_work(small: Path) -> None:
    before = nsys.read_report(small)[0]
    sql(
        small,
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end, deviceId, contextId, streamId, correlationId, globalPid, "
        "graphId, graphExecId) SELECT 1000, 900000, 0, 1, 7, 5, min(globalPid), 1, 1 FROM CUPTI_ACTIVITY_KIND_KERNEL",
    )
    found = nsys.read_report(small)
    graphs = found[0].ops.of_kind(UNKNOWN)
    assert (graphs.end - graphs.start).tolist() == [899_000]
    assert "1 launches of CUDA graphs were traced whole" in remarks_of(found)
    assert len(found[0].ops) == len(before.ops) + 1


def test_graphs_that_left_no_work_are_reported(small: Path) -> None:
    """As nsys 2022.4 traces them; a graph whose kernels are there is none of them."""
    launch = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId, nameId, returnValue) "
    sql(
        small,
        "INSERT INTO StringIds VALUES (9999, 'cudaGraphLaunch_v10000')",
        f"{launch} SELECT 10, 20, 0, min(globalTid), 777777, 9999, 0 FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    )
    assert "1 launches of CUDA graphs, whose work was not recorded" in remarks_of(nsys.read_report(small))
    sql(small, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = 777777 WHERE rowid = 5")
    assert "CUDA graphs" not in remarks_of(nsys.read_report(small))


def test_a_newer_schema_is_read_and_reported(small: Path) -> None:
    assert "newer" not in remarks_of(nsys.read_report(small))
    sql(small, "UPDATE META_DATA_EXPORT SET value = '3.26.1' WHERE name = 'EXPORT_SCHEMA_VERSION'")
    assert "schema 3.26 is newer than" in remarks_of(nsys.read_report(small))


def test_what_nsys_lost_is_repeated(small: Path) -> None:
    rows = "(1, 1, 1, {severity}, '{text}', NULL)"
    lost, other = "Not all CUDA events might have been collected.", "CPU sampling is not available."
    values = [
        rows.format(severity=severity, text=text) for severity, text in ((2, lost), (2, other), (3, "Out of disk."))
    ]
    sql(
        small,
        "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL, "
        "source INTEGER NOT NULL, severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER)",
        f"INSERT INTO DIAGNOSTIC_EVENT VALUES {', '.join(values)}",
    )
    remarks = remarks_of(nsys.read_report(small))
    assert lost in remarks and "Out of disk." in remarks and other not in remarks


# -- rank and device ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, (None, None)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, (5, 8)),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (1, 2)),
    ],
)
@pytest.mark.parametrize("separator", ["", ";", "\0"])
def test_a_rank_is_known_by_its_launcher(tmp_path: Path, about: dict, expected: tuple, separator: str) -> None:
    path = tmp_path / "report-rank3.sqlite"
    synthetic_export.write_export(path, kernels=20)
    sql(path, "DELETE FROM META_DATA_CAPTURE")
    with sqlite3.connect(path) as connection:
        if not separator:  # a row each, as nsys of 2026 has them too
            rows = [("PROCESS_0:ENVIRONMENT_VARIABLE", f'{key}="{value}"') for key, value in about.items()]
            connection.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", rows)
        else:
            text = separator.join(["HOME=/root", *(f"{key}={value}" for key, value in about.items()), "LOCAL_RANK=0"])
            connection.execute(
                "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, '', 'DeviceEnvironment', 17, ?)", [text]
            )
    [one] = nsys.read_report(path)
    assert (one.rank, one.world_size) == expected


# -- files that are no export ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "no complete export"),
        (lambda path: path.write_text("Time (%),Total Time (ns)\n"), "no complete export"),
        (lambda path: path.write_bytes(path.read_bytes()[:-4096]), "no complete export"),
        (lambda path: path.with_name(path.name + "-journal").write_bytes(b"x"), "still being written"),
        (lambda path: sql(path, "DROP TABLE StringIds"), "no complete export"),
        (lambda path: sql(path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 'zero'"), "no complete export"),
    ],
)
def test_what_is_no_complete_export_is_refused(small: Path, spoil, words: str) -> None:
    spoil(small)
    with pytest.raises(ProfileError, match=words):
        nsys.read_report(small)


def test_damage_is_an_error_or_harmless_but_never_a_traceback(small: Path) -> None:
    whole, draw = small.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 20, 400])):
            damaged[draw.randrange(100, len(damaged))] = draw.randrange(256)
        small.write_bytes(damaged)
        try:
            nsys.read_report(small)
        except ProfileError as error:
            assert str(small) in str(error)
            refused += 1
    assert refused > 5


def test_a_file_name_is_no_uri(small: Path) -> None:
    path = small.rename(small.with_name("a ä%20?mode=rwc.sqlite"))
    assert len(nsys.read_report(path)) == 2
    assert list(path.parent.iterdir()) == [path]


# -- reports --------------------------------------------------------------------------------------------------


def test_a_report_without_an_nsys_states_how_to_export_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = tmp_path / "run rank0.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n")
    with pytest.raises(ProfileError, match=r"nsys export --type sqlite run rank0\.nsys-rep"):
        nsys.read_report(report)


def test_the_export_beside_a_report_is_taken_unless_it_is_older(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(small.parent))
    report = small.with_suffix(".nsys-rep")
    report.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n")
    os.utime(report, (1, 1))
    assert [one.source for one in nsys.read_report(report)] == [str(report)] * 2
    os.utime(small, (0, 0))
    with pytest.raises(ProfileError, match=r"nsys is not installed here.*env/nsight.sh"):
        nsys.read_report(report)
