"""A packed result set: the folders `runs/<run>/` of a set in five files.

runs.jsonl        first line: values that several runs share; then one line a run: its request, run, provenance, status,
                  and the columns of its tables
csv/epochs.csv    the tables of all runs, `run_id` in front
csv/ranks.csv
csv/steps.csv.gz
files.zip         all other files: profiles, monitors, and whatever the tables would not give back byte for byte

Packing loses nothing. A file of a run has the same name in a packed set, `runs/<run>/<file>`: `content`, `folders`,
`names` and `unpacked` accept such paths of either kind of set. A run that has a folder is read from there.
"""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import io
import json
import shutil
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hpc_utils import paths

from . import atomic

RUNS, FILES = paths.PACKED, "files.zip"
DOCUMENTS = {f"{name}.json": name for name in ("request", "run", "provenance", "status")}
TABLES = {"epochs.csv": "csv/epochs.csv", "ranks.csv": "csv/ranks.csv", "steps.csv.gz": "csv/steps.csv.gz"}
SHARED = "$shared"
DONE = ".packed"  # the folders of the runs, while they are deleted
LONG = 100  # characters from which a value that occurs twice is shared
EPOCH = (1980, 1, 1, 0, 0, 0)  # of the zip's members: the same runs give the same file

Rows = list[list[str]]


def content(path: Path) -> bytes:
    """The bytes of a file, which may be one of a packed run.

    Raises:
        OSError: it is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if (found := _find(path)) is None:
            raise
        pack, run, name = found
        return pack.content(run, name)


def folders(results: Path) -> list[Path]:
    """`results/runs/<run>` of every run in the set, sorted."""
    runs = results / "runs"
    own = [path.name for path in runs.iterdir() if path.is_dir()] if runs.is_dir() else []
    pack = _open(results)
    return [runs / name for name in sorted({*own, *(pack.runs if pack else ())}) if not name.startswith(".")]


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run's folder, or stands for a packed run."""
    return folder.is_dir() or _find(folder) is not None


def names(folder: Path) -> list[str]:
    """The files of a run, relative to `folder`, sorted."""
    if folder.is_dir():
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    found = _find(folder)
    return found[0].names(found[1]) if found else []


def unpacked(path: Path) -> Path:
    """`path` if it is on disk; of a packed run's folder, or of a file in it, the path in a temporary copy."""
    try:
        found = None if path.exists() else _find(path)
    except OSError:  # no such path is possible: whoever opens it says so
        found = None
    if found is None:
        return path
    pack, run, name = found
    return _copy(pack, run) / name


def holder(path: Path) -> Path | None:
    """The file or folder on disk that holds `path`: itself, or the file of the packed set; None if there is none."""
    if path.exists():
        return path
    if (found := _find(path)) is None:
        return None
    pack, run, name = found
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
        OSError: a file cannot be read, or the packed set does not hold what the folders hold (nothing is deleted).
    """
    before = {run.name: {name: content(run / name) for name in names(run)} for run in folders(results)}
    lines, tables, others = [], {table: {} for table in TABLES}, {}
    for run, files in before.items():
        line: dict[str, Any] = {"run_id": run}
        for name, raw in files.items():
            if name in DOCUMENTS and (document := _document(raw)) is not None:
                line[DOCUMENTS[name]] = document
            elif name in TABLES and (rows := _table(name, raw)):
                line.setdefault("columns", {})[name] = rows[0]
                tables[name][run] = rows
            else:
                others[f"{run}/{name}"] = raw
        lines.append(line)
    for name, rows in tables.items():
        _write_table(results / TABLES[name], rows)
    if others:
        atomic.write(results / FILES, lambda file: _write_zip(file, others))
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in _sharing(lines))
    atomic.write_text(results / RUNS, text)
    after = Packed(results)
    for run, files in before.items():
        for name, raw in files.items():
            if _plain(name, after.content(run, name)) != _plain(name, raw):
                raise OSError(f"{results / RUNS}: packing changed {name} of {run}")
    if (results / "runs").is_dir():  # renamed first: a half-deleted folder must not stand for its run
        shutil.rmtree(results / DONE, ignore_errors=True)
        shutil.rmtree((results / "runs").rename(results / DONE), ignore_errors=True)


def documents(text: str) -> dict[str, dict[str, Any]]:
    """{run: {"request", "run", "provenance", "status", "columns"}} of the text of `runs.jsonl`."""
    first, *lines = map(json.loads, text.splitlines())

    def whole(document: dict[str, Any]) -> dict[str, Any]:
        return {
            key: first[SHARED][value[SHARED]] if isinstance(value, dict) and SHARED in value else value
            for key, value in document.items()
        }

    return {line.pop("run_id"): {name: whole(part) for name, part in line.items()} for line in lines}


class Packed:
    """The packed runs of a set."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.runs = documents((results / RUNS).read_text())
        self._tables: dict[str, dict[str, Rows]] = {}

    def names(self, run: str) -> list[str]:
        line = self.runs[run]
        documents = [name for name, key in DOCUMENTS.items() if key in line]
        return sorted([*documents, *line.get("columns", ()), *self._others.get(run, ())])

    def content(self, run: str, name: str) -> bytes:
        line = self.runs[run]
        if DOCUMENTS.get(name) in line:
            return _json(line[DOCUMENTS[name]])
        if name in line.get("columns", ()):
            text = self._text(run, name, line["columns"][name]).encode()
            return gzip.compress(text, compresslevel=1, mtime=0) if name.endswith(".gz") else text
        if name in self._others.get(run, ()):
            with zipfile.ZipFile(self.results / FILES) as archive:
                return archive.read(f"{run}/{name}")
        raise FileNotFoundError(2, "no such file in the packed set", str(self.results / "runs" / run / name))

    def _text(self, run: str, table: str, columns: list[str]) -> str:
        """The run's own table: its rows, with the columns that it had."""
        if table not in self._tables:
            self._tables[table] = _read_table(self.results / TABLES[table])
        header, rows = self._tables[table][""][0], self._tables[table].get(run, [])
        try:
            places = [header.index(column) for column in columns]
        except ValueError as error:
            raise OSError(f"{self.results / TABLES[table]} has lost a column: {error}") from None
        return _csv([columns, *([row[at] for at in places if at < len(row)] for row in rows)])

    @functools.cached_property
    def _others(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        if (self.results / FILES).is_file():
            with zipfile.ZipFile(self.results / FILES) as archive:
                for member in archive.namelist():
                    run, _, name = member.partition("/")
                    found.setdefault(run, []).append(name)
        return found


def _find(path: Path) -> tuple[Packed, str, str] | None:
    """(packed set, run, file) that `path` names; the file is "" for a run's folder."""
    parts = path.parts
    for at in range(len(parts) - 2, 0, -1):
        if parts[at] == "runs" and (pack := _open(Path(*parts[:at]))):
            run, name = parts[at + 1], "/".join(parts[at + 2 :])
            return (pack, run, name) if run in pack.runs and not Path(*parts[: at + 2]).is_dir() else None
    return None


def _open(results: Path) -> Packed | None:
    if (first := _stamp(results / RUNS)) is None:
        return None
    return _opened(results, (first, *(_stamp(results / name) for name in (FILES, *TABLES.values()))))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@functools.lru_cache(8)
def _opened(results: Path, stamps: tuple) -> Packed:
    try:
        return Packed(results)
    except (ValueError, LookupError, TypeError) as error:
        raise OSError(f"{results / RUNS} is damaged ({type(error).__name__}: {error})") from None


@functools.lru_cache(64)
def _copy(pack: Packed, run: str) -> Path:
    home = tempfile.TemporaryDirectory(prefix="hpc-run-")
    _COPIES.append(home)  # deleted when the process ends
    target = Path(home.name, run)
    unpack(pack.results / "runs" / run, target)
    return target


_COPIES: list[tempfile.TemporaryDirectory] = []


def _document(raw: bytes) -> dict[str, Any] | None:
    """The JSON object in `raw`; None if writing it again would give other bytes."""
    try:
        found = json.loads(raw)
        return found if isinstance(found, dict) and _json(found) == raw else None
    except ValueError:
        return None


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, allow_nan=False) + "\n").encode()


def _table(name: str, raw: bytes) -> Rows | None:
    """The rows of a CSV, its header first; None if writing them again would give other bytes."""
    try:
        text = _plain(name, raw).decode()
        rows = list(csv.reader(io.StringIO(text, newline="")))
        whole = rows and len(set(rows[0])) == len(rows[0]) and all(len(row) == len(rows[0]) for row in rows)
        return rows if whole and _csv(rows) == text else None
    except (ValueError, csv.Error):
        return None


def _csv(rows: Iterable[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _plain(name: str, raw: bytes) -> bytes:
    """Uncompressed, where it can be: the same content may be compressed in several ways."""
    try:
        return gzip.decompress(raw) if name.endswith(".gz") else raw
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return raw


def _write_table(path: Path, runs: Mapping[str, Rows]) -> None:
    columns = list(dict.fromkeys(column for header, *_ in runs.values() for column in header))
    joined = [["run_id", *columns]]
    for run, (header, *rows) in runs.items():
        places = {column: at for at, column in enumerate(header)}
        joined += [[run, *(row[places[c]] if c in places else "" for c in columns)] for row in rows]
    raw = _csv(joined).encode()
    atomic.write(path, lambda file: file.write(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw))


def _read_table(path: Path) -> dict[str, Rows]:
    """{run: its rows without the run's name}; the header under ""."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        header, *rows = csv.reader(io.StringIO(text, newline=""))
    except (EOFError, ValueError, zlib.error, csv.Error) as error:
        raise OSError(f"{path} cannot be read ({type(error).__name__})") from None
    found: dict[str, Rows] = {"": [header[1:]]}
    for run, *cells in rows:
        found.setdefault(run, []).append(cells)
    return found


def _write_zip(file: Any, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, raw in sorted(members.items()):
            kind = zipfile.ZIP_STORED if name.endswith((".gz", ".nsys-rep")) else zipfile.ZIP_DEFLATED
            archive.writestr(zipfile.ZipInfo(name, EPOCH), raw, kind)


def _sharing(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`lines` behind a first one, which holds the long values that several of them have."""

    def documents() -> Iterable[dict[str, Any]]:
        return (part for line in lines for key, part in line.items() if key != "run_id")

    texts = Counter(json.dumps(value) for document in documents() for value in document.values())
    shared = {text: _short(text) for text, count in texts.items() if count > 1 and len(text) > LONG}
    for document in documents():
        for key, value in document.items():
            if (text := json.dumps(value)) in shared:
                document[key] = {SHARED: shared[text]}
    return [{SHARED: {short: json.loads(text) for text, short in shared.items()}}, *lines]


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
