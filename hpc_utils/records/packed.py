"""A packed result set: the folders `runs/<run>/` of a set in five files.

runs.jsonl        first line: values that several runs share; then one line per run: its request, run, provenance, status,
                  and the columns of its tables
csv/epochs.csv    the tables of all runs, `run_id` in front
csv/ranks.csv
csv/rounds.csv    if runs took turns
csv/steps.csv.gz
files.zip         all other files: profiles, monitors, and what the tables would not reproduce byte for byte

Packing is lossless. A file of a packed run keeps its name, `runs/<run>/<file>`: `content`, `folders`, `names` and
`unpacked` accept such paths for both kinds of sets. If a packed run also has a folder, the folder is read.
"""

from __future__ import annotations

import csv
import errno
import functools
import gzip
import hashlib
import io
import json
import shutil
import tempfile
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hpc_utils import paths

from . import atomic

RUNS, FILES = paths.PACKED, "files.zip"
DOCUMENTS = {f"{name}.json": name for name in ("request", "run", "provenance", "status")}
TABLES = {
    "epochs.csv": "csv/epochs.csv",
    "ranks.csv": "csv/ranks.csv",
    "rounds.csv": "csv/rounds.csv",
    "steps.csv.gz": "csv/steps.csv.gz",
}
SHARED = "$shared"
DONE = ".packed"  # the folders of the runs, while they are deleted
LONG = 100  # characters from which a value that occurs twice is shared
EPOCH = (1980, 1, 1, 0, 0, 0)  # of the zip's members: the same runs give the same file

Rows = list[dict[str, str]]


def content(path: Path) -> bytes:
    """The bytes of a file, which may be one of a packed run.

    Raises:
        OSError: it is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if (location := _find(path)) is None:
            raise
        pack, run, name = location
        return pack.content(run, name)


def folders(results: Path) -> list[Path]:
    """`results/runs/<run>` of every run in the set, sorted."""
    runs = results / "runs"
    run_names = [path.name for path in runs.iterdir() if path.is_dir()] if runs.is_dir() else []
    pack = _open(results)
    return [runs / name for name in sorted({*run_names, *(pack.runs if pack else ())}) if not name.startswith(".")]


def names(folder: Path) -> list[str]:
    """The files of a run, relative to `folder`, sorted."""
    if folder.is_dir():
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    location = _find(folder)
    return location[0].names(location[1]) if location else []


def unpacked(path: Path) -> Path:
    """`path` if it is on disk; for a packed run or a file of one, the path of a temporary copy."""
    if path.exists() or (location := _find(path)) is None:
        return path
    pack, run, name = location
    return Path(_copy(pack, run).name, run, name)


def holder(path: Path) -> Path | None:
    """The file or folder on disk that contains `path`: itself, or the file of the packed set; None if there is none."""
    if path.exists():
        return path
    if (location := _find(path)) is None:
        return None
    pack, run, name = location
    if name and name not in pack.names(run):
        return None
    return pack.results / TABLES.get(name, RUNS if not name or name in DOCUMENTS else FILES)


def unpack(folder: Path, target: Path) -> None:
    """Write the files of the run `folder`, packed or not, to the folder `target`."""
    for name in names(folder):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content(folder / name))


def pack(results: Path) -> None:
    """Pack the runs of `results` and delete their folders; runs that are packed already stay.

    Raises:
        OSError: a file cannot be read, or the packed set differs from the folders (nothing is deleted).
    """
    before = {run.name: {name: content(run / name) for name in names(run)} for run in folders(results)}
    lines = {}
    tables = defaultdict(list)
    other_files = {}
    for run, files in before.items():
        lines[run] = line = {}
        for name, raw in files.items():
            if name in DOCUMENTS and _json(document := json.loads(raw)) == raw:
                line[DOCUMENTS[name]] = document
            elif name in TABLES and _is_ours(name, raw, rows := table(results / "runs" / run / name, raw)):
                line.setdefault("columns", {})[name] = list(rows[0])
                tables[name] += [{"run_id": run} | row for row in rows]
            else:
                other_files[f"{run}/{name}"] = raw
    for name, rows in tables.items():
        raw = _csv(dict.fromkeys(column for row in rows for column in row), rows)
        raw = gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw
        atomic.write_file(results / TABLES[name], lambda file, raw=raw: file.write(raw))
    if other_files:
        atomic.write_file(results / FILES, lambda file: _write_zip(file, other_files))
    atomic.write_text(results / RUNS, _shared(lines))
    after = Packed(results)
    for run, files in before.items():
        for name, raw in files.items():
            repacked = after.content(run, name)
            if repacked != raw and _plain(name, repacked) != _plain(name, raw):
                raise OSError(f"{results / RUNS}: packing changed {name} of {run}")
    if (results / "runs").is_dir():  # renamed first: a half-deleted folder would hide its packed run
        shutil.rmtree(results / DONE, ignore_errors=True)
        shutil.rmtree((results / "runs").rename(results / DONE), ignore_errors=True)


class Packed:
    """The packed runs of a set: `runs` is {run: its line of `runs.jsonl`}."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self._tables: dict[str, dict[str, Rows]] = {}
        first, *lines = map(json.loads, (results / RUNS).read_text().splitlines())

        def restored(value: Any) -> Any:
            return first[SHARED][value[SHARED]] if isinstance(value, dict) and SHARED in value else value

        self.runs = {
            line.pop("run_id"): {
                name: {key: restored(value) for key, value in part.items()} for name, part in line.items()
            }
            for line in lines
        }

    def names(self, run: str) -> list[str]:
        line = self.runs[run]
        documents = [name for name, key in DOCUMENTS.items() if key in line]
        return sorted([*documents, *line.get("columns", ()), *self._others[run]])

    def content(self, run: str, name: str) -> bytes:
        line = self.runs[run]
        if DOCUMENTS.get(name) in line:
            return _json(line[DOCUMENTS[name]])
        if name in line.get("columns", ()):
            raw = _csv(line["columns"][name], self._rows(name)[run])
            return gzip.compress(raw, compresslevel=1, mtime=0) if name.endswith(".gz") else raw
        if name in self._others[run]:
            with zipfile.ZipFile(self.results / FILES) as archive:
                return archive.read(f"{run}/{name}")
        raise FileNotFoundError(2, "no such file in the packed set", str(self.results / "runs" / run / name))

    def _rows(self, name: str) -> dict[str, Rows]:
        """{run: its rows} of a table, which is read once."""
        if name not in self._tables:
            path = self.results / TABLES[name]
            rows_by_run = defaultdict(list)
            for row in table(path, path.read_bytes()):
                rows_by_run[row["run_id"]].append(row)
            self._tables[name] = rows_by_run
        return self._tables[name]

    @functools.cached_property
    def _others(self) -> dict[str, list[str]]:
        names_by_run = defaultdict(list)
        if (self.results / FILES).is_file():
            with zipfile.ZipFile(self.results / FILES) as archive:
                for member in archive.namelist():
                    run, _, name = member.partition("/")
                    names_by_run[run].append(name)
        return names_by_run


def _find(path: Path) -> tuple[Packed, str, str] | None:
    """(packed set, run, file) that `path` names; the file is "" for a run's folder."""
    parts = path.parts
    for position in range(len(parts) - 2, 0, -1):
        if parts[position] == "runs" and (pack := _open(Path(*parts[:position]))):
            run = parts[position + 1]
            name = "/".join(parts[position + 2 :])
            return (pack, run, name) if run in pack.runs and not Path(*parts[: position + 2]).is_dir() else None
    return None


def _open(results: Path) -> Packed | None:
    if not (results / RUNS).is_file():
        return None
    stamps = [path.stat() for name in (RUNS, FILES, *TABLES.values()) if (path := results / name).is_file()]
    return _opened(results, *((stamp.st_mtime_ns, stamp.st_size) for stamp in stamps))


@functools.lru_cache(8)
def _opened(results: Path, *stamps: tuple[int, int]) -> Packed:
    try:
        return Packed(results)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise OSError(f"{results / RUNS} is damaged ({type(error).__name__}: {error})") from None


@functools.cache
def _copy(pack: Packed, run: str) -> tempfile.TemporaryDirectory:
    """A folder with a copy of the run; it is removed as the process ends."""
    home = tempfile.TemporaryDirectory(prefix="hpc-run-")
    unpack(pack.results / "runs" / run, Path(home.name, run))
    return home


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def table(path: Path, raw: bytes) -> Rows:
    """The rows of a CSV whose bytes are `raw`. Raises OSError: it is damaged."""
    try:
        text = _plain(path.name, raw).decode()
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        if not text.endswith("\n") or any(None in row or None in row.values() for row in rows):
            raise ValueError("it is truncated")
        return rows
    except (ValueError, csv.Error, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise OSError(errno.EIO, f"it is damaged: {error}", str(path)) from None


def _csv(columns: Iterable[str], rows: Rows) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _is_ours(name: str, raw: bytes, rows: Rows) -> bool:
    """Whether writing the rows again gives the same text; another program may write CSV in another way."""
    return bool(rows) and _csv(rows[0], rows) == _plain(name, raw)


def _plain(name: str, raw: bytes) -> bytes:
    """`raw` decompressed: the same content may be compressed in several ways."""
    return gzip.decompress(raw) if name.endswith(".gz") else raw


def _write_zip(file: Any, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, raw in sorted(members.items()):
            kind = zipfile.ZIP_STORED if name.endswith((".gz", ".nsys-rep")) else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name, EPOCH), raw, kind)


def _shared(lines: Mapping[str, dict[str, dict[str, Any]]]) -> str:
    """The text of `runs.jsonl`: its first line contains the long values that occur several times."""
    texts = Counter(json.dumps(v) for line in lines.values() for part in line.values() for v in part.values())
    shared = {
        text: hashlib.sha256(text.encode()).hexdigest()[:8]
        for text, count in texts.items()
        if count > 1 and len(text) > LONG
    }

    def short(value: Any) -> Any:
        return {SHARED: shared[text]} if (text := json.dumps(value)) in shared else value

    first = {SHARED: {key: json.loads(text) for text, key in shared.items()}}
    run_lines = (
        {"run_id": run} | {name: {key: short(value) for key, value in part.items()} for name, part in line.items()}
        for run, line in lines.items()
    )
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (first, *run_lines))
