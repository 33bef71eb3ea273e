"""Start-up cost of a run: the first one of a command, a later one of a study, a script under torchrun, papermill with kernels.

The chapter 02_ddp with the small CNN on the digits, one epoch of ten steps, on one and two ranks of one thread. `wall time` is a
whole process's, from the shell, but of a later run the time of the call in a process that has done another; `beyond training` is
what is left of it without the call of `train` on rank 0. Then the median step of 400, and the files that all processes of a
two-rank run open (strace). Rounds in alternation; ratios are formed within a round.

Attained on two cores of an AMD EPYC (AVX-512, no AMX), torch 2.13.0, 2026-11-27, with other work on the machine: two ranks from the
shell take 7.4 s (6.8 .. 9.8) as a script under torchrun. The first run takes 0.74 (0.58 .. 0.94) of that, a later run 0.17 (0.14 ..
0.22), of which 0.63 s (0.61 .. 0.81) is beyond training.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat

from hpc_utils import paths, records
from hpc_utils.launch import forkserver, local
from hpc_utils.launch.request import Layout, prepare

from . import measure

# What is promised: the ratio of a later and of the first run to the script, and of the steps of a fork to those of a process.
LATER, FIRST, SLOWER = 0.2, 1.0, 1.05
WORK = {
    "workload": "cnn",
    "dataset": "digits",
    "epochs": 1,
    "steps_per_epoch": 10,
    "threads_per_rank": 1,
    "device": "cpu",
}
WORK |= {"lr_warmup_epochs": 0}
SCRIPT, KERNELS, COLD, RUN, NEXT = (
    "script under torchrun", "papermill, a kernel a rank", "hpc run --cold", "hpc run", "later run"
)  # fmt: skip


def run(options: measure.Options) -> Iterator[measure.Row]:
    """Starts on two ranks; with `full` on one too, steps, files."""
    forkserver.start()
    for ranks in (1, 2) if options.full else (2,):
        yield from _starts(ranks, options)
    if not options.full and not options.quick:
        return
    yield from _steps(options)
    if shutil.which("strace"):
        yield from _files(options)


def _starts(ranks: int, options: measure.Options) -> Iterator[measure.Row]:
    sides = {
        SCRIPT: lambda: _timed(_script(ranks)),
        KERNELS: lambda: _timed(_kernels(ranks)),
        COLD: lambda: _timed(_hpc(ranks, "--cold")),
        RUN: lambda: _timed(_hpc(ranks)),
        NEXT: lambda: _next(ranks),
    }
    if not options.full:
        del sides[KERNELS], sides[COLD]
    case = f"{ranks} rank{'s' * (ranks > 1)}"
    _next(ranks)  # its imports are another row's
    values = measure.alternate(case, sides, options)
    times = {side: [row[0] for row in rows] for side, rows in values.items()}
    wall = measure.summarise(case, "wall time", "s", times)
    for side, most in ((RUN, FIRST), (NEXT, LATER)):
        wall[side] = wall[side].promised(f"at most {most:g} of the {SCRIPT}", wall[side].ratio <= most)
    beyond = {side: [row[0] - row[1] for row in rows] for side, rows in values.items() if side in (COLD, RUN, NEXT)}
    yield from (*wall.values(), *measure.summarise(case, "beyond training", "s", beyond).values())


def _steps(options: measure.Options) -> list[measure.Row]:
    more = {"steps_per_epoch": 20 if options.quick else 400}
    sides: dict[str, Callable[[], float]] = {
        COLD: lambda: _timed(_hpc(2, "--cold", **more))[2] * 1e3,
        NEXT: lambda: _next(2, **more)[2] * 1e3,
    }
    rows = measure.compare(f"{more['steps_per_epoch']} steps, 2 ranks", "median step", "ms", sides, options)
    rows[NEXT] = rows[NEXT].promised(f"no slower (ratio at most {SLOWER:g})", rows[NEXT].ratio <= SLOWER)
    return list(rows.values())


def _files(options: measure.Options) -> list[measure.Row]:
    sides = {RUN: _hpc(2)} if options.quick else {SCRIPT: _script(2), COLD: _hpc(2, "--cold"), RUN: _hpc(2)}
    once = measure.Options(repeats=1)
    counts = {side: lambda command=command: _opened(command) for side, command in sides.items()}
    return list(measure.compare("2 ranks", "files opened", "files", counts, once).values())


def _script(ranks: int) -> list[str]:
    assignments = [f"{name}={value}" for name, value in WORK.items()]
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    return measure.python(*torchrun, "-m", "hpc_utils.train", *assignments)


def _kernels(ranks: int) -> list[str]:
    parameters = [word for name, value in WORK.items() for word in ("-p", name, str(value))]
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    chapter = ("-m", "papermill", str(_chapter()), "-", "--kernel", "python3", "--no-progress-bar")
    return measure.python(*torchrun, *chapter, *parameters)


def _hpc(ranks: int, *options: str, **more: object) -> list[str]:
    parameters = [word for name, value in (WORK | more).items() for word in ("-p", f"{name}={value}")]
    return [*measure.hpc(), "run", str(_chapter()), "--nproc", str(ranks), *options, *parameters]


def _chapter() -> Path:
    return paths.notebooks() / "02_ddp.ipynb"


def _timed(command: list[str]) -> tuple[float, float, float]:
    """(wall time of the whole, rank 0's training, median step) in seconds; training is NaN where no notebook is kept."""
    with measure.scratch() as results:
        seconds = measure.wall_time(command, results)
        return seconds, *_recorded(results)


def _next(ranks: int, **more: object) -> tuple[float, float, float]:
    with measure.scratch() as results, paths.results_at(results):
        request = prepare(_chapter(), WORK | more, Layout(1, ranks))  # as a study does for all of its runs beforehand
        begun = time.perf_counter()
        local.run(request)
        seconds = time.perf_counter() - begun
        return seconds, *_recorded(results)


def _recorded(results: Path) -> tuple[float, float]:
    found = records.load(results)
    if len(found.runs) != 1:
        raise measure.BenchmarkError(f"{len(found.runs)} runs were left: {found.refused}")
    run = found.runs.iloc[0]
    kept = results / run.path / "notebook.ipynb"
    cells = nbformat.read(kept, 4).cells if kept.exists() else ()
    trained = [cell.metadata.papermill.duration for cell in cells if "train(config)" in cell.source]
    return sum(trained) if trained else math.nan, float(run.step_p50)


def _opened(command: list[str]) -> float:
    """How many files all processes of `command` open."""
    with measure.scratch() as results:
        log = results / "opened"
        measure.wall_time(["strace", "-f", "-e", "trace=open,openat", "-o", str(log), *command], results)
        done = subprocess.run(["grep", "-c", "-v", "= -1 ", str(log)], capture_output=True, text=True)
        return float(done.stdout)
