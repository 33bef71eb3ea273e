"""Cores, threads and the process group of one process; `test_two_ranks` has those of several."""

from __future__ import annotations

import mmap
import os

import psutil
import pytest
import torch

from hpc_utils import device_share, provenance
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.provenance import core_groups
from hpc_utils.train import memory, train
from hpc_utils.train.ranks import Ranks, _cores, setup

from .support import BRIEF

pins = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins nothing")
shares = pytest.mark.skipif(bool(device_share.unavailable()), reason=device_share.unavailable())
CPU = {"device": "cpu"}


@pytest.fixture(autouse=True)
def alone(results) -> None:
    """Nobody launched this process."""


@pins
@pytest.mark.parametrize("parallel", ["none", "ddp"])
def test_a_rank_has_its_cores_inside_and_gives_them_back(parallel: str) -> None:
    """The fixture `unchanged` looks too."""

    def cores_of_threads() -> set[tuple[int, ...]]:
        return {tuple(sorted(os.sched_getaffinity(int(task)))) for task in os.listdir("/proc/self/task")}

    before = os.sched_getaffinity(0)
    torch.ones(400, 400) @ torch.ones(400, 400)  # OpenMP's threads are there before they are pinned
    config = RunConfig(parallel=parallel, threads_per_rank=1, **CPU)
    with pytest.raises(RuntimeError, match="inside"), setup(config) as ranks:
        assert cores_of_threads() == {ranks.cores} and list(ranks.cores) == core_groups(allowed=before)[0]
        assert torch.get_num_threads() == ranks.threads == 1
        assert (ranks.rank, ranks.world_size, ranks.nodes) == (0, 1, 1)
        assert ranks.backend == ("gloo" if parallel == "ddp" else None)
        assert torch.distributed.is_initialized() == (parallel == "ddp")
        raise RuntimeError("inside")
    assert cores_of_threads() == {tuple(sorted(before))}


@pins
def test_local_ranks_share_out_the_cores_and_one_too_many_is_oversubscribed(monkeypatch) -> None:
    cores, taken = core_groups(), []
    for world in (len(cores), len(cores) + 1):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(world))
        for local_rank in range(world):
            monkeypatch.setenv("LOCAL_RANK", str(local_rank))
            with setup(RunConfig(parallel="none", threads_per_rank=1, **CPU)) as ranks:
                taken.append((list(ranks.cores), ranks.oversubscribed))
    assert taken == [(core, False) for core in cores] + [([], True)] * (len(cores) + 1)


@shares
def test_shares_go_round_the_cores_and_leave_a_tenth_of_them(monkeypatch) -> None:
    cores, taken = core_groups(), []
    for ranks_here, share in ((2 * len(cores), 0.4), (2 * len(cores), 0.46), (1, 0.9)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks_here))
        monkeypatch.setenv("LOCAL_RANK", str(ranks_here - 1))
        with setup(RunConfig(parallel="none", cores_per_rank=share, **CPU)) as ranks:
            taken.append((list(ranks.cores), ranks.oversubscribed, ranks.share.cores, ranks.threads))
    assert taken == [(cores[-1], False, 0.4, 1), ([], True, 0.46, 1), (cores[0], False, 0.9, 1)]


def test_a_node_of_a_rehearsal_has_no_more_than_its_own(monkeypatch) -> None:
    monkeypatch.setenv("HPC_NODE_CORES", "0.14")
    monkeypatch.setattr(provenance, "core_groups", lambda: [[0]])
    taken = {}
    # Seven nodes share a core: whole cores, then a share that is the node's own or, of those that compute, fits the core.
    for world, here, share in ((1, 1, None), (2, 1, None), (4, 1, 0.14), (8, 8, 0.11), (8, 4, 0.11), (14, 2, 0.11)):
        with _cores(RunConfig(cores_per_rank=share, **CPU), torch.device("cpu"), 0, here, world) as host:
            taken[world, here, share] = host["oversubscribed"]
    assert list(taken.values()) == [False, True, False, False, False, True]


@shares
def test_a_share_is_recorded_and_a_step_of_few_periods_refused() -> None:
    long = {"global_batch": 512, "steps_per_epoch": 3, "warmup_steps": 2, "parallel": "none", "device": "cpu"}
    tables = train(RunConfig(**BRIEF | long, cores_per_rank=0.1, share_period=0.02)).tables()
    run, rank = tables["run"], tables["ranks"].iloc[0]
    assert (run["threads_per_rank"], run["share_period"], run["oversubscribed"]) == (0.1, 0.02, False)
    assert 0 < rank.cpu_seconds < 1.3 * 0.1 * rank.seconds  # less, where other processes want the core
    assert 0 < run["throttled_seconds"] == rank.throttled_seconds < rank.seconds
    with pytest.raises(ConfigError, match=r"cores_per_rank=0\.1: a step takes"):
        train(RunConfig(**BRIEF | long | {"global_batch": 2}, cores_per_rank=0.1, share_period=0.02))


@pytest.mark.parametrize(
    ("world", "parallel", "why"), [(2, "none", "2 were started"), (3, "ddp", "does not divide over 3 ranks")]
)
def test_what_several_processes_cannot_do_is_refused_before_they_meet(
    monkeypatch, world: int, parallel: str, why: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(world))
    with pytest.raises(ConfigError, match=why):
        train(RunConfig(**BRIEF, parallel=parallel))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"device='cuda', but torch sees no GPU .*use device='auto'"):
        train(RunConfig(**BRIEF, device="cuda"))
    with setup(RunConfig(device="auto")) as ranks:
        assert (ranks.device.type, ranks.device_kind, bool(ranks.device_name)) == ("cpu", "cpu", True)


def test_a_process_with_graphs_is_told_by_their_memory(monkeypatch) -> None:
    pools = [(0, 0)]
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [{"segment_pool_id": pool} for pool in pools])
    gpu = Ranks(device=torch.device("cuda", 0))
    assert not gpu.has_graphs
    pools.append((0, 1))
    assert gpu.has_graphs and not Ranks().has_graphs


def test_the_level_of_memory_is_a_mean_and_a_mode_of_what_was_seen(monkeypatch) -> None:
    sizes = iter([300, 100.2, 99.8, 200, 200.3, 500])
    monkeypatch.setattr(memory, "_rss", lambda: int(next(sizes) * 2**20))
    meter = memory.MemoryMeter(torch.device("cpu"))
    for _ in range(4):
        meter.on_step(True)
    assert meter.columns()["mode_rss_bytes"] == 100 * 2**20
    resumed = memory.MemoryMeter(torch.device("cpu"))
    resumed.restore(meter.state())
    for _ in range(2):
        resumed.on_step(True)
    levels = resumed.columns()
    assert levels["mode_rss_bytes"] == 200 * 2**20, "of two equally common the larger"
    assert levels["mean_rss_bytes"] == pytest.approx(1400.3 / 6 * 2**20, abs=2)


def test_peak_and_level_of_memory_follow_what_is_touched() -> None:
    before, now = memory.peak(torch.device("cpu")), psutil.Process().memory_info().rss
    assert before["peak_rss_bytes"] >= 0.95 * now
    more = 100 * 2**20
    meter = memory.MemoryMeter(torch.device("cpu"))
    # Straight from the kernel: what other tests freed, glibc keeps (`memory.keep_freed`) and would give.
    with mmap.mmap(-1, before["peak_rss_bytes"] - now + more, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        for page in range(0, len(pages), mmap.PAGESIZE):
            pages[page] = 1
        meter.on_step(True)
        levels = meter.columns()
    assert 0.7 * more < levels["peak_rss_bytes"] - before["peak_rss_bytes"] < 1.5 * more
    assert 0.9 * levels["peak_rss_bytes"] < levels["mean_rss_bytes"] <= levels["peak_rss_bytes"]
