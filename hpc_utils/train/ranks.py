"""Which rank this process is, on which device and cores, and the process group that joins the ranks."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hpc_utils import capability, provenance
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.device_share import NoShare, Share

from . import memory
from .environment import Environment

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """This process's place among the run's.

    Attributes:
        rank, world_size: over all nodes. local_rank, ranks_per_node: on this node.
        device: where the model lives.
        backend: "nccl", "rccl" or "gloo"; None without a process group.
        group: what host tensors travel over, where that is not the default group.
        threads: torch's intra-op threads here. cores: logical CPUs pinned to, or () where not pinned.
        share: of a core, if that is the device. oversubscribed: the node's ranks want more cores than it has.
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

    @property
    def cores_per_device(self) -> float:
        """Cores, or the share of one, that make a CPU device; a GPU's host threads."""
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
        """The device's model, as its maker calls it."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return provenance.hardware().cpu.model or "CPU"

    def synchronize(self) -> None:
        """Wait until this rank's device has finished its queue."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def barrier(self) -> None:
        """Device and ranks synchronised. Host side on purpose: it leaves nothing on the device's queue."""
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
        """`value` of every rank in rank order on rank 0; an empty list elsewhere."""
        if not self.backend:
            return [value]
        everyone = [None] * self.world_size if self.is_main else None
        dist.gather_object(value, everyone, group=self.group)
        return everyone or []

    def settle(self) -> None:
        """After the last collective: let gloo's threads drop what they gathered.

        They do so a moment after the collective returns, holding a lock, and need the GIL for it. A Python that is
        ending by then does not give it, and the process aborts (seen in one of some twenty two-rank scripts); one that
        frees the group with the GIL held waits for that lock forever (pytorch/pytorch#56297; seen once).
        """
        if self.backend:
            time.sleep(0.1)

    def broadcast(self, value: Any) -> Any:
        """Rank 0's `value`."""
        if not self.backend:
            return value
        box = [value]
        dist.broadcast_object_list(box, group=self.group)
        return box[0]


def present(device: torch.device | str | None = None, environment: Environment | None = None) -> Ranks:
    """The ranks of a process group that the user has set up (or of one process), for `Recorder`.

    Without a `device` it is this process's current GPU if it uses one already, else the CPU.
    """
    if device is None and torch.cuda.is_initialized():
        device = torch.device("cuda", torch.cuda.current_device())
    device = torch.device(device or CPU)
    threads = torch.get_num_threads()
    if not (dist.is_available() and dist.is_initialized()):
        return Ranks(device=device, threads=threads)
    environment = environment or Environment.read()
    rank, world, backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
    per_node = environment.ranks_per_node or world
    local = rank if environment.local_rank is None else environment.local_rank
    return Ranks(
        *(rank, world, local, per_node, device, backend),
        # Records are gathered on the host, which a group of NCCL alone cannot do.
        group=None if "gloo" in backend else dist.new_group(backend="gloo"),
        threads=threads,
        oversubscribed=device.type == "cpu" and per_node * threads > len(provenance.core_groups()),
    )


@contextlib.contextmanager
def setup(config: RunConfig, environment: Environment | None = None) -> Iterator[Ranks]:
    """Choose the device, pin the cores, join the process group; undo all of it at the end.

    How memory is kept between steps (`memory.keep_freed`) stays as it is from now on.

    Args:
        environment: what a launcher has set for this process; read from `os.environ` if not given.

    Raises:
        ConfigError: `parallel="none"` on several processes, or a device that is not there.
    """
    environment = environment or Environment.read()
    rank, world = environment.rank, environment.world_size
    local, per_node = environment.local_rank or 0, environment.ranks_per_node or 1
    if config.parallel == "none" and world > 1:
        raise ConfigError(
            f"parallel='none' is one process, but {world} were started: use parallel='ddp', 'zero1' or 'fsdp'"
        )
    config.batches(world)
    memory.keep_freed()
    device = _device(config, local)
    grouped = config.parallel != "none"
    with _cores(config, device, local, per_node, environment.node_cores) as host:
        backend = _join(config, device, environment) if grouped else None
        ranks = Ranks(rank, world, local, per_node, device, backend, **host)
        try:
            yield ranks
        except BaseException:
            ranks.settle()
            # With others still inside a collective, leaving the group can wait forever: let the process end.
            if grouped and world == 1:
                dist.destroy_process_group()
            raise
        if grouped:
            dist.destroy_process_group()


def _device(config: RunConfig, local_rank: int) -> torch.device:
    if config.device == "cpu" or (config.device == "auto" and not torch.cuda.is_available()):
        return CPU
    if not torch.cuda.is_available():
        raise ConfigError(
            "device='cuda', but torch sees no GPU (`nvidia-smi`? a CPU build of torch?): use device='auto'"
        )
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise ConfigError(
            f"local rank {local_rank} has no GPU of its own: {count} visible on {socket.gethostname()}; "
            f"start at most {count} ranks a node, or use device='cpu'"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _join(config: RunConfig, device: torch.device, environment: Environment) -> str:
    """Set up the default process group; host tensors always travel over gloo."""
    accelerated = device.type == "cuda"
    timeout = timedelta(seconds=config.collective_timeout)
    alone = environment.world_size == 1  # which needs no network
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if accelerated else "gloo",
        store=dist.HashStore() if alone else _rendezvous(environment.rendezvous, timeout),
        rank=environment.rank,
        world_size=environment.world_size,
        timeout=timeout,
        device_id=device if accelerated else None,
    )
    return ("rccl" if torch.version.hip else "nccl") if accelerated else "gloo"


_stores: dict[tuple[str | None, str | None], tuple[dist.Store, Iterator[int]]] = {}


def _rendezvous(address: tuple[str | None, str | None], timeout: timedelta) -> dist.Store:
    """A store in which the ranks find each other, new for each run of one process.

    In an earlier group's store they would find its addresses, and hang.
    """
    if address not in _stores:
        _stores[address] = next(dist.rendezvous("env://", timeout=timeout))[0], itertools.count()
    shared, joins = _stores[address]
    shared.set_timeout(timeout)
    return dist.PrefixStore(f"run-{next(joins)}", shared)


@contextlib.contextmanager
def _cores(
    config: RunConfig, device: torch.device, local_rank: int, per_node: int, node_cores: float | None
) -> Iterator[dict[str, Any]]:
    """Give this rank its own cores, or its share of one: `Ranks`' threads, cores, share, oversubscribed."""
    provenance.hardware()  # counts this process's cores: call it before they are pinned
    cores = provenance.core_groups()
    on_gpu = device.type == "cuda"
    per_device = max(1, len(cores) // torch.cuda.device_count()) if on_gpu else 1  # equal at every number of ranks
    threads = config.threads_per_rank or per_device
    share = None
    if config.cores_per_rank is not None:
        if on_gpu:
            raise ConfigError(
                f"cores_per_rank={config.cores_per_rank:g} makes devices of a CPU, and this rank has a GPU: "
                f"use device=cpu"
            )
        share = Share(config.cores_per_rank, config.share_period)
    if node_cores:
        oversubscribed = per_node * (share.cores if share else threads) > node_cores
    elif share:
        oversubscribed = share.cores > capability.largest_share(per_node, len(cores))
    else:
        oversubscribed = per_node * threads > len(cores)
    pinned: tuple[int, ...] = ()
    # A GPU's host threads are pinned only on request: local ranks do not show which cores are near it.
    if hasattr(os, "sched_setaffinity") and not oversubscribed and (not on_gpu or config.threads_per_rank):
        pinned = tuple(cpu for core in cores[local_rank * threads : (local_rank + 1) * threads] for cpu in core)
        if share:  # not on a core's siblings: another share would compute beside it there, and slow it
            pinned = (cores[local_rank % len(cores)][0],)
    before = torch.get_num_threads(), os.sched_getaffinity(0) if pinned else ()
    _pin(pinned)
    torch.set_num_threads(threads)
    try:
        with share.held() if share else contextlib.nullcontext():
            yield {"threads": threads, "cores": pinned, "share": share, "oversubscribed": oversubscribed}
    except NoShare as error:
        raise ConfigError(f"cores_per_rank={config.cores_per_rank:g}: {error}") from None
    finally:
        torch.set_num_threads(before[0])
        _pin(before[1])


def _pin(cpus: tuple[int, ...] | set[int]) -> None:
    """Pin every thread of this process: those that OpenMP started before do not follow the main one."""
    if not cpus:
        return
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)
