"""SYSTEM.md of the clone (hardware, software, dates and jobs of each committed result set), the README's table of their speed, and
the sets' own SYSTEM.md. `make docs` writes all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths, provenance, records
from hpc_utils.provenance.facts import FACTS, UNKNOWN, facts
from hpc_utils.records import atomic
from hpc_utils.records.folder import read_json

from . import tables
from .formatting import ABSENT, number

if TYPE_CHECKING:
    import pandas as pd

WRITTEN = "<!-- written by `make docs` from the provenance of the committed runs -->"
FASTEST, END = "<!-- written by make docs from the committed runs -->", "<!-- end -->"
GOALS = (0.94, 0.96)  # shares of CIFAR-10's test images
NO_SET = "No result set is committed."
VERSIONS = ("python", "torch", "cuda", "nccl", "blas", "onednn", "slurm")


def renew(sets: Sequence[Path] | None = None) -> Path:
    """Write all pages; returns the path of the clone's SYSTEM.md. `sets`: by default the committed ones."""
    written = pages(sets)
    for path, text in written.items():
        atomic.write_text(path, text)
    return list(written)[-1]


def pages(sets: Sequence[Path] | None = None) -> dict[Path, str]:
    """{path: its text}: each set's page, the README, the clone's page last."""
    sets = sorted(paths.reference().glob("*/")) if sets is None else sets
    found = {folder: records.load(folder) for folder in sets}
    origins = {folder: _origins(folder, own.runs) for folder, own in found.items()}
    written = {folder / "SYSTEM.md": provenance.system_markdown(origins[folder]) for folder in sets}
    readme = paths.root() / "README.md"
    before, _, rest = readme.read_text().partition(FASTEST)
    written[readme] = f"{before}{FASTEST}\n\n{fastest(found)}\n\n{END}{rest.partition(END)[2]}"
    return written | {paths.root() / "SYSTEM.md": overview(found, origins)}


def fastest(found: Mapping[Path, records.Records]) -> str:
    """A row for each set, model and data set: the fastest configuration of one device, and the shortest time to `GOALS`."""
    import pandas as pd

    from hpc_utils.analyze import cost, points

    images, parts = tables.measured("throughput"), []
    for folder, own in found.items():
        runs = points.unprofiled(own.runs)
        runs = runs[runs.world_size == 1]
        best = points.points(runs).sort_values("throughput", ascending=False).groupby(["workload", "dataset"]).head(1)
        columns: dict[str, tables.Writer] = {
            "set": lambda row, folder=folder: f"[`{folder.name}`]({_link(folder)})",
            "one device": lambda row: row["device_name"],
            "model on data set": lambda row: f"{row['workload']} on {row['dataset']}",
            "precision": lambda row: row["precision"],
            "images/s": images,
            "repeats": lambda row: str(row["repeats"]),
        }
        for goal in GOALS:
            reached = cost.to_accuracy(runs[runs.dataset == "cifar10"], own.epochs, goal, {})
            soonest = reached.dropna(subset="seconds").sort_values("seconds").groupby("workload").head(1)
            times = tables.table(soonest, {"seconds": tables.measured("seconds")}).seconds
            known = {(name, "cifar10"): time for name, time in zip(soonest.workload, times, strict=True)}
            columns[f"to {goal:.0%} (s)"] = lambda row, known=known: known.get(
                (row["workload"], row["dataset"]), ABSENT
            )
        parts.append(tables.table(best, columns))
    return tables.markdown(pd.concat(parts)) if parts else NO_SET


def overview(found: Mapping[Path, records.Records], origins: Mapping[Path, Sequence[Mapping[str, Any]]]) -> str:
    """The page about all sets: a column for each set, a row for each question."""
    import pandas as pd

    from hpc_utils.analyze import cost

    totals = {folder: cost.total(own.runs, own.epochs) for folder, own in found.items()}
    answers = {
        f"[`{folder.name}`]({_link(folder)}/SYSTEM.md)": dict(_answers(folder, own, origins[folder], totals[folder]))
        for folder, own in found.items()
    }
    table = tables.markdown(pd.DataFrame(answers).rename_axis("").reset_index()) if answers else NO_SET
    notes = "".join(
        f"- {note}\n" for note in dict.fromkeys(note for total in totals.values() for note in total.notes)
    )
    return f"""# What the results were measured on

{WRITTEN}

Each column is a committed result set; its own page has the rest: interfaces, variables, each job's nodes. *Not recorded*: the
measuring code of that day did not record it. *{UNKNOWN.capitalize()}*: the machine does not show it.

{table}

{notes}
Measured by the authors in [`CITATION.cff`](CITATION.cff). Serial numbers and addresses are never recorded.
[`REPRODUCE.md`](REPRODUCE.md) describes how to repeat each set.
"""


def _answers(
    folder: Path, own: records.Records, origins: Sequence[Mapping[str, Any]], total: Any
) -> Iterator[tuple[str, str]]:
    import pandas as pd

    runs, recorded = own.runs, [facts(origin) for origin in origins]
    for label in (*(label for label, *_ in FACTS), *VERSIONS):
        known = [one[label] for one in recorded if label in one]
        yield label, _different(known) if known else "not recorded"
    jobs = [one.get("job") or {} for one in origins]
    jobs = {str(job.get("array_job_id") or job.get("id")) for job in jobs if job.get("scheduler")}
    yield "jobs", f"{len(jobs)}: {_different(jobs)}" if jobs else ABSENT
    cores = [f"CPU of {cores:g} core{'s' * (cores > 1)}" for cores in runs.threads_per_rank[runs.device == "cpu"]]
    yield "devices of a run", _different(cores + ["GPU"] * bool((runs.device != "cpu").any()))
    yield "nodes x ranks", _different(f"{run.nodes:.0f}x{run.ranks_per_node:.0f}" for run in runs.itertuples())
    rates = runs.link_gbit[runs.nodes > 1]
    yield "links between nodes", _different(f"{rate:g} Gbit/s" if pd.notna(rate) else "not limited" for rate in rates)
    days = sorted({str(day)[:10] for day in (runs.started.min(), runs.started.max())}) if len(runs) else [ABSENT]
    yield "measured", " to ".join(days)
    commits = [
        f"`{commit[: provenance.SHORT]}`{' (modified)' * bool(dirty)}" if commit else None
        for commit, dirty in zip(runs.commit, runs.dirty, strict=True)
    ]
    yield "commit", _different(commits)
    digests = zip(runs.digest, origins, strict=True)
    digests = (f"`{digest}`{provenance.of_rule(origin)}" for digest, origin in digests)
    yield "digest of the measuring code", _different(digests)
    cluster = re.compile(f"-({'|'.join(map(re.escape, set(runs.hardware_id)))})$")  # suffix of a cluster's studies
    yield "studies", _different(f"`{cluster.sub('', path.stem)}`" for path in (folder / "studies").glob("*.json"))
    yield "runs", f"{len(runs)}" + f", {len(own.refused)} refused" * bool(own.refused)
    yield "compute", f"{number(total.core_hours)} core-hours, {number(total.gpu_hours)} GPU-hours"
    yield "energy", f"{number(total.energy_kwh)} kWh of {total.counted} runs" if total.counted else "not counted"


def _origins(folder: Path, runs: pd.DataFrame) -> list[Mapping[str, Any]]:
    return [read_json(folder / "runs" / run / "provenance.json") for run in runs.run_id]


def _different(values: Iterable[Any]) -> str:
    """Each value once, in natural order, unknown values last."""
    seen = set(values)
    known = sorted(
        map(str, seen - {None}),
        key=lambda text: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)],
    )
    return ", ".join(known + [ABSENT] * (None in seen or not seen))


def _link(folder: Path) -> str:
    root = paths.root()
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.as_posix()
