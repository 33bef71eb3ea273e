"""Nsight Compute's reports, real ones, and what is wrong with others."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpc_utils.analyze.profiles import ncu, peaks, roofline
from hpc_utils.analyze.profiles.timeline import ProfileError

from .torch_traces import real

NAMES = ("addConstDouble-2022.3.ncu-rep", "sobelFloat-2024.1.ncu-rep", "transposeCoalesced-2024.1.ncu-rep")


@pytest.fixture(scope="module")
def reports() -> Path:
    """Real ones, other people's: beside the project, not in it."""
    pytest.importorskip("ncu_report", reason="the package ncu-report is not installed")
    return real("../ncu")


def _metrics(path: Path) -> list[dict[str, float]]:
    """Of each kernel every metric that is a number, as NVIDIA's reader has it."""
    import ncu_report

    context = ncu_report.load_report(str(path))
    return [
        {name: action.metric_by_name(name).as_double() for name in action.metric_names()}
        for number in range(context.num_ranges())
        for action in context.range_by_idx(number)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_the_metrics_of_the_report(reports: Path, name: str) -> None:
    frame, metrics = ncu.read_kernels(reports / name), _metrics(reports / name)
    assert tuple(frame) == ncu.COLUMNS
    assert len(frame) == len(metrics) > 0
    assert (frame.device != "").all()
    for row, recorded in zip(frame.itertuples(), metrics, strict=True):
        assert row.duration_ns == recorded["gpu__time_duration.sum"]
        assert row.sm_share == recorded["sm__throughput.avg.pct_of_peak_sustained_elapsed"] / 100
        assert row.dram_share == recorded["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"] / 100
        assert row.occupancy == recorded["sm__warps_active.avg.pct_of_peak_sustained_active"] / 100
        assert row.dram_bytes == recorded["dram__bytes_read.sum"] + recorded["dram__bytes_write.sum"]
        assert row.dram_bytes / row.duration_ns == pytest.approx(
            recorded["dram__bytes.sum.per_second"] / 1e9, rel=1e-3
        )
        assert math.isnan(row.flops_fp16)  # no counters of half precision in these


def test_operations_are_those_of_the_source_code(reports: Path) -> None:
    points = roofline.points(ncu.read_kernels(reports / NAMES[0]))
    assert (points.precision == "fp64").all() and (points.intensity < 1).all()
    assert points.share.isna().all()  # a workstation's GPU is not in our table
    assert (ncu.read_kernels(reports / NAMES[2]).flops == 0).all()  # a transpose computes nothing


def test_a_truncated_report_is_reported(reports: Path, tmp_path: Path) -> None:
    whole = (reports / NAMES[0]).read_bytes()
    path = tmp_path / "part.ncu-rep"
    for size in (*range(4, len(whole), len(whole) // 40), len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ProfileError, match=r"part\.ncu-rep: not a complete report"):
            ncu.read_kernels(path)


def test_a_damaged_report_that_ends_nvidias_reader_does_not_end_us(reports: Path, tmp_path: Path) -> None:
    chance, content = random.Random(0), bytearray((reports / NAMES[0]).read_bytes())
    for _ in range(chance.randint(1, 200)):
        content[chance.randrange(4, len(content))] = chance.randrange(256)
    path = tmp_path / "odd.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=r"odd\.ncu-rep: (?:damaged|not a complete report)"):
        ncu.read_kernels(path)


def test_what_is_no_report_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"missing\.ncu-rep: cannot be read: No such file"):
        ncu.read_kernels(tmp_path / "missing.ncu-rep")


class _Metric:
    def __init__(self, value: float) -> None:
        self.as_double = lambda: float(value)


class _Kernel:
    """A kernel with just these metrics, as reports of other chips and sections have them."""

    def __init__(self, **metrics: Any) -> None:
        self._metrics = {name.replace("___", "."): value for name, value in metrics.items()}

    def name(self) -> str:
        return "ampere_bf16_s16816gemm_bf16_128x64"

    def metric_names(self) -> list[str]:
        return list(self._metrics)

    def metric_by_name(self, name: str) -> _Metric | None:
        value = self._metrics.get(name)
        return None if value is None else _Metric(value)


def test_what_is_missing_is_nan_and_never_zero() -> None:
    row = ncu._row(_Kernel(gpu__time_duration___sum=2000))
    assert row["duration_ns"] == 2000 and row["kind"] == "GEMM" and row["device"] == ""
    missing = [name for name in ncu.COLUMNS if name not in ("name", "kind", "device", "duration_ns", "precision")]
    assert all(math.isnan(row[name]) for name in missing) and row["precision"] == ""


TIME = {"smsp__cycles_elapsed___avg___per_second": 1e9, "gpu__time_duration___sum": 500}
FP32 = TIME | {
    f"smsp__sass_thread_inst_executed_op_{name}_pred_on___sum___per_cycle_elapsed": 2
    for name in ("fadd", "fmul", "ffma")
}
BUSY = "sm__pipe_tensor_cycles_active___avg___pct_of_peak_sustained_active"


@pytest.mark.parametrize(
    ("counted", "precision"),
    [
        ({"tf32_dst_fp32": 9000, "bf16_dst_fp32": 8000}, "tf32"),
        ({"tf32_dst_fp32": 9000, "fp16_dst_fp32": 8000, "fp16_dst_fp16": 2000}, "fp16"),
        ({"fp64": 9000}, "fp64"),
        ({"fp4_dst_fp32": 9000}, "fp4"),
        ({"bf16_dst_fp32": 10, "tf32_dst_fp32_sparsity_on": 9000}, "fp32"),
    ],
)
def test_a_kernel_has_the_precision_of_most_of_its_operations_and_its_roof(counted: dict, precision: str) -> None:
    tensor = {f"sm__ops_path_tensor_src_{name}___sum": operations for name, operations in counted.items()}
    moved = {f"dram__bytes_{way}___sum": 0.01 for way in ("read", "write")}
    row = ncu._row(_Kernel(**FP32, **tensor, **moved))
    assert row["precision"] == precision
    [found] = roofline.points(pd.DataFrame([row | {"device": "NVIDIA A100-SXM4-40GB"}])).attainable
    roof = peaks.find_peak("A100 40GB").flops.get(precision, math.nan)
    assert found == pytest.approx(roof, nan_ok=True) and math.isnan(roof) == (precision == "fp4")


def test_operations_count_where_the_chip_counts_them() -> None:
    tensor = {
        BUSY: 50,
        "sm__ops_path_tensor_src_bf16_dst_fp32___sum": 4096,
        "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off___sum": 4096,
        "sm__ops_path_tensor_src_fp16_dst_fp32___sum": 1024,
    }
    row = ncu._row(_Kernel(**FP32, **tensor))
    assert (row["tensor_share"], row["flops_fp32"], row["flops_tensor"], row["flops"]) == (0.5, 4000, 5120, 9120)
    half = ncu._row(_Kernel(**{name.replace("_op_f", "_op_h"): value for name, value in FP32.items()}))
    assert half["flops_fp16"] == 2 * 4000, "instructions of half precision work on pairs"
    assert math.isnan(half["flops_fp32"])


@pytest.mark.parametrize(("busy", "flops"), [(0, 4000.0), (30, math.nan)])
def test_a_busy_tensor_pipe_without_counters_leaves_operations_unknown(busy: float, flops: float) -> None:
    row = ncu._row(_Kernel(**FP32, **{BUSY: busy}))
    assert row["tensor_share"] == busy / 100
    assert row["flops"] == pytest.approx(flops, nan_ok=True)
