"""An SQLite file that somebody else wrote, read as columns of integers.

It is opened for reading only, without locks (`immutable`: on a cluster's file systems those hang), and nothing in it is
trusted: neither its size, nor its tables, nor the types in its cells.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..timeline import ProfileError

MAGIC = b"SQLite format 3\0"
PART = 65_536  # rows at a time
LONGEST = 4096  # characters of a name that are read
CELL = 64 << 20  # bytes: nothing larger stands in a cell that is read

_NONE = np.empty(0, np.int64)

UNKNOWN = -1  # NULL, or a column that this version has not


class Database:
    """The tables of an SQLite file.

    Attributes:
        name: the file, for messages. tables: {name: its columns}; views and virtual tables are none.

    Raises:
        ProfileError: the file is not there, is no SQLite database, is truncated, or still being written.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        _check(path)
        try:
            self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        except sqlite3.Error as error:
            raise ProfileError(f"{self.name} cannot be opened: {error}") from error
        self._connection.text_factory = lambda text: text.decode(errors="replace")
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL)
        with self._reading():
            for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            found = self._connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
            plain = [str(name) for name, sql in found if str(sql).upper().startswith("CREATE TABLE")]
            self.tables = {name: self._columns(name) for name in plain}

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def need(self, table: str, *columns: str) -> None:
        """Refuse a table that is there without these columns: it is of a version that is not known."""
        missing = [column for column in columns if column not in self.tables[table]]
        if missing:
            raise ProfileError(
                f"{self.name}: table {table} has no {', '.join(missing)}: not an export that is known here"
            )

    def integers(self, table: str, *columns: str, where: str = "1") -> list[np.ndarray]:
        """Each column as int64, in the order of the rows; `UNKNOWN` for NULL, empty arrays for a table that is not there.

        `where` is SQL, never what a file says. SQLite writes a column's numbers as one text a part, which NumPy reads:
        half the time of handing every number to Python.
        """
        there = [column for column in columns if column in self.tables.get(table, ())]
        inner = "".join(f", ifnull({_quoted(column)}, {UNKNOWN}) AS c{place}" for place, column in enumerate(there))
        outer = "".join(f", group_concat(c{place})" for place in range(len(there)))
        query = (
            f"SELECT max(row), count(*){outer} FROM (SELECT rowid AS row{inner} FROM {_quoted(table)} "
            f"WHERE rowid >= ? AND ({where}) ORDER BY rowid LIMIT {PART})"
        )
        parts: list[list[np.ndarray]] = [[] for _ in there]
        total, first = 0, -(2**63)
        while table in self.tables and first < 2**63:
            with self._reading():
                last, count, *texts = self._connection.execute(query, [first]).fetchone()
            if not count:
                break
            for part, text in zip(parts, texts, strict=True):
                part.append(self._numbers(table, text, count))
            total, first = total + count, last + 1
        found = {column: np.concatenate([*part, _NONE]) for column, part in zip(there, parts, strict=True)}
        return [found[column] if column in found else np.full(total, UNKNOWN) for column in columns]

    def rows(self, table: str, *columns: str, where: str = "1") -> list[tuple]:
        """Rows as they stand, texts cut at `LONGEST` characters; none for a table that is not there.

        A column that this version has not is None, and so are blobs. `where` is SQL, never what a file says.
        """
        if table not in self.tables:
            return []
        asked = ", ".join(self._plain(table, column) for column in columns)
        return list(
            itertools.chain.from_iterable(
                self._chunks(f"SELECT {asked} FROM {_quoted(table)} WHERE {where} ORDER BY rowid")
            )
        )

    def blobs(self, table: str, column: str, where: str = "1") -> list[bytes]:
        """A column's bytes, whole: what SQLite's own text functions would end at the first NUL."""
        if column not in self.tables.get(table, ()):
            return []
        query = f"SELECT CAST({_quoted(column)} AS BLOB) FROM {_quoted(table)} WHERE {where} ORDER BY rowid"
        return [value or b"" for rows in self._chunks(query) for (value,) in rows]

    def words(self, table: str, column: str, where: str = "1") -> tuple[np.ndarray, list[str]]:
        """(int64, where in the list each row's text stands, or `UNKNOWN`; the texts), in the order of the rows."""
        known: dict[str, int] = {}
        parts = [np.empty(0, np.int64)]
        if table in self.tables:
            asked = self._plain(table, column)
            for rows in self._chunks(f"SELECT {asked} FROM {_quoted(table)} WHERE {where} ORDER BY rowid"):
                codes = (UNKNOWN if text is None else known.setdefault(str(text), len(known)) for (text,) in rows)
                parts.append(np.fromiter(codes, np.int64, len(rows)))
        return np.concatenate(parts), list(known)

    def texts(self, numbers: Iterable[int]) -> dict[int, str]:
        """{id: text} of those of the table of strings that are asked for."""
        wanted = set(numbers)
        rows = self.rows("StringIds", "id", "value") if wanted else []
        return {number: str(text) for number, text in rows if number in wanted and text is not None}

    def _numbers(self, table: str, text: str, count: int) -> np.ndarray:
        try:
            numbers = np.fromstring(text, np.int64, sep=",")
        except ValueError:
            numbers = _NONE
        if len(numbers) != count:
            raise ProfileError(f"{self.name}: table {table} holds something else than whole numbers")
        return numbers

    def _plain(self, table: str, column: str) -> str:
        if column not in self.tables[table]:
            return "NULL"
        name = _quoted(column)
        return (
            f"CASE typeof({name}) WHEN 'text' THEN substr({name}, 1, {LONGEST}) WHEN 'blob' THEN NULL ELSE {name} END"
        )

    def _columns(self, table: str) -> frozenset[str]:
        return frozenset(str(row[1]) for row in self._connection.execute(f"PRAGMA table_info({_quoted(table)})"))

    def _chunks(self, query: str) -> Iterator[Sequence[tuple]]:
        with self._reading():
            cursor = self._connection.execute(query)
            while rows := cursor.fetchmany(PART):
                yield rows

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where a message repeats a damaged schema
            said = ascii(str(error))[1:-1]  # names of the file's own among it
            raise ProfileError(f"{self.name} cannot be read: {said}. Is it whole? Export it again") from error


def _check(path: Path) -> None:
    """What SQLite would only find when it comes to a page that is missing."""
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
    if (
        head[24:28] == head[92:96] and size < expected
    ):  # only then the header's count holds (SQLite, File Format, 1.3.7)
        raise ProfileError(f"{path} is truncated: {size:,} of {expected:,} bytes. Copy or export it again")
    for suffix in ("-journal", "-wal"):
        beside = path.with_name(path.name + suffix)
        if _size(beside):
            raise ProfileError(
                f"{path} is not finished: {beside.name} lies beside it. Wait for the export, or repeat it"
            )


def _size(path: Path) -> int:
    """bytes; 0 for what is not there, or cannot be: a name that would be too long."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
