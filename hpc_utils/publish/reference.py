"""Result sets worth committing: `results/reference/<hardware>/`, laid out like `results/` itself."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

from hpc_utils import paths, records
from hpc_utils.records import atomic
from hpc_utils.records.folder import PROFILE, read_json

from .chapters import write_system

RECORDS = (
    "request.json", "run.json", "provenance.json", "status.json", "epochs.csv", "ranks.csv", "steps.csv.gz",
    # Of profiles the small ones that hold no environment, as nsys' and ncu's own files do.
    "monitor/*.csv", "profile/*.csv", "profile/*.trace.json.gz",
)  # fmt: skip
SMALL = 2**20  # bytes


class CannotKeep(ValueError):
    """A study cannot be kept; the message says why."""

    exit_code = 2


def keep(study: str, name: str) -> Path:
    """Copy the complete runs of `study`, its figures and executed chapters to `results/reference/<name>/`, and what was
    probed of the same hardware.

    What is kept holds no path of this machine. Returns the folder.

    Raises:
        CannotKeep: the study is not complete, or holds runs whose records cannot be true.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise CannotKeep(f"{name!r} is no folder's name: letters, digits, dots, dashes")
    source, target = paths.results(), paths.root() / "results" / "reference" / name
    found = records.load(study=study)
    lacking = found.refused | found.unfinished
    if found.runs.empty or lacking:
        raise CannotKeep(f"study {study!r} is not complete: {', '.join(lacking) or 'it has no runs'}")
    for run in found.runs.run_id:
        folder = source / "runs" / run
        for file in (path for pattern in RECORDS for path in sorted(folder.glob(pattern))):
            if file.parent == folder or file.stat().st_size <= SMALL:
                _copy(file, target / "runs" / run / file.relative_to(folder))
    _copy(records.study_index(study), target / "studies" / f"{study}.json")
    for chapter in (source / "notebooks" / study).glob("*.ipynb"):
        _copy(chapter, target / "notebooks" / study / chapter.name)
    longer = [path.stem for path in (source / "studies").glob(f"{study}-*.json")]  # strong-512 is none of strong's
    for figure in (source / "figures").glob(f"{study}-*"):
        if not figure.name.startswith(tuple(f"{other}-" for other in longer)):
            _copy(figure, target / "figures" / figure.name)
    hardware = set(found.runs.hardware_id)
    for probe in (source / "probes").glob("*/*.json"):
        own = (read_json(probe) or {}).get("hardware_id")
        if own and any(one.endswith(own) for one in hardware):  # a cluster's name may stand before the machine's
            _copy(probe, target / "probes" / probe.parent.name / probe.name)
    write_system(records.collect(target), target)
    return target


def _copy(source: Path, target: Path) -> None:
    """Text without this machine's paths; anything else as it is."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in (".json", ".ipynb") or (source.parent.name == PROFILE and source.suffix == ".csv"):
        atomic.write_text(target, portable(source.read_text()))
    elif source.name.endswith(".json.gz"):
        text = portable(gzip.decompress(source.read_bytes()).decode())
        atomic.write(target, lambda file: file.write(gzip.compress(text.encode(), mtime=0)))
    else:
        shutil.copyfile(source, target)


def portable(text: str) -> str:
    """`text` with the clone's folder, the results' and the home folder taken out of its paths."""
    for folder, stands in ((paths.results(), "results"), (paths.root(), "."), (Path.home(), "~")):
        if folder != Path("/"):  # the home of some containers
            text = re.sub(re.escape(str(folder)) + r"(?![\w.-])", stands, text)
    return text
