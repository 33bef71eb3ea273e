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
        """Wait until this rank's device has done all that it was given."""
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

        They do so a moment after the collective returns, hold a lock meanwhile, and need the GIL for it. A Python that
        is ending by then gives it to nobody, and the process aborts (seen in one of some twenty two-rank scripts);
        one that frees the group with the GIL held waits for that lock, for ever (pytorch/pytorch#56297; seen once).
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


def present(device: torch.device | str | None = None) -> Ranks:
    """The ranks of a process group that somebody else has set up (or of one process), for `Recorder`.

    Without a `device` it is this process's current GPU if it uses one already, else the CPU.
    """
    if device is None and torch.cuda.is_initialized():
        device = torch.device("cuda", torch.cuda.current_device())
    device = torch.device(device or CPU)
    threads = torch.get_num_threads()
    if not (dist.is_available() and dist.is_initialized()):
        return Ranks(device=device, threads=threads)
    rank, world, backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    return Ranks(
        rank=rank,
        world_size=world,
        local_rank=int(os.environ.get("LOCAL_RANK", rank)),
        ranks_per_node=per_node,
        device=device,
        backend=backend,
        # Records are gathered on the host, which a group of NCCL alone cannot do.
        group=None if "gloo" in backend else dist.new_group(backend="gloo"),
        threads=threads,
        oversubscribed=device.type == "cpu" and per_node * threads > len(provenance.core_groups()),
    )


@contextlib.contextmanager
def setup(config: RunConfig) -> Iterator[Ranks]:
    """Choose the device, pin the cores, join the process group; undo all of it at the end.

    How memory is kept between steps (`memory.keep_freed`) stays as it is from now on.

    Raises:
        ConfigError: `parallel="none"` on several processes, or a device that is not there.
    """
    env = os.environ
    rank, world = int(env.get("RANK", 0)), int(env.get("WORLD_SIZE", 1))
    local, per_node = int(env.get("LOCAL_RANK", 0)), int(env.get("LOCAL_WORLD_SIZE", 1))
    if config.parallel == "none" and world > 1:
        raise ConfigError(
            f"parallel='none' is one process, but {world} were started: use parallel='ddp', 'zero1' or 'fsdp'"
        )
    config.batches(world)
    memory.keep_freed()
    device = _device(config, local)
    grouped = config.parallel != "none"
    with _host_threads(config, device, local, per_node) as host:
        backend = _join(config, device, rank, world) if grouped else None
        ranks = Ranks(rank, world, local, per_node, device, backend, **host)
        try:
            yield ranks
        except BaseException:
            ranks.settle()
            # With others still inside a collective, leaving the group can wait for ever: let the process end.
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


def _join(config: RunConfig, device: torch.device, rank: int, world: int) -> str:
    """Set up the default process group; host tensors always travel over gloo."""
    accelerated = device.type == "cuda"
    timeout = timedelta(seconds=config.collective_timeout)
    store = _meeting_point(timeout) if world > 1 else dist.HashStore()  # one alone needs no network
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if accelerated else "gloo",
        store=store,
        rank=rank,
        world_size=world,
        timeout=timeout,
        device_id=device if accelerated else None,
    )
    return ("rccl" if torch.version.hip else "nccl") if accelerated else "gloo"


_met: dict[tuple[str | None, ...], tuple[dist.Store, Iterator[int]]] = {}


def _meeting_point(timeout: timedelta) -> dist.Store:
    """A store in which the ranks find each other, new for each run of one process.

    Where an earlier group met they would find its addresses, and hang.
    """
    where = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if where not in _met:
        _met[where] = next(dist.rendezvous("env://", timeout=timeout))[0], itertools.count()
    shared, joins = _met[where]
    shared.set_timeout(timeout)
    return dist.PrefixStore(f"run-{next(joins)}", shared)


@contextlib.contextmanager
def _host_threads(
    config: RunConfig, device: torch.device, local_rank: int, per_node: int
) -> Iterator[dict[str, Any]]:
    """Give this rank its own cores, or its share of one: `Ranks`' threads, cores, share, oversubscribed."""
    provenance.hardware()  # counts this process's cores: look before they are pinned
    cores = provenance.core_groups()
    on_gpu = device.type == "cuda"
    share = max(1, len(cores) // torch.cuda.device_count()) if on_gpu else 1  # equal at every number of ranks
    threads = config.threads_per_rank or share
    part = None
    if config.cores_per_rank is not None:
        if on_gpu:
            raise ConfigError(
                f"cores_per_rank={config.cores_per_rank:g} on a GPU: it is a CPU's device; give device=cpu"
            )
        part = Share(config.cores_per_rank, config.share_period)
    if node_cores := os.environ.get(provenance.NODE_CORES):
        oversubscribed = per_node * (part.cores if part else threads) > float(node_cores)
    elif part:
        oversubscribed = part.cores > capability.largest_share(per_node, len(cores))
    else:
        oversubscribed = per_node * threads > len(cores)
    mine: tuple[int, ...] = ()
    # A GPU's host threads stay free unless asked for: which cores are near it, local ranks do not tell.
    if hasattr(os, "sched_setaffinity") and not oversubscribed and (not on_gpu or config.threads_per_rank):
        mine = tuple(cpu for core in cores[local_rank * threads : (local_rank + 1) * threads] for cpu in core)
        if part:  # not on a core's siblings: there another share would compute beside it, and slow it
            mine = (cores[local_rank % len(cores)][0],)
    before = torch.get_num_threads(), os.sched_getaffinity(0) if mine else None
    _pin(mine)
    torch.set_num_threads(threads)
    try:
        with part.held() if part else contextlib.nullcontext():
            yield {"threads": threads, "cores": mine, "share": part, "oversubscribed": oversubscribed}
    except NoShare as error:
        raise ConfigError(f"cores_per_rank={config.cores_per_rank:g}: {error}") from None
    finally:
        torch.set_num_threads(before[0])
        _pin(before[1] or ())


def _pin(cpus: tuple[int, ...] | set[int]) -> None:
    """Pin every thread of this process: those that OpenMP started earlier do not follow the main one."""
    if not cpus:
        return
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)
