"""The SQLite export of a report of Nsight Systems: made if need be, and read as columns of integers.

The file is opened for reading only, without locks (`immutable`: locks hang on file systems of clusters). Nothing in it is
trusted: neither its size, nor its tables, nor the types in its cells.
"""

from __future__ import annotations

import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from .timeline import ProfileError

MAGIC = b"SQLite format 3\0"
REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
REPORTS = (".nsys-rep", ".qdrep")
TIMEOUT = 3600.0  # s: exporting a report of some GB takes minutes
LONGEST = 4096  # characters of a name that are read
CELL = 64 << 20  # bytes of a cell, at most

UNKNOWN = -1  # NULL, or a column that this version does not have


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """An export, or that of a report: the one beside it if it is newer, else a temporary one that this machine's nsys makes.

    Raises:
        ProfileError: it cannot be read or exported (that takes the nsys that made the report, or a newer one).
    """
    with TemporaryDirectory(prefix="hpc-nsys-") as folder:
        if _is_report(path):
            beside = path.with_suffix(".sqlite")
            if not (beside.is_file() and path.is_file() and beside.stat().st_mtime >= path.stat().st_mtime):
                beside = Path(folder) / "export.sqlite"
                _export(path, beside)
            path = beside
        database = Database(path)
        try:
            yield database
        finally:
            database.close()


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.suffix in REPORTS or file.read(len(REPORT_MAGIC)) == REPORT_MAGIC
    except OSError:
        return path.suffix in REPORTS


def _export(path: Path, file: Path) -> None:
    if not path.is_file():
        raise ProfileError(f"{path} cannot be read: no such file")
    nsys = shutil.which("nsys")
    if nsys is None:
        names = (shlex.quote(name) for name in (path.with_suffix(".sqlite").name, path.name))
        raise ProfileError(
            f"{path} is a report, and there is no nsys here to open it: export it where it was made and take the file "
            f"along: nsys export --type sqlite --output {' '.join(names)}"
        )
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(file)]
    command.append(str(path.absolute()))
    quiet = {"capture_output": True, "text": True, "errors": "replace", "stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(command, timeout=TIMEOUT, **quiet)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProfileError(f"{path} could not be exported: {error}") from error
    if done.returncode or not file.is_file():
        words = " ".join((done.stderr.strip() or done.stdout.strip().split("\r")[-1]).split())[-500:]
        raise ProfileError(
            f"{path} could not be exported by {nsys}: {words}. Is it whole? A report needs the nsys that made it, or a "
            "newer one"
        )


class Database:
    """The tables of an SQLite file.

    `where` in its methods is SQL, and never comes from a file.

    Attributes:
        name: the file, for messages. tables: {name: its columns}, without views and virtual tables.

    Raises:
        ProfileError: the file is not there, is no SQLite database, is truncated, or still being written.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        _check(path)
        with self._reading():
            self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
            self._connection.text_factory = lambda text: text.decode(errors="replace")
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL)
            for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            found = self._connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
            plain = [str(name) for name, sql in found if str(sql).upper().startswith("CREATE TABLE")]
            self.tables = {name: self._columns(name) for name in plain}

    def close(self) -> None:
        self._connection.close()

    def require(self, table: str, *columns: str) -> None:
        """Refuse a table without these columns: it is of a version that is not known."""
        missing = [column for column in columns if column not in self.tables[table]]
        if missing:
            raise ProfileError(
                f"{self.name}: table {table} has no {', '.join(missing)}: not an export that is known here"
            )

    def integers(self, table: str, *columns: str, where: str = "1") -> list[np.ndarray]:
        """Each column as int64, in the order of the rows; `UNKNOWN` for NULL, empty for a table that is not there."""
        known = self.tables.get(table, ())
        cells = (f"ifnull({_quoted(column)}, {UNKNOWN})" if column in known else str(UNKNOWN) for column in columns)
        rows = self._select(", ".join(cells), table, where)
        try:
            return list(np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, len(columns)).T.copy())
        except (TypeError, ValueError, OverflowError):
            rows.close()
            raise ProfileError(f"{self.name}: table {table} holds something else than whole numbers") from None

    def rows(self, table: str, *columns: str, where: str = "1") -> Iterator[tuple]:
        """Rows as they are, texts cut at `LONGEST` characters; None for blobs and for a column that is not there."""
        known = self.tables.get(table, ())
        cell = f"CASE typeof({{0}}) WHEN 'text' THEN substr({{0}}, 1, {LONGEST}) WHEN 'blob' THEN NULL ELSE {{0}} END"
        cells = (cell.format(_quoted(column)) if column in known else "NULL" for column in columns)
        return self._select(", ".join(cells), table, where)

    def blobs(self, table: str, column: str, where: str = "1") -> list[bytes]:
        """A column's bytes: SQLite's own text functions would end them at the first NUL."""
        if column not in self.tables.get(table, ()):
            return []
        return [value or b"" for (value,) in self._select(f"CAST({_quoted(column)} AS BLOB)", table, where)]

    def texts(self, numbers: Iterable[int]) -> dict[int, str]:
        """{id: text} of the table of strings."""
        wanted = set(numbers)
        rows = self.rows("StringIds", "id", "value") if wanted else ()
        return {number: str(text) for number, text in rows if number in wanted and text is not None}

    def _select(self, what: str, table: str, where: str) -> Iterator[tuple]:
        if table in self.tables:
            with self._reading():
                yield from self._connection.execute(
                    f"SELECT {what} FROM {_quoted(table)} WHERE {where} ORDER BY rowid"
                )

    def _columns(self, table: str) -> frozenset[str]:
        return frozenset(str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({_quoted(table)})"))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where a message repeats a damaged schema
            words = ascii(str(error))[1:-1]  # it repeats names of the file
            raise ProfileError(f"{self.name} cannot be read: {words}. Is it whole? Export it again") from error


def _check(path: Path) -> None:
    """Refuse what SQLite would only notice at a page that is missing."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
        size = path.stat().st_size
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror}") from error
    if not head.startswith(MAGIC) or len(head) < 100:
        raise ProfileError(f"{path} is no SQLite database: expected what `nsys export --type sqlite` writes")
    page = int.from_bytes(head[16:18], "big")
    expected = int.from_bytes(head[28:32], "big") * (65_536 if page == 1 else page)
    if head[24:28] == head[92:96] and size < expected:  # else the count is not valid (SQLite, File Format, 1.3.7)
        raise ProfileError(f"{path} is truncated: {size:,} of {expected:,} bytes. Copy or export it again")
    for suffix in ("-journal", "-wal"):
        beside = path.with_name(path.name + suffix)
        try:
            unfinished = beside.stat().st_size > 0
        except OSError:  # not there, or a name that would be too long
            continue
        if unfinished:
            raise ProfileError(
                f"{path} is not finished: {beside.name} lies beside it. Wait for the export, or repeat it"
            )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
