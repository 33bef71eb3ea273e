"""The checklist of a release: requirements of any version, and further ones of version 1.0 (RELEASING.md)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from hpc_utils import provenance, records
from hpc_utils.publish import exports, formatting, staleness
from hpc_utils.records.folder import read_json

from .. import claims, project
from ..build import build
from ..faults import DocumentError
from ..sets import ResultSet, Sets, read_context
from . import crate
from .crate import CITATION, REFERENCE, ReleaseRefused, result_sets

PASSED = "results/passed.json"  # .ci/run writes it when all tests pass: {"commit": SHA}
GPU_STUDIES = ("cifar10-gpu", "strong", "weak", "profiling", "optimization", "sensitivity")
PLACEHOLDER = re.compile(r"(?i)compendium's authors|\byour\b|anonymous")


@dataclass(frozen=True)
class Item:
    """One line of the checklist. `always`: any version needs it; others from 1.0 on."""

    name: str
    faults: list[str]
    always: bool


def items(root: Path) -> list[Item]:
    """The checklist for the clone at `root`.

    Raises:
        ReleaseRefused: it is not a git clone with a commit.
    """
    git(root, "rev-parse", "HEAD")
    lines = []
    for name, (check, always) in CHECKS.items():
        try:
            faults = list(check(root))
        except (OSError, ValueError) as error:
            faults = [str(error)]
        lines.append(Item(name, faults, always))
    return lines


def refused(lines: Iterable[Item], version: str) -> list[str]:
    """The reasons why `version` cannot be released.

    Raises:
        ReleaseRefused: it is not a version number.
    """
    try:
        final = Version(version).major >= 1
    except InvalidVersion:
        raise ReleaseRefused(f"pyproject.toml: {version!r} is not a version number") from None
    return [f"{item.name}: {fault}" for item in lines if item.always or final for fault in item.faults]


def git(root: Path, *arguments: str) -> bytes:
    """The output of a git command.

    Raises:
        ReleaseRefused: git fails, for example because `root` is not a clone.
    """
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True, env=os.environ | {"TZ": "UTC"}).stdout
    except FileNotFoundError:
        raise ReleaseRefused("git is not installed") from None
    except subprocess.CalledProcessError as error:
        raise ReleaseRefused(f"git {arguments[0]}: {error.stderr.decode(errors='replace').strip()}") from None


def tracked(root: Path) -> list[str]:
    """The committed files."""
    return git(root, "ls-files", "-z").decode().split("\0")[:-1]


def uncommitted(root: Path) -> str:
    """The first files that differ from the commit, or are neither committed nor ignored; "" if there are none."""
    names = [line[3:] for line in git(root, "status", "--porcelain").decode().splitlines()]
    return formatting.first_names(names, 5)


def _committed(root: Path) -> Iterator[str]:
    if names := uncommitted(root):
        yield f"not as committed: {names}"


def _tested(root: Path) -> Iterator[str]:
    if (read_json(root / PASSED) or {}).get("commit") != provenance.commit(root):
        yield "the tests have not passed at this commit: run `.ci/run`"


def _current(root: Path) -> Iterator[str]:
    for folder in result_sets(root):
        exported = exports.read_exports(folder)
        faults = staleness.faults(exported, records.load(folder)) + staleness.computed_otherwise(exported)
        faults += [
            f"exports/{stem}.json was written by uncommitted code: commit, then {staleness.remedy(folder, page)}"
            for stem, page in exported.pages.items()
            if page["dirty"] is not False
        ]
        yield from (f"{folder.name}: {fault}" for fault in faults)


def _documents(root: Path) -> Iterator[str]:
    """The faults of the texts, from which the release builds the PDFs."""
    try:
        build(read_context(root), check=True)
    except DocumentError as error:
        yield from map(str, error.faults)


def _claims(root: Path) -> Iterator[str]:
    """Claims of the paper that are not measured, or with too few repeats."""
    paper = project.read_project(root / "paper/paper.toml")
    sets = Sets(
        ResultSet(alias, root / path, exports.read_exports(root / path), checked=False)
        for alias, path in paper.sets.items()
    )
    stated = claims.read_claims(root / "paper" / paper.claims)
    for judgement in claims.judge(stated, lambda name: sets.value(name).content, formatting.text):
        if judgement.verdict in (claims.NOT_MEASURED, claims.TOO_FEW):
            yield f"{judgement.name}: {judgement.verdict}"


def _gpus(root: Path) -> Iterator[str]:
    missing = set(GPU_STUDIES)
    for folder in result_sets(root):
        runs = records.load(folder).runs
        measured = set(runs.run_id[runs.device.isin(["cuda", "rocm"])])
        missing -= {study.name for study in records.studies(folder) if study.run_ids <= measured}
    if missing:
        yield f"no committed result set has {', '.join(sorted(missing))} on GPUs"


def _reproduced(root: Path) -> Iterator[str]:
    for path in root.glob(f"{REFERENCE}/*/verify/*.json"):
        account = read_json(path)
        machines = {account[side]["provenance"]["hardware_id"] for side in ("then", "now")}
        if account["verdict"] == "agree" and len(machines) == 2:
            return
    yield f"no run agrees on other hardware: run `hpc verify` there, and commit its account as {REFERENCE}/SET/verify/RUN.json"


def _cited(root: Path) -> Iterator[str]:
    cited = crate.citation(root)
    for author in map(crate.name, cited["authors"]):
        if PLACEHOLDER.search(author):
            yield f"{CITATION}: the author {author!r} is a placeholder"
    if not cited.get("date-released"):
        yield f"{CITATION}: date-released is not set"
    if not cited["doi"]:
        yield f"{CITATION}: no DOI is reserved: add it as an identifier"


# {item: (its check, which yields faults; whether any version needs it)}
CHECKS = {
    "committed": (_committed, True),
    "tests pass": (_tested, True),
    "exports are current": (_current, True),
    "texts have no fault": (_documents, True),
    "claims are judged": (_claims, False),
    "measured on GPUs": (_gpus, False),
    "reproduced elsewhere": (_reproduced, False),
    "citation": (_cited, False),
}
