"""Start-up cost of a run: cold, warm, a script under torchrun, papermill with a kernel per rank.

The chapter 02_ddp with the small CNN on the digits, one epoch of ten steps, on one and two ranks of one thread. `wall time` is a
whole process's, from the shell; `beyond training` what is left of it without the call of `train` on rank 0. `warm, next run` is
what each run of a study costs after the first. Then the median step of 400, and the files that all processes of a two-rank run
open (strace). 5 rounds in alternation.

Attained on two cores of an AMD EPYC (AVX-512, no AMX), torch 2.13.0, 2026-11-23: two ranks from the shell take 5.1 s (4.4 .. 6.1)
as a script under torchrun, 11.1 s (9.1 .. 11.4) by papermill with kernels, 6.4 s (6.2 .. 6.7) cold, 4.1 s (3.8 .. 4.3) warm; each
next run of a study 1.04 s (0.93 .. 1.13), 0.64 s (0.53 .. 0.72) of it beyond training. The median step is 7.98 ms against 7.96 ms
cold (ratio 1.01, 0.99 .. 1.01). Warm, all processes of two ranks open 8,431 files, cold 12,659.
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
from hpc_utils.launch import local, warm
from hpc_utils.launch.request import Layout, prepare

from . import measure

BEYOND, SHELL, SLOWER = 0.7, 5.0, 1.05  # what is promised: s, s, and the ratio of steps
WORK = {
    "workload": "cnn",
    "dataset": "digits",
    "epochs": 1,
    "steps_per_epoch": 10,
    "threads_per_rank": 1,
    "device": "cpu",
}
WORK |= {"lr_warmup_epochs": 0}
SCRIPT, KERNELS, COLD, WARM, NEXT = (
    "script under torchrun", "papermill, a kernel a rank", "hpc run --cold", "hpc run", "warm, next run"
)  # fmt: skip


def run(options: measure.Options) -> Iterator[measure.Row]:
    """Starts on two ranks; with `full` on one too, steps, files."""
    with warm.started() as process:
        for ranks in (1, 2) if options.full else (2,):
            yield from _starts(ranks, process, options)
        if not options.full and not options.quick:
            return
        yield from _steps(process, options)
    if shutil.which("strace"):
        yield from _files(options)


def _starts(ranks: int, process: str, options: measure.Options) -> Iterator[measure.Row]:
    sides = {
        SCRIPT: lambda: _timed(_script(ranks)),
        KERNELS: lambda: _timed(_kernels(ranks)),
        COLD: lambda: _timed(_hpc(ranks, "--cold")),
        WARM: lambda: _timed(_hpc(ranks)),
        NEXT: lambda: _next(ranks, process),
    }
    if options.quick:
        del sides[SCRIPT], sides[KERNELS], sides[COLD]
    case = f"{ranks} rank{'s' * (ranks > 1)}"
    _next(ranks, process)  # its imports are another row's
    values = measure.alternate(case, sides, options)
    wall = measure.summarise(case, "wall time", "s", {side: [one[0] for one in own] for side, own in values.items()})
    wall[WARM] = wall[WARM].promised(f"at most {SHELL:g} s", wall[WARM].median <= SHELL)
    beyond = {side: [one[0] - one[1] for one in own] for side, own in values.items() if side in (COLD, WARM, NEXT)}
    beyond = measure.summarise(case, "beyond training", "s", beyond)
    beyond[NEXT] = beyond[NEXT].promised(f"at most {BEYOND:g} s", beyond[NEXT].median <= BEYOND)
    yield from (*wall.values(), *beyond.values())


def _steps(process: str, options: measure.Options) -> list[measure.Row]:
    more = {"steps_per_epoch": 20 if options.quick else 400}
    sides: dict[str, Callable[[], float]] = {
        COLD: lambda: _timed(_hpc(2, "--cold", **more))[2] * 1e3,
        NEXT: lambda: _next(2, process, **more)[2] * 1e3,
    }
    rows = measure.compare(f"{more['steps_per_epoch']} steps, 2 ranks", "median step", "ms", sides, options)
    rows[NEXT] = rows[NEXT].promised(f"no slower (ratio at most {SLOWER:g})", rows[NEXT].ratio <= SLOWER)
    return list(rows.values())


def _files(options: measure.Options) -> list[measure.Row]:
    sides = {WARM: _hpc(2)} if options.quick else {SCRIPT: _script(2), COLD: _hpc(2, "--cold"), WARM: _hpc(2)}
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


def _next(ranks: int, process: str, **more: object) -> tuple[float, float, float]:
    with measure.scratch() as results, paths.results_at(results):
        request = prepare(_chapter(), WORK | more, Layout(1, ranks))  # as a study does for all of its runs beforehand
        begun = time.perf_counter()
        local.run(request, warm_process=process)
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
