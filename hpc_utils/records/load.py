"""Read the records of a result set into pandas, and refuse runs that contradict themselves."""

from __future__ import annotations

import functools
import io
import statistics
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths, source_code

from . import atomic, checks, fingerprint, packed, schema
from .folder import read_json, state
from .identity import settings
from .study import read_study, studies

if TYPE_CHECKING:
    import pandas as pd

# Columns of `ranks.csv` whose largest value becomes a column of the run.
LARGEST = (
    "peak_allocated_bytes", "peak_rss_bytes", "mean_allocated_bytes", "mode_allocated_bytes", "mean_rss_bytes",
    "mode_rss_bytes", "page_faults", "cpu_seconds", "throttled_seconds", "outside_seconds", "steal_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Records:
    """All runs of a result set.

    Attributes:
        runs: one row per complete run; columns as in `schema.RUNS`, and `blocks`: {(session, round): seconds of that block over
            the run's mean for as many samples} of runs that took turns, else {}.
        epochs: one row per epoch, `run_id` in front; columns as in `schema.EPOCHS` and any metric of a
            workload's own.
        refused: {run id: why its records cannot be true}.
        unfinished: {run id: state} of the runs that are not complete.
    """

    runs: pd.DataFrame
    epochs: pd.DataFrame
    refused: dict[str, str] = field(default_factory=dict)
    unfinished: dict[str, str] = field(default_factory=dict)

    def only(self, runs: Collection[str]) -> Records:
        """The records of `runs`; a run without records is unfinished: "absent"."""
        listed = {*self.runs.run_id, *self.refused, *self.unfinished}
        states = dict.fromkeys(sorted({*runs} - listed), "absent") | self.unfinished
        return Records(
            self.runs[self.runs.run_id.isin(runs)].reset_index(drop=True),
            self.epochs[self.epochs.run_id.isin(runs)].reset_index(drop=True),
            {run: why for run, why in self.refused.items() if run in runs},
            {run: state for run, state in states.items() if run in runs},
        )


def load(results: Path | None = None, *, study: str | None = None) -> Records:
    """Load the runs of `results`, in folders or packed, or only those of a study; a refused run is omitted and listed.

    Raises:
        UnknownStudy: the study was never run with these results.
    """
    import pandas as pd

    results = Path(results or paths.results())
    wanted = None if study is None else read_study(study, results).run_ids
    runs = []
    epochs = []
    refused = {}
    unfinished = dict.fromkeys(sorted(wanted or ()), "absent")
    for folder in packed.folders(results):
        if wanted is not None and folder.name not in wanted:
            continue
        unfinished.pop(folder.name, None)
        try:
            if (progress := state(folder)) != "complete":
                unfinished[folder.name] = progress
                continue
            run, rows = _read(folder, results)
        except (Refused, OSError) as error:
            refused[folder.name] = str(error)
            continue
        runs.append(run)
        epochs += [{"run_id": folder.name} | row for row in rows]
    columns = ["run_id", *schema.names(schema.EPOCHS)]
    metrics = sorted({name for row in epochs for name in row}.difference(columns))  # a workload's own metrics
    return Records(
        pd.DataFrame(runs, columns=[*schema.names(schema.RUNS), "blocks"]),
        pd.DataFrame(epochs, columns=columns + metrics),
        refused,
        unfinished,
    )


def load_run(folder: Path) -> dict[str, Any]:
    """One run: {"run": its row, "epochs", "steps", "ranks": frames}.

    Raises:
        Refused: its records are damaged or contradict themselves.
    """
    import pandas as pd

    folder = Path(folder)
    run, rows = _read(folder, folder.parent.parent)
    return {
        "run": run,
        "epochs": pd.DataFrame(rows),
        "steps": _steps(folder),
        "ranks": pd.read_csv(io.BytesIO(packed.content(folder / "ranks.csv"))),
    }


def load_rounds(runs: pd.DataFrame, results: Path) -> pd.DataFrame:
    """The rounds of those of `runs` that took turns: `run_id` and the columns of `schema.ROUNDS`."""
    import pandas as pd

    tables = {run.run_id: _table(results / run.path / fingerprint.ROUNDS) for run in runs.itertuples() if run.blocks}
    rows = [{"run_id": run_id} | row for run_id, table in tables.items() for row in table]
    return pd.DataFrame(rows, columns=["run_id", *schema.names(schema.ROUNDS)]).astype({"session": str})


def collect(results: Path | None = None) -> Records:
    """Load everything and write `csv/runs.csv` and `csv/epochs.csv` next to the runs; a packed set has the latter."""
    results = Path(results or paths.results())
    records = load(results)
    tables = {"runs": records.runs.drop(columns="blocks")} | (
        {} if (results / packed.RUNS).is_file() else {"epochs": records.epochs}
    )
    for name, frame in tables.items():
        text = frame.to_csv(index=False, lineterminator="\n")
        atomic.write_text(results / "csv" / f"{name}.csv", text)
    return records


def by_other_code(records: Records, results: Path, study: str = "") -> list[str]:
    """`by_former_code`, a line for each study with runs of other code than the latest run of that workload and machine, and one
    of `by_absent_code`."""
    former = set(_of_former_code(records, results))
    runs = records.runs[~records.runs.run_id.isin(former)]
    latest = runs.sort_values("started").groupby(["workload", "hardware_id"], dropna=False).digest.transform("last")
    mixed = _lines(runs.run_id[runs.digest.ne(latest)], results, study, "than the latest")
    return by_former_code(records, results, study) + mixed + by_absent_code(records, results)


def by_absent_code(records: Records, results: Path) -> list[str]:
    """A line for each workload of a user's own that is not found from here, and has runs that are not packed."""
    return [
        f"{workload} is not found from here, so that its runs are not compared with its code: run this in its folder, or with "
        "that on PYTHONPATH"
        for workload in sorted({run.workload for run in _own_runs(records.runs, results)})
        if not source_code.digest(workload)
    ]


def by_former_code(
    records: Records, results: Path, study: str = "", cited: Collection[str] | None = None
) -> list[str]:
    """A line for each study, or for one, with runs of a user's own workload whose code has changed since; of `cited` runs, if given.

    Packed runs are not compared: they are kept, and the code moves on. The code is looked for as `hpc run` does.
    """
    former = _of_former_code(records, results)
    if cited is not None and not set(cited).intersection(former):
        return []
    return _lines(former, results, study, "of the workload than is here now (found in this folder or PYTHONPATH)")


def _of_former_code(records: Records, results: Path) -> list[str]:
    now = functools.cache(source_code.digest)
    return [
        run.run_id
        for run in _own_runs(records.runs, results)
        if now(run.workload)
        and read_json(results / run.path / "run.json")["config"].get("source", "") != now(run.workload)
    ]


def _own_runs(runs: pd.DataFrame, results: Path) -> Iterator[Any]:
    """The runs of a user's own workloads that are not packed."""
    return (run for run in runs.itertuples() if source_code.is_own(run.workload) and (results / run.path).is_dir())


def _lines(runs: Iterable[str], results: Path, study: str, comparison: str) -> list[str]:
    return [
        f"{len(outdated)} of {len(index.run_ids)} runs of {index.name} were measured by other code {comparison}"
        + (f": `{index.command} --outdated` measures them again" if index.file else "")
        for index in ([read_study(study, results)] if study else studies(results))
        if (outdated := index.run_ids.intersection(runs))
    ]


class Refused(ValueError):
    """A run's records are missing, damaged or contradict themselves."""


def verify(folder: Path) -> None:
    """Raise `Refused` with the reason if the records in `folder`, step times included, cannot be true."""
    _read(folder, folder.parent.parent)
    if not _noted(folder):
        _steps(folder)


def _steps(folder: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_csv(io.BytesIO(packed.content(folder / "steps.csv.gz")), compression="gzip")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise Refused(f"steps.csv.gz cannot be read ({type(error).__name__})") from None


def _read(folder: Path, results: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    run = read_json(folder / "run.json")
    origin = read_json(folder / "provenance.json")
    for name, value in (("run.json", run), ("provenance.json", origin)):
        if value is None:
            raise Refused(f"{name} is missing or incomplete")
    epochs = _table(folder / "epochs.csv")
    ranks = _table(folder / "ranks.csv")
    turns = folder / fingerprint.ROUNDS
    rounds = _table(turns) if packed.holder(turns) else []
    try:
        fault = next(checks.run_faults(run, origin, epochs, ranks), None) or _changed(folder)
        row = None if fault else _row(folder, results, run, origin, epochs, ranks)
        if row:
            row["blocks"] = _blocks(rounds, row["throughput"])
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        fault = f"a value is missing or of the wrong kind ({type(error).__name__}: {error})"
    if fault:
        raise Refused(fault)
    return row, epochs


def _changed(folder: Path) -> str:
    """The table that is not as the run left it; "" of packed runs, which git keeps, and of runs without digests."""
    names = (name for name, digest in _noted(folder).items() if fingerprint.of_file(folder / name) != digest)
    return next((f"{name} is damaged, or was changed after the run" for name in names), "")


def _noted(folder: Path) -> dict[str, str]:
    return (read_json(folder / "status.json") or {}).get("tables", {}) if folder.is_dir() else {}


def _row(
    folder: Path, results: Path, run: dict, origin: dict, epochs: list[dict], ranks: list[dict]
) -> dict[str, Any]:
    config = run.get("config", {})
    last = epochs[-1]
    samples, seconds = sum(r["samples"] for r in epochs), sum(r["seconds"] for r in epochs)
    joules = [r.get("energy_joules") for r in epochs]
    evaluated = [r["test_accuracy"] for r in epochs if r.get("test_accuracy") is not None]
    row = {name: run.get(name, config.get(name)) for name in schema.names(schema.RUNS)}
    return row | {
        "run_id": folder.name,
        "state": "complete",
        "epochs": last["epoch"],
        "samples": samples,
        "units": sum(r["units"] for r in epochs) if run.get("unit") else None,
        "seconds": seconds,
        "throughput": samples / seconds,
        "step_p50": statistics.median(steps)
        if (steps := [r["step_p50"] for r in epochs if r.get("step_p50")])
        else None,
        "test_accuracy": evaluated[-1] if evaluated else None,
        "energy_joules": None if None in joules else sum(joules),
        "energy_source": None if None in joules else run.get("energy_source"),
        "settings": settings(config),
        "device_name": ranks[0]["device_name"],
        **{name: max((r[name] for r in ranks if r.get(name) is not None), default=None) for name in LARGEST},
        "device_bytes": _device_bytes(run, origin),
        "host": ranks[0]["host"],
        "job_id": (origin.get("job") or {}).get("id"),
        "digest": digests(origin),
        "commit": origin.get("commit"),
        "dirty": origin.get("dirty"),
        "started": origin.get("collected_at"),
        "torch": (origin.get("versions") or {}).get("torch"),
        "path": folder.relative_to(results).as_posix(),
    }


def _device_bytes(run: dict, origin: dict) -> int | None:
    machine = origin.get("hardware") or {}
    device = machine if run.get("device") == "cpu" else next(iter(machine.get("gpus") or []), {})
    return device.get("memory_bytes")


def _blocks(rounds: list[dict], throughput: float) -> dict[tuple[str, int], float]:
    """`Records.runs.blocks`; round 0 is a step alone, which tells how long the blocks are to be."""
    return {
        (str(row["session"]), row["round"]): row["seconds"] / row["samples"] * throughput
        for row in rounds
        if row["round"]
    }


def digests(origin: dict) -> str:
    """The code's digest; where a run was continued by other code, all of them in order."""
    attempts = [*origin.get("continues", ()), origin]
    return "+".join(dict.fromkeys((attempt.get("digest") or "")[:12] for attempt in attempts))


def _table(path: Path) -> list[dict[str, Any]]:
    try:
        rows = packed.table(path, packed.content(path))
    except OSError as error:
        raise Refused(f"{path.name} cannot be read ({error.strerror})") from None
    return [{name: _value(cell) for name, cell in row.items()} for row in rows]


def _value(cell: str) -> Any:
    if cell == "":
        return None
    try:  # isdigit first: an exception is much slower
        return int(cell) if cell.lstrip("-").isdigit() else float(cell)
    except ValueError:
        return cell
