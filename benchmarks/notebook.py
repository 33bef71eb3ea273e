"""What a notebook costs on two ranks, beside the same code as a script under torchrun.

The small CNN on the digits, two ranks of one thread: whole processes with one step of work, and the median step
from the records of 400 steps; 5 rounds in alternation.

Attained on a quiet virtual machine with 2 cores of an AMD EPYC, torch 2.13.0, 2026-11-21: the notebook's extra is 0.74 s
(0.63 .. 0.99) on 3.1 s, its median step 7.56 ms against 7.62 ms (ratio pair by pair 1.05, 0.91 .. 1.06).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat

from hpc_utils import records

from . import measure

NPROC = 2
SECONDS, SLOWER = 1.0, 1.05  # what is promised: start-up's extra at most, steps' ratio at most
WORK = {"workload": "cnn", "dataset": "digits", "epochs": 1, "evaluate_every": 0, "threads_per_rank": 1}
SCRIPT, NOTEBOOK = "script under torchrun", "hpc run, notebook"


def run(options: measure.Options) -> Iterator[measure.Row]:
    """Start-up as whole processes with one step of work; step times from the records of longer runs."""
    with measure.scratch() as folder:
        path = _notebook(folder / "minimal.ipynb")
        if not options.quick:  # the others below are started alike
            yield from _startup(path, options)
        yield from _steps(path, options)


def _startup(path: Path, options: measure.Options) -> list[measure.Row]:
    case = f"start-up, {NPROC} ranks"
    values = measure.alternate(case, {SCRIPT: lambda: _script(1)[0], NOTEBOOK: lambda: _hpc_run(path, 1)[0]}, options)
    rows = measure.summarise(case, "wall time", "s", values)
    extra = [a - b for a, b in zip(values[NOTEBOOK], values[SCRIPT], strict=True)]
    more = measure.summarise(case, "difference", "s", {"the notebook's extra": extra})["the notebook's extra"]
    return [*rows.values(), more.promised(f"at most {SECONDS:g} s", more.median <= SECONDS)]


def _steps(path: Path, options: measure.Options) -> list[measure.Row]:
    steps = 20 if options.quick else 400
    rows = measure.compare(
        f"{steps} steps, {NPROC} ranks",
        "median step",
        "ms",
        {SCRIPT: lambda: _script(steps)[1] * 1e3, NOTEBOOK: lambda: _hpc_run(path, steps)[1] * 1e3},
        options,
    )
    ours = rows[NOTEBOOK]
    rows[NOTEBOOK] = ours.promised(f"steps cost nothing more (ratio at most {SLOWER:g})", ours.ratio <= SLOWER)
    return list(rows.values())


def _script(steps: int) -> tuple[float, float]:
    """(wall time of the whole, median step) in seconds."""
    assignments = [f"{name}={value}" for name, value in (WORK | {"steps_per_epoch": steps}).items()]
    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={NPROC}")
    return _timed(measure.python(*torchrun, "-m", "hpc_utils.train", *assignments))


def _hpc_run(path: Path, steps: int) -> tuple[float, float]:
    return _timed([*measure.hpc(), "run", str(path), "--nproc", str(NPROC), "-p", f"steps_per_epoch={steps}"])


def _timed(command: list[str]) -> tuple[float, float]:
    with measure.scratch() as results:
        seconds = measure.wall_time(command, results)
        found = records.load(results)
        if len(found.runs) != 1:
            raise measure.BenchmarkError(f"{' '.join(command)} left {len(found.runs)} runs: {found.refused}")
        return seconds, float(found.runs["step_p50"].iloc[0])


def _notebook(path: Path) -> Path:
    """A parameters cell and the lines that train: what the chapters do, without their prose."""
    parameters = "\n".join(f"{name} = {value!r}" for name, value in WORK.items())
    train = (
        "from hpc_utils.config import RunConfig\n"
        "from hpc_utils.train import train\n\n"
        "result = train(RunConfig.from_notebook(globals()))"
    )
    new = nbformat.v4
    cells = [new.new_code_cell(parameters, metadata={"tags": ["parameters"]}), new.new_code_cell(train)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new.new_notebook(cells=cells, metadata=kernel), path)
    return path
