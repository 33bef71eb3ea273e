"""Peaks of GPUs, the roofline, and model FLOPs utilisation."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from hpc_utils.analyze.profiles import peaks, roofline

from ..runs import repeated


@pytest.mark.parametrize(
    ("device", "name", "bf16", "bandwidth"),
    [
        ("Tesla V100-SXM2-16GB", "V100 SXM", None, 900),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB", 312, 1555),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 989.4, 3350),
        ("AMD Instinct MI250X", "MI250X, one GCD", 191.5, 1638.4),
    ],
)
def test_a_gpu_is_found_by_the_name_that_its_driver_gives(device, name, bf16, bandwidth) -> None:
    found = peaks.find_peak(device)
    assert (found.name, found.bandwidth) == (name, bandwidth * 1e9)
    assert found.flops.get("bf16") == (bf16 and bf16 * 1e12)
    assert peaks.find_peak(name).name == name


def test_another_gpu_is_not_guessed() -> None:
    others = ["", "A100", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "GeForce RTX 4090", "H100 96GB"]
    assert [peaks.find_peak(device) for device in others] == [None] * len(others)


def test_each_gpu_has_its_document_and_faster_narrower_precisions() -> None:
    for one in peaks.read_peaks():
        assert "https://" in one.source and one.bandwidth > 0
        dense = [one.flops[precision] for precision in ("fp32", "tf32", "bf16", "fp8") if precision in one.flops]
        assert one.flops["fp16"] >= one.flops["fp32"] > 0 and dense == sorted(dense)


def test_the_roofline_is_the_lower_of_both_limits() -> None:
    peak = peaks.find_peak("NVIDIA A100-SXM4-40GB")
    ridge = 312e12 / 1555e9
    found = roofline.attainable(peak, "bf16", np.array([ridge / 2, 2 * ridge]))
    assert found.tolist() == pytest.approx([156e12, 312e12])


A100 = {"device": "cuda", "device_name": "NVIDIA A100-SXM4-80GB", "precision": "bf16"}
RESNET50 = 3 * 2 * 4.09e9  # 4.09e9 multiply-adds forward, twice that backward


def test_mfu_of_a_model_that_is_known() -> None:
    def images(rate: float, world: int) -> list[dict]:
        return repeated(world, 5120 / rate, flops_per_sample=RESNET50, **A100)

    found = roofline.attained(pd.DataFrame(images(2500, 1) + images(20000, 8)))
    assert found.layout.tolist() == ["1x1", "1x8"]
    assert found.flops_per_second.tolist() == pytest.approx([RESNET50 * 2500] * 2, rel=1e-3)
    assert found.mfu.tolist() == pytest.approx([RESNET50 * 2500 / 312e12] * 2, rel=1e-3)
    assert (found.mfu_low < found.mfu).all() and (found.mfu < found.mfu_high).all()


def test_without_a_peak_there_are_operations_but_no_share_and_profiled_runs_attain_nothing() -> None:
    known = {"flops_per_sample": 1e9, "device_name": "Tesla T4", "precision": "bf16"}
    rows = repeated(1, 2.0, **known) + repeated(1, 2.0, **known | {"device_name": "AMD EPYC 7763"})
    left_out = [{"flops_per_sample": None}, {"profile": "nsys"}]
    found = roofline.attained(
        pd.DataFrame(rows + [row for one in left_out for row in repeated(1, 2.0, **A100 | known | one)])
    )
    assert sorted(found.device_name) == ["AMD EPYC 7763", "Tesla T4"]
    assert found.flops_per_second.tolist() == pytest.approx([2560e9] * 2, rel=1e-3)
    assert found.peak.isna().all() and found.mfu.isna().all()


def test_points_are_kernels_of_which_operations_and_bytes_are_known() -> None:
    common = {"kind": "GEMM", "device": "NVIDIA A100-SXM4-40GB", "duration_ns": 1e6, "precision": "fp32"}
    frame = pd.DataFrame(
        [
            common | {"name": "fp32", "flops": 1.555e9, "dram_bytes": 1.555e8},
            common | {"name": "tensor", "precision": "tf32", "flops": 1.5e11, "dram_bytes": 1e8},
            common | {"name": "no operations", "flops": 0.0, "dram_bytes": 1e8},
            common | {"name": "no bytes", "flops": 5.0, "dram_bytes": math.nan},
        ]
    )  # fmt: skip
    found = roofline.points(frame).set_index("name")
    assert list(found.index) == ["fp32", "tensor"]
    assert found.precision.tolist() == ["fp32", "tf32"]
    assert found.intensity.tolist() == [10.0, 1500.0]
    assert found.achieved.tolist() == pytest.approx([1.555e12, 1.5e14])
    assert found.attainable.tolist() == pytest.approx([1.555e13, 1.56e14])
    assert found.share.tolist() == pytest.approx([0.1, 150 / 156])
    assert roofline.points(frame.assign(device="unheard of")).share.isna().all()


def test_a_roof_is_that_of_the_fastest_precision_that_was_used():
    points = pd.DataFrame(
        [
            {"device": "NVIDIA A100-SXM4-40GB", "precision": "fp32", "attainable": 1e12},
            {"device": "NVIDIA A100-SXM4-40GB", "precision": "fp64", "attainable": 1e12},
            {"device": "NVIDIA RTX A2000", "precision": "fp32", "attainable": math.nan},
        ]
    )
    assert roofline.roofs(points) == {"NVIDIA A100-SXM4-40GB": 19.5e12}


def test_a_gpu_s_bandwidth_follows_from_its_counters_or_from_the_table():
    kernels = pd.DataFrame(
        [
            {"device": "NVIDIA RTX A2000", "dram_bytes": 100.0, "duration_ns": 1.0, "dram_share": 0.5},
            {"device": "NVIDIA H100 80GB HBM3", "dram_bytes": 0.0, "duration_ns": 1.0, "dram_share": 0.0},
            {"device": "unheard of", "dram_bytes": 0.0, "duration_ns": 1.0, "dram_share": float("nan")},
        ]
    )
    found = roofline.bandwidths(kernels)
    assert found == {"NVIDIA RTX A2000": 200e9, "NVIDIA H100 80GB HBM3": peaks.find_peak("H100 80GB HBM3").bandwidth}
