"""Verdicts on traces of kinds that were once judged wrongly: made here, and the same kinds beside the project where they are."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.analyze.profiles.judge import SAME_TIME, judge
from hpc_utils.analyze.profiles.readers import gather
from hpc_utils.analyze.profiles.verdict import Bound, Verdict

from .torch_traces import event, trace, trained, write

_CASES = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared") / "cases"
GEMM = "ampere_sgemm_128x128_nt"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def case(pattern: str) -> Verdict:
    files = sorted(_CASES.glob(pattern))
    if not files:
        pytest.skip(f"no cases beside the project at {_CASES} (set HPC_DATA_MIRROR)")
    return judge(gather(files))


def actions(verdict: Verdict) -> str:
    return "\n".join(proposal.action for proposal in verdict.advice)


@pytest.mark.parametrize(
    "source",
    [
        {"Collective name": "all_to_allv"},
        {"inside": [("cpu_op", "record_param_comms", {"Collective name": "all_to_all"})]},
        {"inside": [("user_annotation", "nccl:all_to_all", {})]},
        {"inside": [("user_annotation", "moe.AllToAll4D", {})]},
    ],
    ids=["kernel", "operator", "range", "program"],
)
def test_an_all_to_all_of_sends_and_receives_waits_for_its_late_rank(tmp_path: Path, source: dict) -> None:
    files = [
        trained(
            tmp_path / f"rank{rank}.json",
            [(GEMM, 20, work), (SEND_RECV, 40 + work, 19_900 - work, source)],
            rank=rank,
            ranks=2,
        )
        for rank, work in enumerate((9_000, 18_000))
    ]
    found = judge(gather(files))
    assert found.bound == Bound.STRAGGLER
    assert "rank 1" in found.reason and "by 9 ms" in found.reason


def test_sends_and_receives_of_a_pipeline_stay_the_wires(tmp_path: Path) -> None:
    """Their waiting is the schedule's."""
    source = {"Collective name": "coalesced", "inside": [("user_annotation", "nccl:coalesced", {})]}
    files = [
        trained(
            tmp_path / f"rank{rank}.json", [(GEMM, 20, work), (SEND_RECV, 40 + work, 19_900 - work, source)], rank=rank, ranks=2
        )
        for rank, work in enumerate((9_000, 18_000))
    ]  # fmt: skip
    assert judge(gather(files)).bound == Bound.COMMUNICATION


def test_the_all_to_all_beside_the_project() -> None:
    found = case("all_to_all_rank*.json")
    assert found.bound == Bound.STRAGGLER and "rank 1" in found.reason


def paused(path: Path, *around: tuple[str, str]) -> Path:
    """Steps of 20 ms: 40 kernels of 100 us, launched in a row after 12 ms in which the host does something else."""
    kernels = [(GEMM, 12_000 + 110 * n, 100, {"launch": 11_990 + 110 * n}) for n in range(40)]
    trained(path, kernels)
    content = json.loads(path.read_text())
    for step in range(6):
        for category, name in around:
            content["traceEvents"].append(event(category, name, step * 20_000 + 100, 11_800, pid=9, tid=9))
    return write(path, content)


@pytest.mark.parametrize(
    ("around", "named"),
    [
        ((), "mark what the host does"),
        (
            (
                ("python_function", "train.py(3): main"),
                ("python_function", "decode.py(12): decode"),
                ("python_function", "torch/nn/modules/module.py(1501): _call_impl"),
                ("python_function", "threading.py(323): wait"),
                ("python_function", "<built-in method sleep of lock object at 0x7f3a>"),
            ),
            "<built-in method sleep of lock> in decode.py(12): decode",
        ),
        ((("user_annotation", "tokenize"),), "tokenize"),
        ((("cpu_op", "aten::nonzero"),), "aten::nonzero"),
        ((("user_annotation", "tokenize"), ("cpu_op", "aten::nonzero")), "aten::nonzero in tokenize,"),
    ],
)
def test_one_long_gap_a_step_is_no_launch(tmp_path: Path, around: tuple, named: str) -> None:
    found = judge(gather([paused(tmp_path / "trace.json", *around)]))
    assert found.bound == Bound.HOST
    assert named in found.advice[0].action
    assert found.advice[0].at_most == pytest.approx(1 / (1 - (12_000 + 5 * 15_610) / 116_390), rel=1e-3)
    assert "compile" not in actions(found) and "graph" not in actions(found)


def test_a_marked_loader_is_no_longer_suspected(tmp_path: Path) -> None:
    """Its idle time is counted apart, so the long gaps are not for it."""
    path = paused(tmp_path / "trace.json")
    unmarked = judge(gather([path]))
    content = json.loads(path.read_text())
    content["traceEvents"].append(event("user_annotation", "dataloader", 0, 2, pid=9, tid=9))
    marked = judge(gather([write(path, content)]))
    assert marked.bound == unmarked.bound == Bound.HOST
    assert "loader" in actions(unmarked) and "loader" not in actions(marked)


def test_the_unmarked_loader_beside_the_project() -> None:
    found = case("cpu_unmarked_loader.json.gz")
    assert found.bound == Bound.HOST and "mark" in found.advice[0].action


HALF_GEMM = "ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_nn"
FLASH = "flash_fwd_kernel<cutlass::bfloat16_t>"


def computed(path: Path, *shares: tuple) -> Verdict:
    """Steps of 20 ms in which each kernel takes its share."""
    parts, start = [], 0
    for name, share, *more in shares:
        parts.append((name, start, int(20_000 * share), *more))
        start += int(20_000 * share)
    return judge(gather([trained(path, parts)]))


@pytest.mark.parametrize(
    "kernel", [HALF_GEMM, "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", FLASH]
)
def test_kernels_in_16_bits_are_not_told_to_use_16_bits(tmp_path: Path, kernel: str) -> None:
    found = computed(tmp_path / "trace.json", (kernel, 0.9), ("triton_mm", 0.1))
    assert found.bound == Bound.COMPUTE
    assert "autocast" not in actions(found)


def test_16_bits_save_at_most_what_is_in_fp32_and_tf32(tmp_path: Path) -> None:
    """An A100's peaks: fp32 19.5, tf32 156, 16 bits 312 TFLOP/s."""
    tf32 = "sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n_tilesize128x128x32"
    found = computed(tmp_path / "trace.json", (HALF_GEMM, 0.6), (GEMM, 0.2), (tf32, 0.2))
    [advised] = [proposal for proposal in found.advice if "autocast" in proposal.action]
    assert advised.at_most == pytest.approx(1 / (1 - 0.2 * 15 / 16 - 0.2 / 2), rel=1e-3)


def test_a_name_without_a_precision_has_that_of_its_operators_types(tmp_path: Path) -> None:
    types = {"Input type": ["c10::BFloat16", "c10::BFloat16"], "External id": 7}
    typed = ("triton_mm", 1.0, {"inside": [("cpu_op", "aten::mm", types)], "External id": 7})
    found = computed(tmp_path / "trace.json", typed)
    assert "autocast" not in actions(found)
    assert "autocast" in actions(computed(tmp_path / "untyped.json", ("triton_mm", 1.0)))


def test_a_mixed_run_that_moves_bytes_is_not_told_to_use_autocast(tmp_path: Path) -> None:
    few = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<c10::Half>>"
    found = computed(tmp_path / "trace.json", (few, 0.6), (HALF_GEMM, 0.4))
    assert found.bound == Bound.MEMORY
    assert "autocast" not in actions(found)


def test_the_half_precision_beside_the_project() -> None:
    assert "autocast" not in actions(case("half_precision_gemm.json"))


def sent(tmp_path: Path, *names: str) -> Verdict:
    """Two ranks that compute 12 of 20 ms in fp32, then send for 4 ms with each kernel."""
    parts = [(GEMM, 0, 12_000), *((name, 12_000 + 4_000 * n, 4_000) for n, name in enumerate(names))]
    return judge(gather([trained(tmp_path / f"rank{rank}.json", parts, rank=rank, ranks=2) for rank in (0, 1)]))


SHARDED = ("ncclDevKernel_AllGather_RING_LL(x)", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)")


@pytest.mark.parametrize(
    ("kernels", "helping", "saved"),
    [
        (SHARDED, ["prefetch", "hybrid"], [0.4, 0.4]),
        (["ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"] * 2, ["buckets", "16 bits", "no_sync"], [0.4, 0.2, 0.2]),
        (["ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"] * 2, ["buckets", "no_sync"], [0.4, 0.2]),
        (["nccl:all_to_all"] * 2, ["overlap", "experts"], [0.4, 0.4]),
        (
            ["ncclDevKernel_Broadcast_RING_LL(x)", SHARDED[0]],
            ["prefetch", "hybrid", "plain DDP"],
            [0.2, 0.2, 0.2],
        ),
    ],
    ids=["fsdp", "ddp", "ddp-bf16", "experts", "zero1"],
)
def test_each_kind_of_collective_has_its_own_advice(tmp_path: Path, kernels, helping, saved) -> None:
    found = sent(tmp_path, *kernels)
    assert found.bound == Bound.COMMUNICATION
    by_action = {word: proposal for word in helping for proposal in found.advice if word in proposal.action}
    assert list(by_action) == helping and len(found.advice) == len(helping)
    expected = [1 / (1 - share) for share in saved]
    assert [by_action[word].at_most for word in helping] == pytest.approx(expected, rel=1e-3)


RCCL = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("source", "narrow"),
    [
        ({"Collective name": "allreduce", "dtype": "BFloat16"}, True),
        ({"inside": [("user_annotation", "nccl:all_reduce", {})]}, False),
    ],
)
def test_a_generic_kernel_is_the_collective_that_launched_it(tmp_path: Path, source: dict, narrow: bool) -> None:
    parts = [(GEMM, 0, 12_000), (RCCL, 12_000, 8_000, source)]
    found = judge(gather([trained(tmp_path / f"rank{rank}.json", parts, rank=rank, ranks=2) for rank in (0, 1)]))
    assert found.bound == Bound.COMMUNICATION
    assert "buckets" in actions(found) and ("16 bits" in actions(found)) != narrow


def test_a_second_all_gather_costs_at_most_what_is_exposed_of_all_gathers(tmp_path: Path) -> None:
    """One alone is not gathered again, so there is nothing to keep."""
    gather_ns, reduce_ns = ((name, 4_000) for name in SHARDED)
    saved = []
    for kernels in ((gather_ns, reduce_ns), (gather_ns, gather_ns, reduce_ns)):
        parts = [(GEMM, 0, 8_000), *((name, 8_000 + 4_000 * n, length) for n, (name, length) in enumerate(kernels))]
        ranks = [trained(tmp_path / f"rank{rank}.json", parts, rank=rank, ranks=2) for rank in (0, 1)]
        saved.append([item.at_most for item in judge(gather(ranks)).advice if "reshard_after" in item.action])
    assert saved == [[], [pytest.approx(1 / (1 - 0.4), rel=1e-3)]]


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def test_hiding_saves_at_most_what_is_computed_beside_nothing(tmp_path: Path) -> None:
    parts = [(GEMM, 0, 4_000), (ALL_REDUCE, 3_000, 13_000)]
    ranks = [trained(tmp_path / f"rank{rank}.json", parts, rank=rank, ranks=2, length=16_000) for rank in (0, 1)]
    [hidden] = [item.at_most for item in judge(gather(ranks)).advice if "hide" in item.action]
    assert hidden == pytest.approx(1 / (1 - 3 / 16), rel=0.01)


def test_gradients_that_are_sent_one_by_one_are_to_be_joined(tmp_path: Path) -> None:
    """Each step computes 12 of 20 ms, then reduces 140 times for 45 us, 55 us apart."""
    parts = [(GEMM, 0, 12_000), *((ALL_REDUCE, 12_000 + 55 * n, 45) for n in range(140))]
    ranks = [trained(tmp_path / f"rank{rank}.json", parts, rank=rank, ranks=2) for rank in (0, 1)]
    found = judge(gather(ranks))
    assert found.bound == Bound.COMMUNICATION and "buckets" in found.advice[0].action
    assert "140 all-reduces" in found.advice[0].action and "bucket_mb" not in actions(found)


def test_brief_all_reduces_beside_long_buckets_are_not_what_to_join(tmp_path: Path) -> None:
    parts = [(GEMM, 0, 12_000), *((ALL_REDUCE, 12_000 + 50 * n, 45) for n in range(60))]
    parts += [(ALL_REDUCE, 15_000, 2_500), (ALL_REDUCE, 17_500, 2_500)]
    ranks = [trained(tmp_path / f"rank{rank}.json", parts, rank=rank, ranks=2) for rank in (0, 1)]
    found = judge(gather(ranks))
    assert "bucket_mb" in actions(found) and "all-reduces a step" not in actions(found)


@pytest.mark.parametrize(
    ("forward", "fewer", "words", "absent"),
    [
        ((), 1 / 2, "no_sync", "tensor"),
        (("compute",), 3 / 4, "no_sync", "tensor"),
        (("compute", "send"), 1, "fewer GPUs", "bucket"),
    ],
    ids=["gradients", "accumulated", "activations"],
)
def test_what_forward_passes_launch_tells_what_is_reduced(tmp_path: Path, forward, fewer, words, absent) -> None:
    """Four times a step, 2 of 4 ms are computed and 2 are reduced."""
    mark = {"inside": [("user_annotation", "forward", {})]}
    parts = []
    for start in range(0, 16_000, 4_000):
        parts.append((GEMM, start, 2_000, {"launch": start + 10} | (mark if "compute" in forward else {})))
        parts.append((ALL_REDUCE, start + 2_000, 2_000, {"launch": start + 20} | (mark if "send" in forward else {})))
    ranks = [trained(tmp_path / f"rank{rank}.json", parts, rank=rank, ranks=2, length=16_000) for rank in (0, 1)]
    found = judge(gather(ranks))
    [saved] = [item.at_most for item in found.advice if words in item.action]
    assert saved == pytest.approx(1 / (1 - fewer / 2), rel=0.01)
    assert absent not in actions(found)
    for rank in ranks:
        rank.write_text(rank.read_text().replace("ProfilerStep#", "part of "))
    assert re.findall(r"of (\d+) batches", actions(judge(gather(ranks)))) in ([], ["2"]), "no count without steps"


def test_a_range_between_steps_is_named_and_no_loader(tmp_path: Path) -> None:
    path = trained(tmp_path / "trace.json", [(GEMM, 20, 9_000)])
    content = json.loads(path.read_text())
    steps = [item for item in content["traceEvents"] if item["name"].startswith("ProfilerStep")]
    for step in steps:
        step["dur"] = 10_000
    assert judge(gather([write(path, content)])).bound == Bound.INPUT
    saves = [event("user_annotation", "save", step["ts"] + 10_100, 9_800, pid=9, tid=9) for step in steps]
    epoch = event("user_annotation", "epoch 1", 0, 120_000, pid=9, tid=9)
    content["traceEvents"] += [*saves, epoch]
    found = judge(gather([write(path, content)]))
    assert found.bound == Bound.HOST and "save" in found.advice[0].action
    content["traceEvents"] = [item for item in content["traceEvents"] if item not in saves]
    assert judge(gather([write(path, content)])).bound == Bound.INPUT


@pytest.mark.parametrize("share", [0.95, 0.4])
def test_tf32_is_tried_first_where_it_may_double_the_throughput(tmp_path: Path, share: float) -> None:
    found = computed(tmp_path / "trace.json", (GEMM, share), (HALF_GEMM, 1 - share))
    tries = [proposal.action for proposal in found.advice]
    [tf32, autocast] = (next(n for n, action in enumerate(tries) if word in action) for word in ("TF32", "autocast"))
    assert (tf32 < autocast) == (share > 0.5)


@pytest.mark.parametrize(
    "names",
    [
        ["triton_poi_fused_add_gelu_3", "triton_per_fused_native_layer_norm_5"],
        ["EmbeddingBag_updateOutputKernel_sum_mean<long, float>", "compute_grad_weight_bags<float, long>"],
    ],
    ids=["compiled", "embeddings"],
)
def test_what_is_fused_or_cannot_be_is_not_told_to_be_fused(tmp_path: Path, names: list[str]) -> None:
    found = computed(tmp_path / "trace.json", *((name, 0.4) for name in names), (HALF_GEMM, 0.2))
    assert found.bound == Bound.MEMORY
    assert "fuse kernels" not in actions(found)


def test_one_rank_of_several_is_told_first_to_give_them_all(tmp_path: Path) -> None:
    alone = judge(
        gather([trained(tmp_path / "one.json", [(GEMM, 0, 9_000), ("nccl:all_to_all", 9_000, 9_000)], ranks=2)])
    )
    assert alone.bound == Bound.COMMUNICATION and "all ranks" in alone.advice[0].action
    assert "all ranks" not in actions(sent(tmp_path, "nccl:all_to_all", "nccl:all_to_all"))


SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, {}, false>(float*, int)"


def test_attention_in_parts_is_told_to_be_fused_and_a_softmax_of_a_loss_is_not(tmp_path: Path) -> None:
    dropout = "void at::native::fused_dropout_kernel_vec<float>"
    for share in (0.2, 0.7):  # computing, or moving bytes
        parts = ((HALF_GEMM, 0.9 - share), (SOFTMAX.format("false"), share), (dropout, 0.1))
        found = computed(tmp_path / "parts.json", *parts)
        [fused] = [item for item in found.advice if "scaled_dot_product_attention" in item.action]
        assert fused.at_most == pytest.approx(1 / (1 - share - 0.1), rel=1e-3)
        loss = computed(
            tmp_path / "loss.json", (HALF_GEMM, 0.9 - share), (SOFTMAX.format("true"), share), (dropout, 0.1)
        )
        assert "scaled_dot_product" not in actions(loss)


def test_late_launches_beside_matrices_in_fp32_are_told_of_16_bits(tmp_path: Path) -> None:
    """Half of each 100 us in a GEMM: an A100 does it 16 times as fast in 16 bits."""
    parts = [(GEMM, 100 * n, 50, {"launch": 100 * n - 5}) for n in range(200)]
    found = judge(gather([trained(tmp_path / "trace.json", parts)]))
    assert found.bound == Bound.LAUNCH
    [advised] = [item for item in found.advice if "16-bit" in item.action]
    assert advised.at_most == pytest.approx(1 / (1 - 0.5 * 15 / 16), rel=2e-2)


def test_the_sharded_training_beside_the_project() -> None:
    found = case("fsdp_rank*.json")
    assert found.bound == Bound.COMMUNICATION and "prefetch" in found.advice[0].action
    assert not any(word in actions(found) for word in ("bucket", "hook", "no_sync"))


def launched(path: Path, *phases: tuple[str, int, int], kernel: str = HALF_GEMM) -> Verdict:
    """Steps of 20 ms: a kernel of 20 us every 100 us, launched 5 us before it starts."""
    trained(path, [(kernel, 100 * n, 20, {"launch": 100 * n - 5}) for n in range(200)])
    content = json.loads(path.read_text())
    for step in range(6):
        for name, start, length in phases:
            content["traceEvents"].append(event("user_annotation", name, step * 20_000 + start, length, pid=9, tid=9))
    return judge(gather([write(path, content)]))


def test_a_try_is_bounded_by_its_phase_and_the_largest_is_first(tmp_path: Path) -> None:
    phases = (("Optimizer.zero_grad#SGD.zero_grad", 0, 5_000), ("Optimizer.step#SGD.step", 15_000, 2_000))
    found = launched(tmp_path / "trace.json", *phases)
    assert found.bound == Bound.LAUNCH
    saved = {proposal.action.partition(" ")[0]: 1 - 1 / proposal.at_most for proposal in found.advice}
    assert saved["zero_grad(set_to_none=True):"] == pytest.approx(0.2, abs=2e-3)
    assert saved["torch.compile:"] == pytest.approx(0.8 * 13 / 20, abs=2e-3)
    assert list(saved.values()) == sorted(saved.values(), reverse=True)
    compiled = launched(tmp_path / "trace.json", *phases, kernel="triton_poi_fused_add_relu_1")
    assert compiled.bound == Bound.LAUNCH and "torch.compile" not in actions(compiled)
    fused = launched(tmp_path / "trace.json", phases[1])
    [advised] = [proposal for proposal in fused.advice if "fused" in proposal.action]
    assert 1 - 1 / advised.at_most == pytest.approx(0.08, abs=2e-3)
    assert "fused" not in actions(launched(tmp_path / "trace.json"))


def test_tries_that_save_the_same_time_say_so(tmp_path: Path) -> None:
    assert SAME_TIME in sent(tmp_path, *SHARDED).remarks
    assert SAME_TIME not in computed(tmp_path / "trace.json", (HALF_GEMM, 1.0)).remarks


def test_unknown_kernels_cast_doubt(tmp_path: Path) -> None:
    certain = computed(tmp_path / "known.json", (HALF_GEMM, 1.0))
    unsure = computed(tmp_path / "unknown.json", ("frobnicate<int>", 0.6), (HALF_GEMM, 0.4))
    assert unsure.confidence < certain.confidence and "60%" in unsure.reason


def on_host(path: Path, *more: dict, operator: str = "aten::addmm") -> Verdict:
    """Steps of 20 ms with twelve operators on a machine with a GPU."""
    events = [event("user_annotation", f"ProfilerStep#{n}", n * 20_000, 20_000, pid=9, tid=9) for n in range(6)]
    events += [event("cpu_op", operator, 1_600 * n + n // 12 * 800, 1_590, pid=9, tid=9) for n in range(72)]
    head = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]}
    return judge(gather([write(path, trace([*events, *more], **head))]))


def test_operators_decide_where_nothing_was_launched(tmp_path: Path) -> None:
    counted = event("cuda_runtime", "cudaGetDeviceCount", 5, 1, pid=9, tid=9)
    lstm = event("cpu_op", "aten::cudnn_is_acceptable", 5, 1, pid=9, tid=9)
    for more in ([], [counted], [lstm]):
        found = on_host(tmp_path / "trace.json", *more)
        assert found.bound == Bound.COMPUTE and found.confidence > 0.4


@pytest.mark.parametrize(
    "given",
    [
        [event("cuda_runtime", "cudaLaunchKernel", 5, 1, pid=9, tid=9, correlation=3)],
        [event("cpu_op", "aten::cudnn_convolution", 5, 1, pid=9, tid=9)],
        [event("user_annotation", "nccl:all_to_all", 5, 1, pid=9, tid=9)],
        [event("mtia_runtime", "runFunction - job_prep_and_submit_for_execution", 5, 1, pid=9, tid=9)],
    ],
)
def test_a_launch_without_a_kernel_was_recorded_without_cuda(tmp_path: Path, given: list) -> None:
    found = on_host(tmp_path / "trace.json", *given)
    assert found.bound == Bound.NOT_ENOUGH and "CUDA activity" in found.reason
    assert "CUDA" in found.advice[0].action


def test_the_cpu_run_beside_the_project() -> None:
    assert case("cpu_run_gpu_visible.json").bound == Bound.COMPUTE
