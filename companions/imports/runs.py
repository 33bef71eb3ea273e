"""Imported rows as ordinary records of runs: a result set of their own, `results/foreign/<name>/`, that chapters and documents read.

    runs, refused = read_runs([Path("fp32.csv"), Path("fp16.csv")], Path("runs.toml"), "v100")
    write_set(runs, meaning, "v100", "hpc import fp32.csv fp16.csv --map runs.toml --as v100", {})

Their `hardware_id` begins with `identity.FOREIGN` and their provenance has `imported` in place of a digest: nothing in them is measured by
this project.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_utils import paths
from hpc_utils.records import identity, schema
from hpc_utils.records.folder import KERNELS, RunFolder
from hpc_utils.records.identity import FOREIGN
from hpc_utils.records.study import ReportChapter, StudyIndex, StudyRun

from . import tables
from .tables import ForeignError, Meaning

CHAPTER = "06_paper_figures"
PARAMETERS = ("workload", "dataset", "parallel", "precision", "global_batch", "batch_per_device", "repeat", "variant")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
COLUMNS = [*schema.names(schema.EPOCHS), "utilisation"]  # of the rows of epochs


@dataclass(frozen=True)
class ImportedRun:
    """`values` of `tables.read_row` that all its `epochs` share; `kernels`: the file that the mapping names, or None; `verdicts`: on
    the throughput of its rows."""

    run_id: str
    file: Path
    values: Mapping[str, Any]
    epochs: list[dict[str, Any]]
    kernels: Path | None
    verdicts: set[tables.Verdict]

    @property
    def throughput(self) -> float:
        """samples/s over all epochs."""
        return sum(epoch["samples"] for epoch in self.epochs) / sum(epoch["seconds"] for epoch in self.epochs)


def read_runs(files: Iterable[Path], mapping_path: Path, name: str) -> tuple[list[ImportedRun], dict[str, str]]:
    """The runs in these CSV files, a row for each run or, with a column for `epoch`, for each epoch; and {file:line: why it is refused}.

    Raises:
        OSError: a file cannot be read.
        ForeignError: a file, the mapping or the name cannot be used; two runs are the same.
    """
    files = list(files)
    meaning = tables.read_meaning(mapping_path, name)
    given = {key for path in files for key in (path.name, path.stem)}
    if absent := sorted({*meaning.runs, meaning.reference or files[0].name} - given):
        raise ForeignError(f"{mapping_path} is about {absent[0]}: no such file was given")
    runs: dict[str, ImportedRun] = {}
    refused = {}
    for path in files:
        table = meaning.runs.get(path.name) or meaning.runs.get(path.stem)
        own_values = table.model_dump(exclude_none=True) if table else {}
        kernels = own_values.pop("kernels", None)
        constants = tables.Values(**meaning.constants.model_dump(exclude_none=True) | own_values)
        rows, faults = tables.read_rows(path, meaning.model_copy(update={"constants": constants}))
        refused |= {f"{path.name}:{line}": why for line, why in faults.items()}
        for line, values in rows.items():
            try:
                epoch = _epoch(values)
                run_id = _run_id(values, name)
                table = kernels and mapping_path.parent / kernels
                run = runs.setdefault(run_id, ImportedRun(run_id, path, values, [], table, set()))
                if run.file == path and epoch["epoch"] in [former["epoch"] for former in run.epochs]:
                    raise ForeignError(f"epoch {epoch['epoch']} is a second time in {path.name}: remove one of both")
                if run.file != path:
                    raise ForeignError(
                        f"the same run as in {run.file.name}: state what differs, in a column or in "
                        f'[runs."{path.name}"]; `repeat` if nothing does'
                    )
                run.epochs.append(epoch)
                run.verdicts.add(values["verdict"])
            except ForeignError as fault:
                refused[f"{path.name}:{line}"] = str(fault)
    return list(runs.values()), refused


def _run_id(values: Mapping[str, Any], name: str) -> str:
    parameters = _parameters(values)
    state = values.get("software", "") + values["date"]
    return identity.run_id(parameters, **_layout(values), hardware=FOREIGN + name + state)


def _layout(values: Mapping[str, Any]) -> dict[str, int]:
    ranks = values["world_size"]
    if ranks > 1 and not values.keys() & {"nodes", "ranks_per_node"}:
        raise ForeignError(f"missing for a record on {ranks} ranks: nodes")
    nodes = values.get("nodes", ranks // values.get("ranks_per_node", ranks))
    return {"nodes": nodes, "ranks_per_node": ranks // nodes}


def _parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the run is identified by, as `identity.measured` of one of ours."""
    ranks = values["world_size"]
    parameters = {"dataset": "", "repeat": 1, "batch_per_device": values["global_batch"] / ranks}
    parameters |= {key: values[key] for key in PARAMETERS if key in values}
    if ranks == 1:
        parameters.setdefault("parallel", "none")
    if missing := [
        key for key in ("workload", "precision", "parallel", "date") if key not in {**parameters, **values}
    ]:
        raise ForeignError(f"missing for a record: {', '.join(missing)}")
    if parameters["precision"] not in PRECISIONS:
        raise ForeignError(f"precision is {parameters['precision']!r}, not one of {', '.join(PRECISIONS)}")
    return parameters


def _epoch(values: Mapping[str, Any]) -> dict[str, Any]:
    """The row of `epochs.csv`."""
    if "seconds" not in values:
        raise ForeignError("without a time it is no record of a run: name the column of its seconds")
    samples = values.get("samples") or values["throughput"] * values["seconds"]
    samples = max(1, round(samples))
    steps = values.get("steps") or math.ceil(samples / values["global_batch"])
    epoch = {"epoch": 1, **values, "samples": samples, "steps": steps, "throughput": samples / values["seconds"]}
    return {name: value for name, value in epoch.items() if name in COLUMNS}


def write_set(
    runs: Iterable[ImportedRun], meaning: Meaning, name: str, command: str, kernels: Mapping[Path, str]
) -> None:
    """Write the runs, and a study of them, to `results/foreign/<name>/`; `kernels`: those of each file that a run names, as CSV."""
    runs = list(runs)
    with paths.results_at(paths.results() / "foreign" / name):
        shutil.rmtree(paths.runs(), ignore_errors=True)
        for run in runs:
            _write_run(run, meaning, name, kernels)
        reference = [run.run_id for run in runs if meaning.reference in (run.file.name, run.file.stem)]
        StudyIndex(
            name=name,
            command=command,
            title=meaning.title,
            about=f"Imported, not measured here: {meaning.source}",
            chapters=[ReportChapter(notebook=CHAPTER)],
            reference=next(iter(reference), ""),
            runs=[
                StudyRun(
                    run_id=run.run_id,
                    series=run.file.stem.lower(),
                    ranks=run.values["world_size"],
                    repeat=run.values.get("repeat", 1),
                    parameters=_parameters(run.values),
                )
                for run in runs
            ],
        ).write()


def _write_run(run: ImportedRun, meaning: Meaning, name: str, kernels: Mapping[Path, str]) -> None:
    values = run.values
    ranks = values["world_size"]
    device = values.get("device_name")
    folder = RunFolder(paths.runs() / run.run_id)
    folder.path.mkdir(parents=True)
    parameters = _parameters(values)
    machine = {"device": values.get("device", "cuda"), "hardware_id": FOREIGN + name}
    folder.write_json(
        "run.json", {"config": parameters, **parameters, "world_size": ranks, **_layout(values), **machine}
    )
    folder.write_json(
        "provenance.json",
        {
            "imported": {"title": meaning.title, "source": meaning.source, "file": run.file.name},
            "collected_at": values["date"],
            "versions": {"torch": values.get("software")},
            "hardware_id": FOREIGN + name,
            "hardware": {"gpus": [{"name": device}]} if device else {},
            "faults": [f"imported from {run.file.name}, not measured here: {meaning.source}"],
        },
    )
    epochs = sorted(run.epochs, key=lambda epoch: epoch["epoch"])
    if epochs[0]["epoch"] == 0:  # ours count from 1
        epochs = [epoch | {"epoch": epoch["epoch"] + 1} for epoch in epochs]
    rank_rows = [{"rank": rank, "device_name": device} for rank in range(ranks)]
    folder.write_table("epochs.csv", COLUMNS, epochs)
    folder.write_table("ranks.csv", schema.names(schema.RANKS), rank_rows)
    if run.kernels:
        (folder.path / KERNELS).parent.mkdir()
        (folder.path / KERNELS).write_text(kernels[run.kernels])
    folder.set_status("complete")
