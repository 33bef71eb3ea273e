"""The checklist of a release: requirements of any version, and further ones of version 1.0 (RELEASING.md)."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import tomllib
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from hpc_utils import paths, records
from hpc_utils.analyze import claims, reproduction
from hpc_utils.provenance import SHORT
from hpc_utils.provenance.git import ELSEWHERE
from hpc_utils.publish import exports, manifest, staleness
from hpc_utils.publish.documents.sets import ResultSet, Sets
from hpc_utils.records.folder import read_json

from . import crate
from .crate import CITATION, REFERENCE, ReleaseRefused, citation, project, result_sets

PASSED = "results/passed.json"  # .ci/run writes it when all tests pass: {"commit": SHA}
BUILD = "paper/build"
PAGES = ("README.md", "REPRODUCE.md")  # tests execute their commands
GPU_STUDIES = ("cifar10-gpu", "strong", "weak", "profiling", "optimization", "sensitivity")
LARGEST = 2**20  # bytes of a committed file
LARGER = {".ipynb": 5 * 2**19, "/files.zip": 5 * 2**20}  # of a result set: executed chapters; profiles
PERSONAL = re.compile(rb"(?<![\w.~$}\]/-])/(?:home|Users|root|lustre|scratch)/[\w.-]+")
PLACEHOLDER = re.compile(r"(?i)the compendium's authors|.*\byour\b.*|anonymous.*|a\. ?author")


@dataclass(frozen=True)
class Item:
    """One line of the checklist. `always`: any version needs it; others from 1.0 on."""

    name: str
    faults: list[str]
    always: bool


def items(root: Path) -> list[Item]:
    """The checklist for the clone at `root`.

    Raises:
        ReleaseRefused: it is not a git clone with a commit, or pyproject.toml or CITATION.cff cannot be read.
    """
    commit, files = git(root, "rev-parse", "HEAD").decode().strip(), tracked(root)
    sets, cited = [root / folder for folder in result_sets(files)], citation(root)
    always = {
        "committed": _committed(root, files),
        "tests pass": _tested(root, commit),
        "no machine's path": _machine_paths(root, files),
        "sizes": _sizes(root, files),
        "one version": _version(root),
        "exports are current": _current(sets),
        "texts are built": _documents(root, commit, files),
    }
    beyond = {
        "commands are tested": _commands(root),
        "claims are judged": _claims(root),
        "measured on GPUs": _gpus(sets),
        "reproduced elsewhere": _reproduced(sets),
        "citation": _cited(cited),
        "DOI": [] if cited["doi"] else [f"no DOI is reserved: add it to {CITATION} as an identifier"],
    }
    return [Item(name, list(faults), own is always) for own in (always, beyond) for name, faults in own.items()]


def refused(found: Iterable[Item], version: str) -> list[str]:
    """The reasons why `version` cannot be released.

    Raises:
        ReleaseRefused: it is not a version number.
    """
    try:
        final = Version(version).major >= 1
    except InvalidVersion:
        raise ReleaseRefused(f"pyproject.toml: {version!r} is not a version number") from None
    return [f"{one.name}: {fault}" for one in found if one.always or final for fault in one.faults]


def git(root: Path, *arguments: str, **environment: str) -> bytes:
    """The output of a git command.

    Raises:
        ReleaseRefused: `root` is not a clone, or git fails.
    """
    if not (root / ".git").exists():
        raise ReleaseRefused(f"{root} is not a git clone")
    own = {key: value for key, value in os.environ.items() if key not in ELSEWHERE}
    own |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **environment}
    command = ["git", "-C", str(root), "-c", "core.fsmonitor=false", *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True, env=own, timeout=120).stdout
    except FileNotFoundError:
        raise ReleaseRefused("git is not installed") from None
    except subprocess.CalledProcessError as error:
        raise ReleaseRefused(f"git {arguments[0]}: {error.stderr.decode(errors='replace').strip()}") from None


def tracked(root: Path) -> list[str]:
    """The committed files that exist in the folder."""
    names = git(root, "ls-files", "-z").decode().split("\0")
    return [name for name in names if name and (root / name).is_file()]


def uncommitted(root: Path) -> str:
    """The first files that differ from the commit, or are neither committed nor ignored; "" if there are none."""
    lines = git(root, "status", "--porcelain", "-z", "--untracked-files=normal", "--no-renames").decode().split("\0")
    return _first([line[3:] for line in lines if line])


def built(root: Path) -> list[str]:
    """The documents that `make paper` built, and their manifest."""
    documents = manifest.read(root / BUILD).values()
    return [f"{BUILD}/{file}" for file in (manifest.FILE, *(one["file"] for one in documents))]


def _committed(root: Path, files: Iterable[str]) -> Iterator[str]:
    if names := uncommitted(root):
        yield f"not as committed: {names}"
    if links := [name for name in files if (root / name).is_symlink()]:
        yield f"symbolic links, which archives unpack differently: {_first(links)}"


def _tested(root: Path, commit: str) -> Iterator[str]:
    passed = (read_json(root / PASSED) or {}).get("commit")
    if passed != commit:
        where = f"at {passed[:SHORT]}" if passed else "nowhere"
        yield f"the tests passed {where}, not at {commit[:SHORT]}: run `.ci/run`"


def _machine_paths(root: Path, files: Iterable[str]) -> Iterator[str]:
    """Paths of this machine in any file, and of any machine in results, also in compressed files."""
    own = [str(path).encode() for path in {paths.root(), paths.results(), Path.home()} if len(path.parts) > 2]
    for file in files:
        for name, content in _unpacked(file, (root / file).read_bytes()):
            found = [path for path in own if path in content]
            if name.startswith(f"{REFERENCE}/"):
                found += PERSONAL.findall(content)
            if found:
                yield f"{name} holds {found[0].decode()}"


def _unpacked(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    if name.endswith(".gz"):
        yield name, gzip.decompress(content)
    elif name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                yield from _unpacked(f"{name}/{member}", archive.read(member))
    else:
        yield name, content


def _sizes(root: Path, files: Iterable[str]) -> Iterator[str]:
    for name in files:
        larger = (size for end, size in LARGER.items() if name.startswith(f"{REFERENCE}/") and name.endswith(end))
        limit, size = next(larger, LARGEST), (root / name).stat().st_size
        if size > limit:
            yield f"{name} has {size / 2**20:.1f} MiB, more than {limit / 2**20:g}: it belongs in an archive, not in git"


def _version(root: Path) -> Iterator[str]:
    cited, own = citation(root), project(root)
    if cited["version"] != own["version"]:
        yield f"{CITATION} has version {cited['version']}, pyproject.toml {own['version']}"
    if own["license"] not in cited["license"]:
        yield f"{CITATION} does not name {own['license']}, the licence in pyproject.toml"


def _current(sets: Iterable[Path]) -> Iterator[str]:
    for folder in sets:
        for check in (staleness.faults, staleness.untraceable, staleness.computed_otherwise):
            yield from (f"{folder.name}: {fault}" for fault in check(folder))


def _documents(root: Path, commit: str, files: Collection[str]) -> Iterator[str]:
    """Each PDF is the file that its build wrote, at this commit, from its sources and this state of the sets."""
    try:
        written, wanted = manifest.read(root / BUILD), _toml(root / "paper/paper.toml")["document"]
    except (manifest.NoManifest, OSError, KeyError, ValueError) as error:
        yield f"run `make paper`: {error}"
        return
    yield from (f"{name} is not built: run `make paper`" for name in wanted if name not in written)
    for name, entry in written.items():
        sources = {path: manifest.of_bytes((root / path).read_bytes()) for path in entry["sources"] if path in files}
        if entry["commit"] != commit:
            fault = f"{name} was built at another commit"
        elif _digest(manifest.of_file, root / BUILD / entry["file"]) != entry["sha256"]:
            fault = f"{BUILD}/{entry['file']} is not the file that `make paper` wrote"
        elif sources != entry["sources"]:
            fault = f"{name} was built from other sources than the commit's"
        elif any(_digest(manifest.of_set, root / path) != own for path, own in entry["sets"].items()):
            fault = f"{name} was built from another state of {', '.join(entry['sets'])}"
        else:
            continue
        yield f"{fault}: run `make paper`"


def _digest(of: Callable[[Path], str], path: Path) -> str | None:
    try:
        return of(path)
    except (OSError, exports.ExportError):
        return None


def _commands(root: Path) -> Iterator[str]:
    tests = [path.read_text() for path in (root / "tests").rglob("*.py")]
    for page in PAGES:
        if not (root / page).is_file() or not any(f'"{page}"' in test for test in tests):
            yield f"no test reads {page}: its commands may not work"


def _claims(root: Path) -> Iterator[str]:
    """Whether the claims of the paper are measured, with enough repeats."""
    try:
        listed = _toml(root / "paper/paper.toml")
        sets = Sets(
            ResultSet(alias, root / path, exports.read(root / path)) for alias, path in listed["sets"].items()
        )
        stated = claims.read(root / "paper" / listed.get("claims", "claims.toml"))
        judged = claims.judge(stated, lambda name: sets.value(name).what, tables=sets.table_names)
    except (OSError, LookupError, ValueError) as error:
        yield str(error)
        return
    if not judged:
        yield "the paper makes no claim"
    missing = (claims.NOT_MEASURED, claims.TOO_FEW)
    yield from (f"{one.name}: {one.verdict}" for one in judged if one.verdict in missing)


def _gpus(sets: Iterable[Path]) -> Iterator[str]:
    measured = set()
    for folder in sets:
        for index in (folder / "studies").glob("*.json"):
            study, runs = read_json(index), records.load(folder, study=index.stem).runs
            whole = set(runs.run_id) >= {run["run_id"] for run in study["runs"]}
            if whole and set(runs.device) in ({"cuda"}, {"rocm"}):
                measured.add(study["name"])
    if missing := [study for study in GPU_STUDIES if study not in measured]:
        yield f"no committed result set has {', '.join(missing)} on GPUs"


def _reproduced(sets: Iterable[Path]) -> Iterator[str]:
    def hardware(account: Mapping[str, Any], side: str) -> str | None:
        return ((account.get(side) or {}).get("provenance") or {}).get("hardware_id")

    for one in (read_json(path) or {} for folder in sets for path in (folder / "verify").glob("*.json")):
        agrees = one.get("verdict") == "agree" and reproduction.is_tolerance(one.get("tolerance"))
        if agrees and hardware(one, "then") != hardware(one, "now"):
            return
    yield f"no run agrees on other hardware: run `hpc verify` there, and commit its account as {REFERENCE}/SET/verify/RUN.json"


def _cited(cited: Mapping[str, Any]) -> Iterator[str]:
    for author in cited["authors"]:
        if PLACEHOLDER.fullmatch(who := crate.name(author)):
            yield f"{CITATION}: the author {who!r} is a placeholder"
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", cited.get("date-released", "")):
        yield f"{CITATION}: date-released is not set"


def _first(names: list[str], count: int = 5) -> str:
    return ", ".join(names[:count]) + (f" and {len(names) - count} more" if len(names) > count else "")


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())
