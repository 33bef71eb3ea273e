"""The CSVs of `nsys stats`, as the versions print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils.analyze.nsys import stats
from hpc_utils.analyze.timeline import ProfileError

# nsys 2022.4's output of two reports, one of them without data.
OLD = """\
Generating SQLite file /scratch/run-rank0.sqlite from /scratch/run-rank0.nsys-rep
Exporting 43981 events: [===================================================100%]
Processing [/scratch/run-rank0.sqlite] with [/usr/lib/nsight-systems/host-linux-x64/reports/gpukernsum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
80.0,8000,2,4000.0,4000.0,3000,5000,1414.2,"void at::native::elementwise_kernel<(int)128, (int)4>(int, T3)"
20.0,2000,1,2000.0,2000.0,2000,2000,0.0,"ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm *)"

Processing [/scratch/run-rank0.sqlite] with [/usr/lib/nsight-systems/host-linux-x64/reports/gpumemsizesum.py]...
SKIPPED: /scratch/run-rank0.sqlite does not contain GPU memory data.

"""
# 2024's, in another unit and with its columns in another order.
NEW = """\

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

Name,Instances,Total Time (us),Avg (us),Med (us),Min (us),Max (us),StdDev (us),Time (%)
ncclDevKernel_AllReduce_Sum_f32,1,2.000,2.0,2.0,2.000,2.000,0.0,20.0
sgemm_128x64_nn,2,8.000,4.0,4.0,3.000,5.000,1.4142,80.0

"""
OLDEST = """\
Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name
100.0,10,4,2.5,1,4,sgemm_128x64_nn
"""


def read(tmp_path: Path, text: str, name: str = "out.csv") -> stats.Stats:
    (tmp_path / name).write_text(text)
    return stats.read(tmp_path / name)


def test_both_dialects_become_the_same_frame(tmp_path: Path) -> None:
    old = read(tmp_path, OLD).frames[stats.KERNELS].set_index("count").sort_index()
    new = read(tmp_path, NEW).frames[stats.KERNELS].set_index("count").sort_index()
    assert list(old.columns) == [
        "name", "kind", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns", "share",
    ]  # fmt: skip
    numbers = ["total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns", "share"]
    assert old[numbers].equals(new[numbers])
    assert old.total_ns.tolist() == [2000, 8000]
    assert old.total_ns.dtype == "int64"
    assert old.share.tolist() == [0.2, 0.8]
    assert (old.kind.tolist(), new.kind.tolist()) == (["communication", "elementwise"], ["communication", "GEMM"])


def test_what_was_skipped_is_missing_not_empty(tmp_path: Path) -> None:
    found = read(tmp_path, OLD)
    assert list(found.frames) == [stats.KERNELS]
    assert found.missing == {"cuda_gpu_mem_size_sum": "/scratch/run-rank0.sqlite does not contain GPU memory data."}


def test_what_nsys_wrote_to_files_is_missing_where_they_are_empty(tmp_path: Path) -> None:
    assert list(read(tmp_path, "", "run_gpukernsum.csv").missing) == [stats.KERNELS]
    talk = "Processing [run.sqlite] with [/x/reports/openaccsum.py] to [st_openaccsum.csv]... SKIPPED: no OpenACC.\n"
    assert read(tmp_path, talk).missing == {"openacc_sum": "no OpenACC."}


def test_what_a_dialect_lacks_is_not_zero(tmp_path: Path) -> None:
    frame = read(tmp_path, OLDEST).frames[stats.KERNELS]
    assert frame[["total_ns", "count", "mean_ns", "min_ns", "max_ns"]].to_numpy().tolist() == [[10, 4, 2.5, 1, 4]]
    assert frame[["median_ns", "std_ns"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("name", "header", "row", "report", "total"),
    [
        ("x.csv", "Total (MB),Count,Avg (MB),Operation", "1.5,3,0.5,[CUDA memcpy Host-to-Device]",
         stats.COPY_SIZES, ("total_bytes", 1_500_000)),
        ("x.csv", "Time (%),Total Time (ns),Count,Operation", "100.0,12,3,[CUDA memset]", stats.COPY_TIMES, ("total_ns", 12)),
        ("x.csv", "Time (%),Total Time (ms),Num Calls,Name", "9,1.5,3,cudaLaunchKernel", stats.CALLS, ("total_ns", 1_500_000)),
        ("x.csv", "Time (%),Total Time (ns),Instances,Style,Range", "9,7,3,PushPop,:step", stats.RANGES, ("total_ns", 7)),
        ("run_osrt_sum.csv", "Time (%),Total Time (ns),Num Calls,Name", "9,5,3,poll", stats.SYSTEM, ("total_ns", 5)),
        ("run_osrtsum.csv", "Time (%),Total Time (ns),Num Calls,Name", "9,5,3,poll", stats.SYSTEM, ("total_ns", 5)),
    ],
)  # fmt: skip
def test_reports_are_told_apart(tmp_path: Path, name: str, header: str, row: str, report: str, total: tuple) -> None:
    found = read(tmp_path, f"{header}\n{row}\n", name).frames
    assert list(found) == [report]
    assert (found[report][total[0]].tolist(), found[report]["count"].tolist()) == ([total[1]], [3])
    if report == stats.RANGES:
        assert found[report][["name", "Style"]].to_numpy().tolist() == [[":step", "PushPop"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no table"),
        ("a,b\n1,2\n", "holds no table"),
        ("SQLite format 3\0", "is no output"),
        (OLD.replace(",8000,2,", ",lots,2,"), "line 6: 'lots' is no number"),
        (OLD.replace(",8000,2,", ",nan,2,"), "is no number"),
        (OLD.replace(",8000,2,", ",9e99,2,"), "is no number"),
        (OLD[: OLD.index(",4000.0")], "line 6: 3 fields, the header has 9"),
        (NEW.replace("(us)", "(fortnights)"), "unit 'fortnights'"),
    ],
)
def test_what_is_no_summary_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.csv cannot be read"):
        stats.read(tmp_path / "none.csv")
