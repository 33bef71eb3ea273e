"""What goes wrong in distributed training, reproduced on CPU: each function fails as its symptom does, and passes when `fixed`.

Each runs in processes of its own, with a time limit and a folder that is removed. The keys of `REPRODUCTIONS` are names in
`hpc_utils/launch/symptoms.toml`; chapter 11 shows the functions, their output without and with the fix, and what `hpc diagnose` finds.

    python -m companions.guide.reproductions            all, as JSON: {name: [output, output with the fix]}
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stdout, suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch._dynamo  # DistributedDataParallel imports it, which takes a second: here once, not in each fork
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

LIMIT = 30.0  # s for one reproduction; they take one to three
SHORT, LONG = timedelta(seconds=2), timedelta(seconds=20)  # time-outs: where one is reproduced, and elsewhere
PASSED = "passed"

Function = Callable[[int, bool], None]  # of the rank, and with the fix
REPRODUCTIONS: dict[str, tuple[Function, int]] = {}  # by symptom: the function, and its number of ranks


def reproduces(symptom: str, ranks: int = 1) -> Callable[[Function], Function]:
    """Add the function to `REPRODUCTIONS`."""

    def add(function: Function) -> Function:
        REPRODUCTIONS[symptom] = function, ranks
        return function

    return add


def join(world: int = 2, **options) -> None:
    """Join the process group, whose variables `_ranks` has set."""
    dist.init_process_group("gloo", world_size=world, **{"timeout": LONG} | options)


@reproduces("port-in-use")
def second_job(rank: int, fixed: bool) -> None:
    with closing(socket.create_server(("", 0))) as first_job:
        port = 0 if fixed else first_job.getsockname()[1]  # 0: a free one
        dist.TCPStore("127.0.0.1", port, is_master=True, timeout=SHORT)


@reproduces("rendezvous")
def wrong_endpoint(rank: int, fixed: bool) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=SHORT)
    with closing(socket.create_server(("", 0))) as server:
        unused = server.getsockname()[1]
    dist.TCPStore("127.0.0.1", store.port if fixed else unused, timeout=LONG if fixed else SHORT)


@reproduces("alone", ranks=2)
def each_node_meets_itself(rank: int, fixed: bool) -> None:
    if not fixed:  # MASTER_ADDR=$(... || echo localhost)
        os.environ.update(RANK="0", MASTER_PORT="0")
    join(2 if fixed else 1)
    if dist.get_world_size() != 2:
        raise RuntimeError(f"world size {dist.get_world_size()}, but 2 were started: this node met only itself")


@reproduces("world-size")
def a_rank_is_missing(rank: int, fixed: bool) -> None:
    join(1 if fixed else 2, timeout=LONG if fixed else SHORT)


@reproduces("rank-variables")
def started_by_srun(rank: int, fixed: bool) -> None:
    os.environ.update(SLURM_PROCID=os.environ.pop("RANK"), SLURM_NTASKS="1")
    if fixed:
        os.environ.update(RANK=os.environ["SLURM_PROCID"], WORLD_SIZE=os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))


@reproduces("gloo-interface")
def unknown_interface(rank: int, fixed: bool) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if fixed else "eth9"
    join(1)


@reproduces("unused-parameters")
def branch_without_gradient(rank: int, fixed: bool) -> None:
    join(1)
    model = DistributedDataParallel(nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), find_unused_parameters=fixed)
    model.module.forward = model.module[0].forward
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()


@reproduces("model-differs", ranks=2)
def a_layer_more_on_one_rank(rank: int, fixed: bool) -> None:
    join()
    DistributedDataParallel(nn.Sequential(*(nn.Linear(2, 2) for _ in range(1 if fixed else 1 + rank))))


@reproduces("collective-timeout", ranks=2)
def uneven_batches(rank: int, fixed: bool) -> None:
    join(timeout=LONG if fixed else SHORT)
    model = DistributedDataParallel(nn.Linear(2, 2))
    with model.join(enable=fixed):
        for _ in range(3 - rank):
            model(torch.ones(1, 2)).sum().backward()
    if not fixed:
        time.sleep(10 * rank)


@reproduces("collectives-differ", ranks=2)
def collective_of_one_rank(rank: int, fixed: bool) -> None:
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    join()
    (dist.all_reduce if fixed or rank == 0 else lambda x: dist.broadcast(x, 0))(torch.ones(1))


@reproduces("peer-lost", ranks=2)
def a_rank_leaves(rank: int, fixed: bool) -> None:
    join()
    dist.barrier()
    if rank == 1 and not fixed:
        os._exit(0)  # without an error
    dist.barrier()


@reproduces("killed", ranks=2)
def one_rank_is_killed(rank: int, fixed: bool) -> None:
    join()
    dist.barrier()
    if rank == 1 and not fixed:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory is full
    dist.barrier()


@reproduces("host-memory")
def memory_limit(rank: int, fixed: bool) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28),) * 2)
    torch.empty(1 << 20 if fixed else 1 << 30)


@reproduces("shared-memory")
def small_shm(rank: int, fixed: bool) -> None:
    size = "64m" if fixed else "1m"
    libc, mount = ctypes.CDLL(None), ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", "/dev/shm"]
    if libc.unshare(0x00020000 | (0x10000000 if os.getuid() else 0)) or subprocess.run(mount).returncode:
        raise PermissionError("no namespace of its own for /dev/shm: not reproduced here")
    list(DataLoader(torch.ones(8, 1 << 20), num_workers=1))


@reproduces("loader-workers")
def srun_gives_one_core(rank: int, fixed: bool) -> None:
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
    DataLoader(range(8), num_workers=len(os.sched_getaffinity(0)) if fixed else 4)


@reproduces("descriptors")
def a_descriptor_for_each_tensor(rank: int, fixed: bool) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    multiprocessing.set_sharing_strategy("file_system" if fixed else "file_descriptor")
    list(DataLoader(torch.ones(100, 1), num_workers=1))


@reproduces("weights-only")
def a_checkpoint_with_objects(rank: int, fixed: bool) -> None:
    torch.save({"epoch": 3, "folder": Path("data")}, "checkpoint.pt")
    torch.load("checkpoint.pt", weights_only=not fixed)  # True: the default


@reproduces("checkpoint")
def a_truncated_checkpoint(rank: int, fixed: bool) -> None:
    torch.save(torch.ones(1000), "checkpoint.pt")
    if not fixed:
        os.truncate("checkpoint.pt", 1000)
    torch.load("checkpoint.pt")


@reproduces("disk-full")
def full_device(rank: int, fixed: bool) -> None:
    Path("/dev/null" if fixed else "/dev/full").write_text("a record")


@reproduces("notebook-port")
def two_kernels(rank: int, fixed: bool) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.ROUTER) as first, context.socket(zmq.ROUTER) as second:
        port = first.bind_to_random_port("tcp://127.0.0.1")
        second.bind(f"ipc://{Path.cwd()}/kernel" if fixed else f"tcp://127.0.0.1:{port}")


@reproduces("loss-nan")
def learning_rate(rank: int, fixed: bool) -> None:
    weight = torch.full([1], 2.0, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01 if fixed else 1e3)
    for _ in range(60):
        loss = (weight**2 - weight).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss: {loss.item():.3g}")


@reproduces("environment")
def module_is_not_loaded(rank: int, fixed: bool) -> None:
    path = f"PATH={Path.cwd()}:$PATH; " if fixed else ""  # `module load` in the job script
    (tool := Path("site-tool")).write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    subprocess.run(["bash", "-c", f"{path}site-tool"], check=True)


@reproduces("crash")
def native_code(rank: int, fixed: bool) -> None:
    if not fixed:
        faulthandler.enable()
        ctypes.string_at(0)


def run(names: Sequence[str] = ()) -> dict[str, list[str]]:
    """{symptom: [output, output with the fix]} of some or all reproductions, from a process of their own."""
    command = [sys.executable, "-m", __name__, *names]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def _output(function: Function, ranks: int, fixed: bool) -> str:
    """What the ranks write, in a fork of this process; it ends with `passed` if none failed."""
    folder = tempfile.mkdtemp(prefix="reproduction-")
    log = Path(folder) / "log"
    if not (child := os.fork()):
        os.setsid()
        os.chdir(folder)
        with log.open("w", buffering=1) as file:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
        sys.stdout = sys.stderr = os.fdopen(1, "w", 1, closefd=False)
        try:
            multiprocessing.start_processes(_rank, (function, ranks, fixed, _port()), ranks, start_method="fork")
            print(PASSED)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
        os._exit(0)
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.02)
    with suppress(ProcessLookupError):  # what is left of the group
        os.killpg(child, signal.SIGKILL)
    text = log.read_text(errors="replace")
    shutil.rmtree(folder)
    return text


def _rank(rank: int, function: Function, ranks: int, fixed: bool, port: int) -> None:
    os.environ.update(RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    function(rank, fixed)
    if dist.is_initialized():
        dist.destroy_process_group()


def _port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return server.getsockname()[1]


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(REPRODUCTIONS)
    with redirect_stdout(sys.stderr):
        outputs = {name: [_output(*REPRODUCTIONS[name], fixed) for fixed in (False, True)] for name in chosen}
    print(json.dumps(outputs))
