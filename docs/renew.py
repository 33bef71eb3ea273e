"""Renews what is written from the code and the committed runs (`make docs`): SYSTEM.md of the clone (hardware, software, dates and
jobs of each committed result set) and of each set, the measured values in docs/results.md, the verdicts in docs/read-a-profile.md, and the
README's picture of a report, if there is a Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from hpc_utils import paths, provenance, records
from hpc_utils.analyze import cost, points
from hpc_utils.analyze.profiles import verdict
from hpc_utils.provenance.facts import FACTS, UNKNOWN, facts
from hpc_utils.publish import cells, exports, formatting, tables
from hpc_utils.publish.formatting import ABSENT, number
from hpc_utils.publish.report import bind
from hpc_utils.records import atomic
from hpc_utils.records.folder import read_json

FASTEST, END = "<!-- written by make docs from the committed runs -->", "<!-- end -->"
VERDICTS = "<!-- written by `make docs` from hpc_utils/analyze/profiles/verdict.py -->"
# A row of a table that ends in the name of a cell: what was measured stands before it.
MEASURED = re.compile(r"\| [^|\n]* \| `(([\w-]+):[^`\n]+)` \|$", re.M)
TASK = ["workload", "dataset"]
VERSIONS = ("python", "torch", "cuda", "nccl", "blas", "onednn", "slurm")
PAGE = f"""# What the results were measured on

<!-- written by `make docs` from the provenance of the committed runs -->

Each column is a committed result set; its own page has the rest: interfaces, variables, each job's nodes. *Not recorded*: the
measuring code of that day did not record it. *{UNKNOWN.capitalize()}*: the machine does not show it.

{{table}}

Measured by the authors in [`CITATION.cff`](CITATION.cff). Serial numbers and addresses are never recorded.
[`REPRODUCE.md`](REPRODUCE.md) describes how to repeat each set.
"""


def verdicts() -> dict[Path, str]:
    """{docs/read-a-profile.md: its text} with the verdicts and when each is reached."""
    page = paths.root() / "docs" / "read-a-profile.md"
    rows = [f"| {bound} | {when} |" for bound, when in verdict.WHEN.items()]
    return {page: between(page, VERDICTS, "\n".join(["| verdict | reached when |", "| --- | --- |", *rows]))}


def between(page: Path, begin: str, text: str) -> str:
    """The page with `text` between the marks `begin` and `END`."""
    before, _, rest = page.read_text().partition(begin)
    return f"{before}{begin}\n\n{text}\n\n{END}{rest.partition(END)[2]}"


def pages(sets: Sequence[Path]) -> dict[Path, str]:
    """{path: its text}: each set's page, docs/results.md, the clone's page last."""
    written, answers, speeds = {}, {}, []
    results = paths.root() / "docs" / "results.md"
    for folder in sets:
        own = records.load(folder)
        origins = [read_json(folder / "runs" / run / "provenance.json") for run in own.runs.run_id]
        link = os.path.relpath(folder, paths.root())
        written[folder / "SYSTEM.md"] = provenance.system_markdown(origins)
        answers[f"[`{folder.name}`]({link}/SYSTEM.md)"] = _answers(folder, own, origins)
        speeds.append(fastest(f"[`{folder.name}`]({os.path.relpath(folder, results.parent)})", own))
    written[results] = measured(between(results, FASTEST, speed_table(pd.concat(speeds))), sets)
    table = tables.markdown(pd.DataFrame(answers).rename_axis("").reset_index())
    return written | {paths.root() / "SYSTEM.md": PAGE.format(table=table)}


def measured(text: str, sets: Sequence[Path]) -> str:
    """The text with the value of each cell of `sets` whose name ends a table row."""
    known = {folder.name: exports.read_exports(folder) for folder in sets}

    def renewed(row: re.Match) -> str:
        if row[2] not in known:
            return row[0]
        value = formatting.text(cells.cell(known[row[2]], cells.parse(row[1])), "interval").replace("\xa0", " ")
        return f"| {value} | `{row[1]}` |"

    return MEASURED.sub(renewed, text)


def fastest(name: str, own: records.Records) -> pd.DataFrame:
    """The fastest configuration of one device in a set, for each model and data set."""
    runs = points.unprofiled(own.runs)
    best = points.gather(runs[(runs.world_size == 1) & ~points.barred(runs)])
    return best.sort_values("throughput", ascending=False).groupby(TASK).head(1).assign(set=name)


def speed_table(speeds: pd.DataFrame) -> str:
    """A row for each model and data set on each kind of device: the fastest of all sets."""
    best = speeds.sort_values("throughput", ascending=False).groupby(["device_name", *TASK]).head(1)
    columns: dict[str, tables.Writer] = {
        "model on data set": records.identity.task,
        "one device": lambda row: row["device_name"],
        "precision": lambda row: row["precision"],
        "samples/s": tables.measured("throughput"),
        "set": lambda row: row["set"],
    }
    return tables.markdown(tables.text_table(best, columns))


def _answers(folder: Path, own: records.Records, origins: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    runs, recorded = own.runs, pd.DataFrame([facts(origin) for origin in origins])
    core_hours = cost.total(runs, own.epochs)["core_hours"]
    gpu_hours = cost.total(runs[runs.device != "cpu"], own.epochs)["device_hours"]
    dirty = runs.dirty.map({True: " (modified)"}).fillna("")
    cluster = re.compile(f"-({'|'.join(map(re.escape, set(runs.hardware_id)))})$")  # suffix of a cluster's studies
    labels = [*(label for label, *_ in FACTS), *VERSIONS]
    return {
        **{name: _all(recorded[name].dropna()) if name in recorded else "not recorded" for name in labels},
        "measured": formatting.where(runs),
        "commit": _all(
            f"`{commit[: provenance.SHORT]}`{more}" for commit, more in zip(runs.commit, dirty, strict=True)
        ),
        "digest of the measuring code": _all(
            f"`{digest}`{provenance.of_rule(origin)}" for digest, origin in zip(runs.digest, origins, strict=True)
        ),
        "studies": _all(f"`{cluster.sub('', study.name)}`" for study in records.studies(folder)),
        "runs": str(len(runs)),
        "compute": f"{number(core_hours)} core-hours, {number(gpu_hours)} GPU-hours",
        "notes": " ".join(_notes(runs, own.epochs)),
    }


def _notes(runs: pd.DataFrame, epochs: pd.DataFrame) -> Iterator[str]:
    """What is omitted from the hours and the energy, or counted twice, a sentence each."""
    if runs.hardware_id.astype(str).str.startswith("rehearsal").any():
        yield "Nodes of a rehearsal cluster share one machine: the sum of their hours exceeds the machine's."
    counted = cost.total(runs, epochs)["energy_counted"]
    if counted < len(runs):
        extent = f"only in {counted} of {len(runs)} runs" if counted else "in no run"
        yield f"Energy was counted {extent}: no counter could be read (NVML of GPUs, RAPL of processors)."


def _all(values: Iterable[str]) -> str:
    """Each value once, in natural order."""
    parts = {text: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)] for text in values}
    return ", ".join(sorted(parts, key=parts.get)) or ABSENT


def picture_report(browser: str) -> None:
    """Renew docs/images/report.png: the report of the set `turns`."""
    with tempfile.TemporaryDirectory() as scratch:
        page = bind("turns", "laptop", Path(scratch) / "index.html")
        picture = paths.root() / "docs/images/report.png"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,900"]
        subprocess.run(
            [browser, *options, f"--user-data-dir={scratch}/profile", f"--screenshot={picture}", page.as_uri()],
            check=True,
            capture_output=True,
        )


if __name__ == "__main__":
    if chromium := shutil.which("chromium") or shutil.which("google-chrome"):
        picture_report(chromium)
    for path, text in (verdicts() | pages(sorted(paths.reference().glob("*/")))).items():
        atomic.write_text(path, text)
