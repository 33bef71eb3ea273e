"""This process's rank, device and cores, and the process group of all ranks."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hpc_utils import capability, provenance, workspace
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.device_share import NoShare, Share
from hpc_utils.launcher import Launcher

from . import memory

CPU = torch.device("cpu")

_place: dict[str, Any] = {}  # device and cores of this process, as fields of `Ranks` (`placed`)


@dataclass(frozen=True)
class Ranks:
    """This process's rank, device and cores, and collectives on host tensors.

    Attributes:
        rank, world_size: over all nodes. local_rank, ranks_per_node: on this node.
        device: device of the model.
        backend: "nccl", "rccl", "gloo", or what the launcher of a loop brings; None without a process group.
        group: process group for host tensors; None for the default group.
        threads: torch's intra-op threads. cores: logical CPUs that this process is pinned to; () if not pinned.
        share: the share of a core that makes the device, if any; `limit` enforces it until `setup` ends (`held`).
        oversubscribed: the ranks on this node use more cores than it has.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    ranks_per_node: int = 1
    device: torch.device = CPU
    backend: str | None = None
    group: Any = None
    threads: int = 1
    cores: tuple[int, ...] = ()
    share: Share | None = None
    oversubscribed: bool = False
    limits: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def cores_per_device(self) -> float:
        """Cores, or the share of one, of a CPU device; host threads of a GPU."""
        return self.share.cores if self.share else self.threads

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def nodes(self) -> int:
        return self.world_size // self.ranks_per_node

    @property
    def device_kind(self) -> str:
        """cpu, cuda or rocm."""
        return "rocm" if self.device.type == "cuda" and torch.version.hip else self.device.type

    @property
    def device_name(self) -> str:
        """The device's model name."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return provenance.hardware().cpu.model or "CPU"

    def synchronize(self) -> None:
        """Wait until this rank's device has finished its queue."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def barrier(self) -> None:
        """Synchronise device and ranks. The collective runs on the host and leaves nothing on the device's queue."""
        self.synchronize()
        if self.backend:
            dist.all_reduce(torch.zeros(1), group=self.group)

    def sum(self, values: Tensor) -> Tensor:
        """Element-wise sum over ranks of a small host tensor."""
        if self.backend:
            dist.all_reduce(values, group=self.group)
        return values

    def max(self, values: Tensor) -> Tensor:
        """Element-wise maximum over ranks of a small host tensor."""
        if self.backend:
            dist.all_reduce(values, dist.ReduceOp.MAX, group=self.group)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks in rank order on rank 0; an empty list elsewhere."""
        if not self.backend:
            return [value]
        everyone = [None] * self.world_size if self.is_main else None
        dist.gather_object(value, everyone, group=self.group)
        return everyone or []

    @property
    def collectives(self) -> int | None:
        """How many collectives on `device` this process has started, in all process groups; None if a backend does not count."""
        try:
            backends = [group._get_backend(self.device) for group in dist.distributed_c10d._world.pg_map]
            return sum(backend._get_sequence_number_for_group() for backend in backends)
        except RuntimeError:
            return None

    @property
    def has_graphs(self) -> bool:
        """Whether this process holds CUDA graphs, which have memory pools of their own: `collectives` misses what they replay."""
        return self.device.type == "cuda" and any(
            any(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()
        )

    @property
    def everyone(self) -> Any:
        """The group of all ranks, for `all_reduce`."""
        return dist.group.WORLD

    def split(self) -> tuple[Any, Any]:
        """Return the group of this node's ranks, and that of the first ranks of all nodes (None on others).
        Collective."""
        per_node = self.ranks_per_node
        nodes = [dist.new_group(range(node * per_node, (node + 1) * per_node)) for node in range(self.nodes)]
        leaders = dist.new_group(range(0, self.world_size, per_node))
        return nodes[self.rank // per_node], leaders if self.local_rank == 0 else None

    def all_reduce(self, values: Tensor, group: Any) -> None:
        """Sum `values` in place over `everyone` or a group of `split`, on their device."""
        dist.all_reduce(values, group=group)

    def settle(self) -> None:
        """Give gloo's threads time to release their buffers after the last collective.

        They need the GIL for it, a moment after the collective returned. If Python is shutting down by then, the
        process aborts; if the group is destroyed meanwhile with the GIL held, it deadlocks (pytorch/pytorch#56297).
        """
        if self.backend:
            time.sleep(0.1)

    def limit(self) -> None:
        """Enforce the share of a core, if it is the device, from here on: set-up would take ten times as long.

        Raises:
            ConfigError: it cannot be enforced on this machine.
        """
        if self.share is None:
            return
        try:
            self.limits.enter_context(self.share.held())
        except NoShare as error:
            raise ConfigError(f"cores_per_rank={self.share.cores:g}: {error}") from None

    def require_periods(self, cpu_seconds: float) -> None:
        """Raise ConfigError on all ranks if a step of `cpu_seconds` is too short for an enforced share of a core."""
        if self.share is None:
            return
        step = float(self.max(torch.tensor([cpu_seconds]))) / self.share.cores
        least = capability.PERIODS_OF_A_STEP
        period = self.share.period
        if step < least * period:
            raise ConfigError(
                f"cores_per_rank={self.share.cores:g}: a step takes {step * 1e3:.1f} ms, shorter than the {least} periods "
                f"of {period * 1e3:g} ms over which the share is enforced: use a larger batch or a smaller share"
            )

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's `value`."""
        if not self.backend:
            return value
        values = [value]
        dist.broadcast_object_list(values, group=self.group)
        return values[0]


def present(device: torch.device | str | None = None) -> Ranks:
    """Ranks of the process group that the user initialised, or of a single process, for `Recorder`.

    `device` defaults to the current GPU if this process already uses one, else the CPU.

    Raises:
        RuntimeError: a launcher started several processes, but there is no process group.
    """
    if device is None and torch.cuda.is_initialized():
        device = torch.device("cuda", torch.cuda.current_device())
    device = torch.device(device or CPU)
    host = _place or {"threads": torch.get_num_threads()}
    if not (dist.is_available() and dist.is_initialized()):
        if (world := _number("WORLD_SIZE", 1)) > 1:  # else each would record a run of its own, under the same name
            raise RuntimeError(
                f"WORLD_SIZE={world}, but there is no process group: "
                "call torch.distributed.init_process_group() before Recorder(...)"
            )
        return Ranks(device=device, **host)
    rank = dist.get_rank()
    world = dist.get_world_size()
    backend = dist.get_backend()
    local = _number("LOCAL_RANK", rank)
    per_node = _number("LOCAL_WORLD_SIZE", world)
    if not _place:
        cores = per_node * host["threads"]
        host["oversubscribed"] = device.type == "cpu" and cores > len(provenance.core_groups())
    # Records are gathered on the host, which an NCCL-only group does not support.
    group = None if "gloo" in backend else dist.new_group(backend="gloo")
    return Ranks(*(rank, world, local, per_node, device, backend), group=group, **host)


@contextlib.contextmanager
def placed(config: RunConfig) -> Iterator[None]:
    """Choose the device and pin the cores of a process whose own program creates the process group and the recorder.

    Raises:
        ConfigError: the device is not available.
    """
    place = _by_torchrun()
    device = _device(config, place.local_rank)
    with _cores(config, device, place.local_rank, place.ranks_per_node, place.world_size) as host:
        _place.update(host)
        try:
            yield
        finally:
            _place.clear()


@contextlib.contextmanager
def setup(config: RunConfig, launcher: Launcher | None = None) -> Iterator[Ranks]:
    """Choose the device, pin the cores and join the process group; undo this on exit.

    The allocator settings of `memory.keep_freed` remain. `launcher`: of a loop, if it has one of its own.

    Raises:
        ConfigError: `parallel="none"` with several processes, or the device is not available.
    """
    place = launcher.join() if launcher and launcher.starts_ranks else _by_torchrun()
    rank, world, local, per_node = place.rank, place.world_size, place.local_rank, place.ranks_per_node
    if config.parallel == "none" and world > 1:
        raise ConfigError(
            f"parallel='none' takes one process, but {world} were started: use parallel='ddp', 'zero1' or 'fsdp'"
        )
    config.batches(world)
    memory.keep_freed()
    device = _device(config, local)
    grouped = config.parallel != "none" and place.backend is None
    with _cores(config, device, local, per_node, world) as host, _stream(config, device):
        backend = _join(config, device, rank, world) if grouped else place.backend
        ranks = replace(place, device=device, backend=backend, **host)
        try:
            yield ranks
        except BaseException:
            ranks.settle()
            # Destroying the group while other ranks are in a collective can hang: let the process end instead.
            if grouped and world == 1:
                dist.destroy_process_group()
            raise
        if grouped:
            dist.destroy_process_group()


def _by_torchrun() -> Ranks:
    """This process's place, from the variables of torchrun; a single process without them."""
    names = ("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1)
    return Ranks(*(_number(name, default) for name, default in names))


def _number(variable: str, default: int) -> int:
    """A variable that torchrun or a launcher sets for this rank."""
    return int(workspace.environment().get(variable, default))


def _device(config: RunConfig, local_rank: int) -> torch.device:
    if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
        return CPU
    if not torch.cuda.is_available():
        raise ConfigError(
            "device='cuda', but torch sees no GPU (check `nvidia-smi`, and that torch is no CPU build): use device='auto'"
        )
    if local_rank >= (count := torch.cuda.device_count()):
        raise ConfigError(
            f"local rank {local_rank} has no GPU of its own ({count} visible): start at most {count} ranks a node, without "
            f"--gpus-per-task and --gpu-bind, or use device='cpu'"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _stream(config: RunConfig, device: torch.device) -> contextlib.AbstractContextManager:
    """The stream of the whole run: a capture needs one beside the default stream, and DDP's construction the same
    one."""
    needs_stream = config.step_graph and device.type == "cuda"
    return torch.cuda.stream(torch.cuda.Stream(device)) if needs_stream else contextlib.nullcontext()


def _join(config: RunConfig, device: torch.device, rank: int, world: int) -> str:
    """Initialise the default process group, with gloo for host tensors, and return the backend."""
    accelerated = device.type == "cuda"
    timeout = timedelta(seconds=config.collective_timeout)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if accelerated else "gloo",
        store=dist.HashStore() if world == 1 else _rendezvous(timeout),  # one rank needs no network
        rank=rank,
        world_size=world,
        timeout=timeout,
        device_id=device if accelerated else None,
    )
    return ("rccl" if torch.version.hip else "nccl") if accelerated else "gloo"


@functools.cache
def _shared_store() -> tuple[dist.Store, Iterator[int]]:
    return next(dist.rendezvous("env://", timeout=timedelta(minutes=10)))[0], itertools.count()


def _rendezvous(timeout: timedelta) -> dist.Store:
    """Return the rendezvous store with a new prefix for each run of this process.

    Without it, ranks would find the addresses of an earlier process group and hang.
    """
    shared, joins = _shared_store()
    shared.set_timeout(timeout)
    return dist.PrefixStore(f"run-{next(joins)}", shared)


@contextlib.contextmanager
def _cores(
    config: RunConfig, device: torch.device, local_rank: int, per_node: int, world: int
) -> Iterator[dict[str, Any]]:
    """Pin this rank to its cores; yields `Ranks`' threads, cores, share, limits and oversubscribed."""
    provenance.hardware()  # counts the available cores, so it must run before pinning
    cores = provenance.core_groups()
    on_gpu = device.type == "cuda"
    per_device = max(1, len(cores) // torch.cuda.device_count()) if on_gpu else 1  # equal at every number of ranks
    threads = config.threads_per_rank or per_device
    share = None
    if config.cores_per_rank is not None:
        if on_gpu:
            raise ConfigError(
                f"cores_per_rank={config.cores_per_rank:g} is for CPU devices, but this rank uses a GPU: use device=cpu"
            )
        share = Share(config.cores_per_rank, config.share_period)
    cores_per_rank = share.cores if share else threads
    devices = per_node
    if node_cores := workspace.environment().get(
        provenance.NODE_CORES
    ):  # this node shares its cores with others of a rehearsal
        devices *= min(world // per_node, round(len(cores) / float(node_cores)))
    oversubscribed = capability.oversubscribed(devices, cores_per_rank, len(cores)) and not (
        node_cores and per_node * cores_per_rank <= float(node_cores)
    )
    pinned: tuple[int, ...] = ()
    # Host threads of a GPU are pinned only on request, because the local rank does not determine which cores are near
    # the GPU.
    if hasattr(os, "sched_setaffinity") and not oversubscribed and (not on_gpu or config.threads_per_rank):
        pinned = tuple(cpu for core in cores[local_rank * threads : (local_rank + 1) * threads] for cpu in core)
        if share:  # one logical CPU only: another share on the sibling would slow this one
            pinned = (cores[local_rank % len(cores)][0],)
    before = torch.get_num_threads(), os.sched_getaffinity(0) if pinned else ()
    _pin(pinned)
    torch.set_num_threads(threads)
    try:
        with contextlib.ExitStack() as limits:
            yield {
                "threads": threads,
                "cores": pinned,
                "share": share,
                "limits": limits,
                "oversubscribed": oversubscribed,
            }
    finally:
        torch.set_num_threads(before[0])
        _pin(before[1])


def _pin(cpus: tuple[int, ...] | set[int]) -> None:
    """Pin every thread of this process; existing OpenMP threads do not follow the main thread."""
    if not cpus:
        return
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)
