"""The checklist: what a release needs, and what version 1.0 needs beyond (RELEASING.md says it for people)."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpc_utils.analyze import reproduction
from hpc_utils.provenance import SHORT
from hpc_utils.publish import exports, staleness
from hpc_utils.publish.documents.sets import ResultSet, Sets

from . import checks, citation, licences, pdfs
from .allowed import allowed
from .reports import REFERENCE, sets
from .tree import ReleaseRefused, changed, head, named

HOLDS, FAILS, UNKNOWN = "holds", "fails", "unknown"
PASSED = "results/passed.json"  # .ci/run writes it when all tests passed: {"commit": SHA}
# Pages that give commands, each with a test that executes them.
PAGES = ("README.md", "REPRODUCE.md")
# What must have been measured on GPUs: the studies, by name.
AIMS = ("cifar10-gpu", "strong", "weak", "profiling", "optimization", "sensitivity")
GPUS = ("cuda", "rocm")
ASK = "ask for it, and note it in CITATION.cff"


@dataclass(frozen=True)
class Item:
    """One line of the checklist. `always`: without it nothing is released, whatever the version."""

    name: str
    state: str
    why: str
    always: bool = False


def items(root: Path) -> list[Item]:
    """Each item as it stands for HEAD.

    Raises:
        ReleaseRefused: there is no commit to look at.
    """
    tree = head(root)
    look = Look(root, tree.commit, tree.files)
    needed = [
        ("committed", look.committed), ("nothing secret, no machine's path", look.clean), ("sizes", look.sizes),
        ("licences", look.licences), ("one version", look.version), ("exports are current", look.fresh),
        ("texts are built", look.texts),
    ]  # fmt: skip
    beyond = [
        ("tests pass", look.tests), ("commands are tested", look.commands), ("claims are judged", look.claims),
        ("measured on GPUs", look.gpus), ("reproduced elsewhere", look.reproduced), ("citation", look.citation),
        ("DOI", look.doi),
    ]  # fmt: skip
    return [_item(name, check, True) for name, check in needed] + [
        _item(name, check, False) for name, check in beyond
    ]


def refused(found: Iterable[Item], version: str) -> list[str]:
    """Why `version` cannot be released; from 1.0 on every item must hold."""
    first = _major(version) >= 1
    return [
        f"{one.name}: {one.why}" if one.always else f"{one.name} ({one.state}), which {version} needs: {one.why}"
        for one in found
        if one.state != HOLDS and (one.always or first)
    ]


def _major(version: str) -> int:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version).major
    except InvalidVersion:
        raise ReleaseRefused(f"pyproject.toml: {version!r} is no version as Python knows it") from None


def _item(name: str, check: Callable[[], Iterable[str] | tuple[str, str]], always: bool) -> Item:
    told = check()
    if isinstance(told, tuple):
        return Item(name, *told, always)
    faults = list(told)
    return Item(name, FAILS if faults else HOLDS, "\n".join(faults), always)


@dataclass(frozen=True)
class Look:
    """The checks. Each returns its faults, or (state, why)."""

    root: Path
    commit: str
    files: Mapping[str, bytes]

    def committed(self) -> Iterator[str]:
        if names := changed(self.root):
            yield f"not as committed: {named(names)}: commit, stash or delete what is not ignored"

    def clean(self) -> list[str]:
        return checks.faults(self.files, allowed())

    def sizes(self) -> list[str]:
        return checks.large(self.files, allowed())

    def licences(self) -> list[str]:
        return licences.faults(self.files, citation.project(self.files))

    def version(self) -> list[str]:
        return citation.faults(self.files)

    def fresh(self) -> Iterator[str]:
        for folder in sets(self.files):
            for ask in (staleness.faults, staleness.untraceable, staleness.computed_otherwise):
                yield from (f"{folder}: {fault}" for fault in ask(self.root / folder))

    def texts(self) -> list[str]:
        try:
            pdfs.read(self.root, self.commit, self.files)
        except ReleaseRefused as error:
            return str(error).splitlines()
        return []

    def tests(self) -> tuple[str, str]:
        try:
            passed = json.loads((self.root / PASSED).read_text())["commit"]
        except (OSError, ValueError, KeyError, TypeError):
            return UNKNOWN, f"{PASSED} is not there: `.ci/run` writes it when all tests passed"
        if passed != self.commit:
            return UNKNOWN, f"all tests passed at {passed[:SHORT]}, not yet at {self.commit[:SHORT]}: run `.ci/run`"
        return HOLDS, f"all, at {passed[:SHORT]}"

    def commands(self) -> Iterator[str]:
        tests = [
            content for path, content in self.files.items() if path.startswith("tests/") and path.endswith(".py")
        ]
        for page in PAGES:
            if page not in self.files:
                yield f"{page} is not written"
            elif not any(f'"{page}"'.encode() in content for content in tests):
                yield f"no test reads {page}: its commands may not work"

    def claims(self) -> tuple[str, str]:
        try:
            project = tomllib.loads(self.files["paper/paper.toml"].decode())
            path = self.root / "paper" / project.get("claims", "claims.toml")
            folders = {alias: self.root / folder for alias, folder in project["sets"].items()}
        except (KeyError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            return FAILS, "paper/paper.toml is missing or names no sets: it says what the claims rest on"
        if not path.is_file():
            return FAILS, f"{path.relative_to(self.root)} is missing: it states what the texts claim"
        return judged(path, folders)

    def gpus(self) -> Iterator[str]:
        measured = {study for folder in sets(self.files) for study in self._on_gpus(folder)}
        if lacking := [aim for aim in AIMS if aim not in measured]:
            yield f"no committed result set has {', '.join(lacking)} on GPUs: `hpc submit`, then `hpc study keep`"

    def _on_gpus(self, folder: str) -> Iterator[str]:
        table = csv.DictReader(io.StringIO(self.files.get(f"{folder}/csv/runs.csv", b"").decode()))
        devices = {run["run_id"]: run["device"] for run in table}
        for path, content in self.files.items():
            if path.startswith(f"{folder}/studies/") and path.endswith(".json"):
                study = json.loads(content)
                runs = [devices.get(run["run_id"]) for run in study["runs"]]
                if runs and all(device in GPUS for device in runs):
                    yield study["name"]

    def reproduced(self) -> Iterator[str]:
        accounts = [
            self._json(path)
            for folder in sets(self.files)
            for path in self.files
            if path.startswith(f"{folder}/verify/")
        ]
        if not any(
            one.get("verdict") == "agree"
            and reproduction.is_tolerance(one.get("tolerance"))
            and _machine(one, "then") != _machine(one, "now")
            for one in accounts
        ):
            yield (
                "no committed account of `hpc verify` says that a run agrees on another machine: run it there, and commit "
                f"results/verify/RUN.json as {REFERENCE}/SET/verify/RUN.json"
            )

    def citation(self) -> list[str]:
        return [f"CITATION.cff: {line}" for line in citation.incomplete(citation.read(self.files))]

    def doi(self) -> Iterator[str]:
        if not citation.doi(citation.read(self.files)):
            yield f"none is reserved: {ASK} as identifiers"

    def _json(self, path: str) -> dict[str, Any]:
        return json.loads(self.files.get(path, b"{}"))


def judged(path: Path, folders: Mapping[str, Path]) -> tuple[str, str]:
    """Whether the data give each claim of the file at `path` a verdict; that they cannot tell is one, if there are enough
    of them."""
    from hpc_utils.analyze import claims

    try:
        found = Sets(ResultSet(alias, folder, exports.read(folder)) for alias, folder in folders.items())
        verdicts = claims.judge(claims.read(path), lambda name: found.value(name).what)
    except (exports.ExportError, claims.ClaimError) as error:
        return FAILS, str(error)
    lacking = [
        f"{one.name} ({one.verdict})" for one in verdicts if one.verdict in (claims.NOT_MEASURED, claims.TOO_FEW)
    ]
    if not verdicts:
        return FAILS, f"{path.name} states no claim"
    return (FAILS, f"without data: {named(lacking)}") if lacking else (HOLDS, f"{len(verdicts)} claims")


def _machine(account: Mapping[str, Any], side: str) -> str | None:
    return ((account.get(side) or {}).get("provenance") or {}).get("hardware_id")
