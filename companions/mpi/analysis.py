"""The MPI framework beside PyTorch's DDP and Horovod: time of a step by part, speed-up and accuracy, all else equal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from hpc_utils.analyze import points, stats
from hpc_utils.analyze.compare import compare, scaled
from hpc_utils.analyze.model import links
from hpc_utils.analyze.profiles import profiled_runs
from hpc_utils.analyze.table import KEY, Table, tabled
from hpc_utils.records import load, probes
from hpc_utils.records.folder import read_json

PARTS = ("loader", "compute", "exposed", "optimizer")  # of a step, as `measure` has them in seconds
TIMES = [f"{part}_seconds" for part in PARTS]
MEASURES = ["throughput", "step_seconds", "pass_seconds", "hidden_seconds", *TIMES]
SHOWN = "framework device nodes world_size step_seconds loader_seconds compute_seconds exposed_seconds optimizer_seconds over_ddp"
COMPARED = "framework source world_size global_batch throughput communication_share measured_by utilisation repeats"
FRAMEWORKS = {"mpi": "MPI framework", "ddp": "DDP", "horovod": "Horovod", "none": "PyTorch alone"}
# How the communication of a step is measured.
MEASURED_BY = {
    "mpi": "clock around MPI's calls on rank 0, without what the backward pass hides",
    "ddp": "DDP's counters on rank 0, likewise",
    "horovod": "clock around synchronize() on rank 0",
    "none": "",
}
LOOPS = r"^companions\.mpi\.\w+:(Mpi|Horovod)$"
PLACE = ["framework", "parallel", "device", "overlap", "nodes", "world_size", "global_batch", "link_gbit"]


def measure(results: Path, runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """The runs of the network without a profiler: of torch (`mnist_cnn`), and of this companion's loops.

    Added: framework, and its key in FRAMEWORKS as parallel; overlap; pass_seconds (a pass over the training set); of a step, in seconds: loader, compute (forward and
    backward pass without the wait for others), exposed (that wait), hidden (the rest of the all-reduce), optimizer; checkpoints, in how many epochs (a run that was
    requeued once has one).
    """
    loop = runs.workload.str.extract(LOOPS, expand=False).str.lower()
    compared = points.unprofiled(runs[(runs.workload == "mnist_cnn") | loop.notna()])
    compared = compared.assign(parallel=loop.reindex(compared.index).fillna(compared.parallel))
    columns = [f"{name}_seconds" for name in ("data", "forward", "backward", "optimizer", "comm", "overlap")]
    times = epochs.groupby("run_id")[columns].mean().reindex(compared.run_id).set_index(compared.index)
    is_single = compared.world_size == 1
    # Horovod waits in the optimizer's step, the others at the end of the backward pass.
    is_horovod = compared.parallel == "horovod"
    communication, hidden = (times[f"{name}_seconds"].mask(is_single, 0.0) for name in ("comm", "overlap"))
    records = [read_json(results / "runs" / run / "run.json") for run in compared.run_id]
    pauses = (pd.to_numeric(epochs.checkpoint_seconds) > 0).groupby(epochs.run_id).sum()
    exposed = communication - hidden
    return compared.assign(
        framework=compared.parallel.map(FRAMEWORKS),
        overlap=[_overlaps(record["config"]) for record in records],
        pass_seconds=[record["train_samples"] for record in records] / compared.throughput,
        loader_seconds=times.data_seconds,
        compute_seconds=times.forward_seconds + times.backward_seconds - exposed.fillna(0.0).mask(is_horovod, 0.0),
        exposed_seconds=exposed,
        hidden_seconds=hidden.mask(is_horovod),
        checkpoints=pauses.reindex(compared.run_id).to_numpy(),
        optimizer_seconds=times.optimizer_seconds - exposed.where(is_horovod, 0.0).fillna(0.0),
    )


def _overlaps(config: Mapping[str, Any]) -> bool:
    """The committed runs are of a time when this was an option of all runs."""
    return config.get("workload_args", {}).get("overlap", config.get("overlap", True))


@tabled(
    "step",
    "Time of a step by part, and speed-up.",
    SHOWN,
    measure="step_seconds",
    missing="`hpc submit mpi --cluster rehearsal`",
)
def configurations(measured: pd.DataFrame) -> pd.DataFrame:
    """A row for each configuration of `measure` on devices of its own: `PLACE`, each of `MEASURES` and speedup (over the same
    framework on one rank) with <column>_low and <column>_high (95 %), over_ddp (time of a step over DDP's on as many ranks)
    likewise, repeats, runs."""
    gathered = points.gather(measured[~points.barred(measured)], MEASURES, ["framework", "overlap"])
    alike = ["hardware_id", "device", "threads_per_rank", "global_batch", "steps_per_epoch"]
    single = gathered[gathered.world_size == 1]
    gained = compare(gathered, single, [*alike, "parallel"], over={"speedup": "throughput"})
    ddp = gathered[gathered.parallel == "ddp"]
    beside_ddp = compare(gathered, ddp, [*alike, "world_size", "link_gbit"], over={"over_ddp": "step_seconds"})
    columns = {name: gained[name].where(gained.world_size > 1) for name in stats.columns("speedup")}
    of_torch = beside_ddp.parallel.isin(["ddp", "none"])
    columns |= {name: beside_ddp[name].mask(of_torch) for name in stats.columns("over_ddp")}
    ends = stats.columns(*MEASURES, "speedup", "over_ddp")
    table = gathered.assign(**columns, order=gathered.parallel.map(list(FRAMEWORKS).index))
    table = table.sort_values(["order", "world_size", "overlap"], ignore_index=True)
    return table[[*PLACE, "steps_per_epoch", *ends, "repeats", "runs"]]


@tabled(
    "checkpoints",
    "Checkpoints while training goes on: the pause for one, and a step while it is written and otherwise.",
    "framework world_size pause_seconds plain_step_seconds writing_step_seconds writing_over_plain repeats",
    measure="writing_over_plain",
    missing="`hpc submit mpi --cluster rehearsal`",
)
def checkpoints(measured: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """A row for each configuration of `measure` that wrote checkpoints between epochs.

    Columns: `PLACE`; of a run's medians over epochs, each with its interval: pause_seconds (of training, for a checkpoint),
    writing_step_seconds (of epochs that begin while one is written), plain_step_seconds (of the others after the first),
    writing_over_plain, their ratio; repeats, runs.
    """
    epochs = epochs.sort_values(["run_id", "epoch"])
    pauses = pd.to_numeric(epochs.checkpoint_seconds)
    is_writing = pauses.groupby(epochs.run_id).shift() > 0
    steps = epochs.seconds / epochs.steps
    columns = {
        "pause_seconds": pauses.where(pauses > 0),
        "writing_step_seconds": steps.where(is_writing),
        "plain_step_seconds": steps.where(~is_writing & (epochs.epoch > 1)),
    }
    medians = pd.DataFrame(columns).groupby(epochs.run_id).median()
    medians["writing_over_plain"] = medians.writing_step_seconds / medians.plain_step_seconds
    runs = measured[measured.checkpoints > 1].join(medians, on="run_id").dropna(subset="writing_over_plain")
    table = points.gather(runs, [*medians], ["framework", "overlap"])
    return table[[*PLACE, *stats.columns(*medians), "repeats", "runs"]]


@tabled(
    "frameworks",
    "Frameworks, measured here and imported: throughput, communication and utilisation.",
    COMPARED,
    measure="throughput",
)
def frameworks(results: Path, measured: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """A row for each configuration of `measure`, and of the sets that `hpc import` made there.

    Columns: framework, source (of the numbers), measured_by (how communication was), those of `SAME` and `POINT`; throughput, step_seconds, communication_share (of a
    step, exposed; of an import all), utilisation (of a CPU's rank processor time, of a GPU by the monitor, or as imported), each with its interval; repeats, runs.
    """
    monitored = profiled_runs.monitored_runs(results, measured, epochs).utilisation
    steps = points.step_seconds(measured)
    own = measured.assign(
        source="measured here",
        measured_by=measured.parallel.map(MEASURED_BY).where(
            measured.exposed_seconds.notna() & (measured.world_size > 1), ""
        ),
        communication_share=measured.exposed_seconds / steps,
        utilisation=points.cpu_utilisation(measured).fillna(measured.run_id.map(monitored).astype(float)),
    )
    table = pd.concat([own, *map(_imported, sorted((results / "foreign").glob("*/runs")))], ignore_index=True)
    measures = ["throughput", "step_seconds", "communication_share", "utilisation"]
    labels = ["framework", "source", "measured_by"]
    gathered = points.gather(table[~points.barred(table)], measures, labels)
    return gathered[[*labels, *points.SAME, *points.POINT, *stats.columns(*measures), "repeats", "runs"]]


def _imported(folder: Path) -> pd.DataFrame:
    """The runs of an imported set."""
    records = load(folder.parent)
    values = records.epochs.reindex(columns=["comm_seconds", "utilisation"]).apply(pd.to_numeric)
    means = values.groupby(records.epochs.run_id).mean().reindex(records.runs.run_id).set_index(records.runs.index)
    return records.runs.assign(
        framework=records.runs.parallel,
        source=f"imported: {folder.parent.name}",
        measured_by=means.comm_seconds.notna().map({True: "as imported", False: ""}),
        communication_share=means.comm_seconds / points.step_seconds(records.runs),
        utilisation=means.utilisation,
    )


@tabled(
    "allreduce",
    "An all-reduce of MPI and of torch.distributed by size of the message, on the same ranks.",
    "library ranks bytes allreduce_seconds repeats",
    measure="allreduce_seconds",
    missing="`hpc bench allreduce --mpi --nproc 2` and `hpc bench allreduce --nproc 2`",
)
def allreduces(results: Path) -> pd.DataFrame:
    """A row for each library and size, of the newest measurement of MPI and that of torch.distributed on the same nodes; empty if one is missing.

    Columns: library, ranks, bytes, allreduce_seconds with its interval, repeats.
    """
    of_mpi = probes.newest("mpi", results) or {}
    place = {name: of_mpi.get(name) for name in ("hardware_id", "nodes", "ranks_per_node", "link_gbit")}
    of_torch = probes.newest("allreduce", results, **place)
    if not of_torch:
        return pd.DataFrame()
    libraries = {"MPI_Allreduce": of_mpi, f"torch.distributed, {of_torch['backend']}": of_torch}
    table = pd.concat([links.times(record).assign(library=name) for name, record in libraries.items()])
    table = scaled(table[table.group == "all"], "allreduce_seconds", "seconds")
    return table[["library", "ranks", "bytes", *stats.columns("allreduce_seconds"), "repeats"]].reset_index(drop=True)


@tabled(
    "learning",
    "Test accuracy after every epoch.",
)
def learned(runs: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """Every evaluation of `runs`: framework, world_size, run_id, epoch, train_loss, test_accuracy."""
    evaluations = epochs.merge(runs[["run_id", "framework", "world_size"]], on="run_id")
    evaluations = evaluations.dropna(subset=["test_accuracy"])
    return evaluations[["framework", "world_size", "run_id", "epoch", "train_loss", "test_accuracy"]]


def benchmark(results: Path, name: str, metric: str, column: str) -> pd.DataFrame:
    """What `python -m benchmarks NAME` measured side by side: case, variant; `column`, the values of `metric`, with the lowest and
    highest round as <column>_low and <column>_high; ratio (to the case's first variant) likewise; note, repeats."""
    measured = ["case", "variant", "median", "min", "max", "ratio", "ratio_min", "ratio_max", "note", "repeats"]
    names = ["case", "variant", *stats.columns(column, "ratio"), "note", "repeats"]
    path = results / "bench" / f"{name}.csv"
    rows = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=["metric", *measured])
    table = rows.loc[rows.metric == metric, measured].set_axis(names, axis=1)
    table.attrs[KEY] = Table("", "", measure=column, span="lowest and highest round")
    return table.reset_index(drop=True)
