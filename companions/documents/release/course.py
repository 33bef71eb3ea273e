"""The release of a course's repository: what was handed in, packed and tagged, on whatever hardware it was measured."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpc_utils import paths
from hpc_utils.plural import counted
from hpc_utils.records import atomic

from .. import project
from . import checklist
from .crate import ReleaseRefused

TAG = "v1.0"
HANDED_IN = ("results.csv", "run.sh", "submit.sbatch", "reproduce.md", "SYSTEM.md")


def faults(root: Path) -> Iterator[str]:
    """What the clone at `root` lacks, a line each: files that are not committed, a folder of `hpc export --course`, PDFs, finished
    sources."""
    if names := checklist.uncommitted(root):
        yield f"not as committed: {names}"
    tracked = set(checklist.tracked(root))
    folders = {Path(name).parent for name in tracked if Path(name).name == "reproduce.md"}
    if not folders:
        yield "no folder of a study is committed: `hpc export --course STUDY --output handin`"
    for folder in sorted(folders):
        for name in HANDED_IN:
            if (folder / name).as_posix() not in tracked:
                yield f"{folder / name} is missing"
        if lacking := _without_records(root, folder, tracked):
            why = f"no committed set has the records of {counted(lacking, 'run')} of {folder / 'results.csv'}"
            yield f"{why}: `hpc study keep STUDY --as NAME`"
    # Those of the compendium itself are in docs/pdf.
    pdfs = {Path(name).stem for name in tracked if Path(name).match("docs/*.pdf") and name.count("/") == 1}
    if not pdfs:
        yield "no PDF is committed in docs/: `hpc paper` builds them"
    if "paper/paper.toml" in tracked:
        yield from _unfinished(root / "paper", pdfs)


def _without_records(root: Path, folder: Path, tracked: Iterable[str]) -> int:
    """How many runs of a folder's results.csv are in no packed set."""
    table = root / folder / "results.csv"
    rows = csv.DictReader(table.read_text().splitlines()) if table.is_file() else ()
    run_ids = {row["run_id"] for row in rows if row.get("run_id")}
    packed = [
        (root / name).read_text() for name in tracked if Path(name).match(f"results/reference/*/{paths.PACKED}")
    ]
    return sum(not any(f'"{run_id}"' in text for text in packed) for run_id in run_ids)


def _unfinished(folder: Path, pdfs: set[str]) -> Iterator[str]:
    """What the sources of the committed PDFs leave open."""
    paper = project.read_project(folder / "paper.toml")
    for alias, place in paper.sets.items():
        if Path(place).is_absolute():
            yield f"paper/paper.toml: {alias} is {place}, of this machine alone: `hpc study keep` makes a set to commit"
    for name in pdfs & paper.document.keys():
        entry = paper.document[name]
        if ".guide" in (folder / entry.source).read_text():
            yield f"paper/{entry.source} has grey boxes: replace them by text"
        if entry.planned:
            yield f"paper/paper.toml: without `planned` of {name}, `hpc paper {name}` names what is not measured"


def release(root: Path, output: Path) -> Path:
    """Tag the commit of `root` as `TAG`, unless it is, and write `output/<folder's name>-1.0.zip` of it.

    Raises:
        ReleaseRefused: something is missing, or the tag is at another commit.
    """
    if lacking := list(faults(root)):
        raise ReleaseRefused("\n".join(lacking))
    head = checklist.git(root, "rev-parse", "HEAD")
    if not checklist.git(root, "tag", "--list", TAG):
        checklist.git(root, "tag", "--annotate", TAG, "--message", "Handed in")
    elif checklist.git(root, "rev-parse", f"{TAG}^{{commit}}") != head:
        raise ReleaseRefused(f"{TAG} is at another commit: delete it (`git tag -d {TAG}`) to hand in this one")
    name = f"{root.name}-{TAG.removeprefix('v')}"
    path = output / f"{name}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = checklist.git(root, "archive", "--format=zip", f"--prefix={name}/", TAG)
    atomic.write_file(path, lambda file: file.write(content))
    return path
