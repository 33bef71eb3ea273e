"""Traces of torch.profiler as timelines: the same moments as event by event, and every fault reported."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpc_utils.analyze.profiles import phases
from hpc_utils.analyze.profiles import torch_trace as trace
from hpc_utils.analyze.profiles.breakdown import breakdown
from hpc_utils.analyze.profiles.devices import Devices
from hpc_utils.analyze.profiles.readers import Reports
from hpc_utils.analyze.profiles.timeline import COMMUNICATION, COMPUTE, MEMORY, TO_DEVICE, TO_HOST, ProfileError

from . import torch_traces as made
from .timelines import named
from .torch_traces import event, kernel, write

EPOCH = 1_759_300_074  # s: a day in 2025


def one(path: Path, events, **head):
    """The only timeline of a handmade trace."""
    (found,) = trace.read_trace(write(path / "trace.json", made.trace(events, **head)))
    return found


def test_a_triton_operator_with_a_stream_is_no_work_of_the_device(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        [
            kernel("triton_poi_fused_add_0", 100, 10),
            event("cpu_op", "triton_poi_fused_add_0", 50, 30, pid=1, tid=1, stream=0, device=0),
            event("gpu_user_annotation", "ProfilerStep#1", 0, 900, stream=7, device=0),
            event("user_annotation", "ProfilerStep#1", 0, 500, pid=1, tid=1),
        ],
    )
    assert (found.ops.start.tolist(), found.ops.end.tolist()) == ([100_000], [110_000])
    assert found.ranges.names == ("ProfilerStep#1",) and len(found.ranges) == 1


def test_the_loop_does_not_wait_for_a_thread_that_prefetches(tmp_path: Path) -> None:
    def mark(name: str, ts: int, dur: int, thread: int) -> dict:
        return event("user_annotation", name, ts, dur, pid=1, tid=thread)

    work, loop = [kernel("gemm", 0, 10), kernel("gemm", 90, 10)], [mark("step", 0, 100, 1), mark("data", 10, 20, 1)]
    prefetching = [mark("load_batch", 30, 60, 2), mark("other", 0, 100, 2)]
    assert breakdown(one(tmp_path, work + loop + prefetching))["loader_wait_ns"] == 20_000
    assert breakdown(one(tmp_path, work + loop[:1] + prefetching))["loader_wait_ns"] is None
    # No thread is known to train.
    assert breakdown(one(tmp_path, work + prefetching))["loader_wait_ns"] == 60_000


@pytest.mark.parametrize(
    ("base", "ts", "dur", "start"),
    [
        # Kineto since 2024: us with three decimals since a base
        (EPOCH * 10**9, 6322354292627.937, 72.927, EPOCH * 10**9 + 6322354292627937),
        # before PyTorch 2: whole us
        (0, int(f"{EPOCH}123457"), 3, EPOCH * 10**9 + 123457000),
        (0, 0.001, 12.5, 1),
    ],
)
def test_times_are_exact(tmp_path: Path, base, ts, dur, start) -> None:
    launch = event("cuda_runtime", "cudaLaunchKernel", ts, dur, correlation=5)
    found = one(tmp_path, [kernel("k", ts, dur, correlation=5), launch], baseTimeNanoseconds=base)
    assert (found.ops.start.tolist(), found.ops.launched.tolist()) == ([start], [start])
    assert found.ops.end.tolist() == [start + int(dur * 1000)]
    assert found.aligned == (start > 10**18)


def test_kinds_streams_and_copies_are_distinguished(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        [
            kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 10, 5, stream=20),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long)", 20, 5, stream=20),
            kernel("void rcclDevKernel<1>(args)", 30, 5, stream=20),
            kernel("void at::native::(anonymous namespace)::cat<float, 4>(float*, int)", 11, 2),
            event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1, 2, device=0, stream=7),
            event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 3, 1, device=0, stream=7),
            event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 4, 1, device=0, stream=7),
            event("gpu_memcpy", "CopyHostToDevice", 6, 1, device=0, stream=7),
            event("gpu_memset", "Memset (Device)", 7, 1, device=0, stream=7),
        ],
    )
    ops = found.ops
    assert ops.kind.tolist() == [MEMORY] * 5 + [COMMUNICATION, COMPUTE, COMMUNICATION, COMMUNICATION]
    assert ops.copy.tolist()[:5] == [TO_DEVICE, TO_HOST, 0, TO_DEVICE, 0] and not any(ops.copy[5:])
    assert ops.pageable.tolist() == [1, 0] + [-1] * 7


def test_launches_are_found_by_correlation(tmp_path: Path) -> None:
    calls = ["cudaLaunchKernel", "hipExtModuleLaunchKernel", "cudaGraphLaunch"]
    found = one(
        tmp_path,
        [
            *(event("cuda_runtime", name, n, 1, pid=9, correlation=n) for n, name in enumerate(calls, 1)),
            *(kernel("k", 10 + place, 1, correlation=n) for place, n in enumerate((1, 2, 3, 3))),
            event("cuda_driver", "cuLaunchKernel", 1.5, 0.25, pid=9, correlation=1),  # inside cudaLaunchKernel
            kernel("launched before the window", 20, 1, correlation=77),
            kernel("without an id", 21, 1),
        ],
    )
    assert found.ops.launched.tolist() == [1000, 2000, 3000, 3000, -1, -1]


def test_the_kernels_of_a_replayed_graph_are_launched_together(tmp_path: Path) -> None:
    """Steps of 1000 us: the host fetches for 100 us, and starts one graph 150 us after the device ended the last one."""
    events = []
    for number in range(6):
        at = 1000 * number
        for name, length in (("step", 900), ("data", 100)):
            events.append(event("user_annotation", name, at, length, pid=1, tid=1))
        events.append(event("cuda_runtime", "cudaGraphLaunch", at + 150, 40, pid=1, tid=1, correlation=number + 1))
        events += [kernel("gemm", at + 200 + 20 * place, 15, correlation=number + 1) for place in range(40)]
    found = one(tmp_path, events)
    assert len(phases.steps(found.ranges)[0]) == 6
    assert np.unique(found.ops.launched).tolist() == [1_000_000 * number + 150_000 for number in range(6)]
    step = phases.phase_table([found]).set_index("phase").loc["step"]
    assert (step["count"], step["ops"], step["device_ns"]) == (6, 6 * 40, 6 * 40 * 15_000)
    part = breakdown(found)
    # From the first fetch to the last kernel's end. The fetch, then idle until the launch: both once a step, for no kernel in it.
    assert (part["span_ns"], part["busy_ns"]) == (5_995_000, 6 * 40 * 15_000)
    assert (part["loader_wait_ns"], part["launched_late_ns"]) == (6 * 100_000, 6 * 100_000 + 5 * 5_000)
    assert Devices(Reports([found])).replayed


def test_collectives_know_their_group_from_the_kernel_or_its_operator(tmp_path: Path) -> None:
    def launch(moment: int, correlation: int, thread: int = 1) -> dict:
        return event("cuda_runtime", "cudaLaunchKernelExC", moment, 1, pid=9, tid=thread, correlation=correlation)

    found = one(
        tmp_path,
        [
            kernel("ncclDevKernel_AllGather_RING_LL(x)", 10, 1, **{"Process Group Name": "2"}),
            *(kernel("ncclDevKernel_Broadcast_RING_LL(x)", 10 * n, 1, correlation=n) for n in (3, 4, 5)),
            launch(5, 3),
            launch(5, 4, thread=2),
            launch(8, 5),  # after the operator
            event("cpu_op", "record_param_comms", 4, 3, pid=9, tid=1, **{"Process Group Name": "0"}),
        ],
    )
    assert found.ops.groups == ("2", "0")
    assert found.ops.group.tolist() == [0, 1, -1, -1]


def test_each_device_of_a_process_has_a_timeline(tmp_path: Path) -> None:
    events = [kernel("a", 1, 1, device=1), kernel("b", 2, 1, device=0), kernel("c", 3, 1, device=1)]
    events.append(event("user_annotation", "step", 0, 9, pid=4, tid=4))
    names = [{"id": 0, "name": "AMD Instinct MI250X"}, {"id": 1, "name": "AMD Instinct MI250X"}]
    path = write(tmp_path / "t.json", made.trace(events, deviceProperties=names))
    first, second = trace.read_trace(path)
    assert (first.device, second.device) == (0, 1)
    assert (first.ops.start.tolist(), second.ops.start.tolist()) == ([2000], [1000, 3000])
    assert first.device_name == "AMD Instinct MI250X" and first.ranges is second.ranges


def test_what_is_missing_is_in_the_remarks(tmp_path: Path) -> None:
    assert trace.NO_RANGES in one(tmp_path, [kernel("a", 1, 1)]).remarks
    only_host = one(tmp_path, [event("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=1)])
    assert (only_host.ops, only_host.device) == (None, None) and trace.NO_KERNELS in only_host.remarks
    assert trace.NO_KERNELS not in one(tmp_path, [event("cpu_op", "aten::add", 1, 1)]).remarks


def test_what_kineto_writes_wrong_is_read_all_the_same(tmp_path: Path) -> None:
    text = json.dumps(made.trace([kernel("a", 1, 1), kernel("k: inf", 3, 1)]))
    text = text.replace('"stream": 7', '"stream": 7, "memory bandwidth (GB/s)": inf, "x": -nan', 1).encode()
    (found,) = trace.read_trace(write(tmp_path / "t.json", text.replace(b'"a"', b'"\xe4"')))
    assert found.ops.start.tolist() == [1000, 3000]


@pytest.mark.parametrize(
    "content",
    [
        "<html>404</html>",
        '{"traceEvents": [{"ph": "X", "cat": "xla", "name": "fusion", "ts": 1, "dur": 1}]}',
        made.trace([kernel("a", "soon", 1)]),
        made.trace([kernel("a", 1, 1)], distributedInfo={"rank": "first", "world_size": 2}),
        json.dumps(made.trace(kernel("k", n, 1) for n in range(200)))[:5000],
    ],
)
def test_a_file_that_is_no_complete_trace_is_refused(tmp_path: Path, content) -> None:
    path = write(tmp_path / "odd.json", content)
    with pytest.raises(ProfileError, match=rf"{path}.*no complete trace"):
        trace.read_trace(path)
    packed = gzip.compress(path.read_bytes())
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ProfileError, match=r"no complete trace|cannot be read"):
        trace.read_trace(tmp_path / "cut.json.gz")


def test_a_trace_that_torch_writes_here(tmp_path: Path) -> None:
    """A run on the CPU: its operators and gloo's collectives are the work, what the loader runs is not."""
    program = f"""
import torch, torch.distributed as dist
from torch.profiler import profile, record_function
from torch.utils.data import DataLoader
dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=0, world_size=1)
layer = torch.nn.Linear(8, 8)
steps = torch.optim.SGD(layer.parameters(), 0.1)
with profile() as found:
    for batch in DataLoader(torch.ones(4, 8), batch_size=2):
        with record_function("step"):
            with record_function("forward"):
                loss = layer(batch).sum()
            with record_function("backward"):
                loss.backward()
            dist.all_reduce(layer.weight.grad)
            steps.step()
found.export_chrome_trace("{tmp_path}/rank0.json.gz")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, capture_output=True)
    (found,) = trace.read_trace(tmp_path / "rank0.json.gz")
    assert (found.device, found.device_name, found.rank, found.world_size) == (None, "CPU", 0, 1)
    work = [found.ops.names[number] for number in found.ops.name]
    assert (work.count("gloo:all_reduce"), work.count("aten::linear"), work.count("AddmmBackward0")) == (2, 2, 2)
    assert "aten::addmm" not in work and "aten::stack" not in work, "inside another one, and the loader's"
    counts = {name: len(named(found.ranges, name)[0]) for name in found.ranges.names}
    assert (counts["step"], counts["forward"], counts["backward"], counts["Optimizer.step#SGD.step"]) == (2, 2, 2, 2)
    assert sum(count for name, count in counts.items() if name.startswith("enumerate(DataLoader)#")) == 3
    part = breakdown(found)
    assert 0 < part["compute_ns"] < part["busy_ns"] < part["span_ns"] and part["loader_wait_ns"] > 0


def test_a_hook_that_waits_is_no_work(tmp_path: Path) -> None:
    """FSDP's, in which gradients are reduced: only what it copies is."""
    events = [
        event("cpu_op", "RegisterPostBackwardFunctionBackward", 1, 100, pid=1, tid=1),
        event("cpu_op", "fsdp::chunk_cat", 10, 5, pid=1, tid=1),
        event("user_annotation", "gloo:all_reduce", 20, 60, pid=1, tid=2),
    ]
    part = breakdown(one(tmp_path, events))
    assert (part["compute_ns"], part["exposed_communication_ns"]) == (5_000, 60_000)
