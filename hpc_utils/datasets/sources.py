"""A folder, a tar or a zip as one thing: named files, read member by member and never unpacked to disk."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from hpc_utils.datasets.catalog import DataError

MEMBER_LIMIT = 64 * 2**20
"""Bytes; the largest official file is 31 MB, so more than this is an accident or a bomb."""


@contextmanager
def readable(where: object) -> Iterator[None]:
    """Whatever an unreadable file or archive raises becomes a DataError that names it."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # each codec has an error of its own, some without a common base
        reason = str(error) or type(error).__name__
        raise DataError(f"{where}: expected a readable, complete file, found it unreadable ({reason})") from error


class Source:
    """Files of one data set under a common root.

    The root is the folder, or in an archive the folder that holds one of `markers`.
    """

    def __init__(self, path: Path, markers: Iterable[str]) -> None:
        self.path = path
        self.markers = tuple(markers)
        if path.is_dir():
            self._members, self._root = None, PurePosixPath()
            return
        self._members = self._list()
        roots = [PurePosixPath(name).parent for name in self._members if name.split("/")[-1] in self.markers]
        if not roots:
            raise DataError(f"{path}: expected an archive that holds {self.markers[0]}, found none in it")
        self._root = min(roots, key=lambda root: len(root.parts))

    def __contains__(self, name: str) -> bool:
        if self._members is None:
            return (self.path / name).is_file()
        return str(self._root / name) in self._members

    def where(self, name: str) -> str:
        """How messages call the file `name`."""
        return str(self.path / self._root / name)

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield (name, content) in the archive's own order, which is what makes a compressed tar fast."""
        names = list(names)
        for name in names:
            if name not in self:
                raise DataError(f"{self.where(name)}: expected a regular file of the official layout, found none")
        if self._members is None:
            yield from self._from_folder(names)
            return
        wanted = {str(self._root / name): name for name in names}
        order = [member for member in self._members if member in wanted]
        opener = self._from_zip if self._is_zip() else self._from_tar
        for member, content in opener(order):
            yield wanted[member], content

    def text(self, name: str) -> str:
        """The content of a text file."""
        [(_, content)] = self.read([name])
        with readable(self.where(name)):
            return content.decode("utf-8")

    def _is_zip(self) -> bool:
        return self.path.suffix == ".zip"

    def _list(self) -> dict[str, object]:
        with readable(self.path):
            if self._is_zip():
                with zipfile.ZipFile(self.path) as archive:
                    found = [(m.filename, m.file_size, m) for m in archive.infolist() if not m.is_dir()]
                    paths = archive.namelist()
            else:
                with tarfile.open(self.path) as archive:
                    members = archive.getmembers()
                    # A gzip's checksum is only compared at its end, which tarfile itself does not reach.
                    while archive.fileobj.read(2**20):
                        pass
                    # Links and devices are left out: only plain files can be data.
                    found = [(m.name, m.size, m) for m in members if m.isreg()]
                    paths = [m.name for m in members]
        for path in paths:
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "\\" in path:
                raise DataError(f"{self.path}: expected members inside the archive's folder, found {path!r}")
        for path, size, _ in found:
            if size > MEMBER_LIMIT:
                raise DataError(
                    f"{self.path}: expected members of at most {MEMBER_LIMIT:,} bytes, found {path!r} of {size:,}"
                )
        return {str(PurePosixPath(path)): member for path, _, member in found}

    def _from_folder(self, names: list[str]) -> Iterator[tuple[str, bytes]]:
        for name in names:
            with readable(self.where(name)), (self.path / name).open("rb") as file:
                content = file.read(MEMBER_LIMIT)
            yield name, content

    def _from_zip(self, order: list[str]) -> Iterator[tuple[str, bytes]]:
        with readable(self.path), zipfile.ZipFile(self.path) as archive:
            for member in order:
                with readable(self.path / member):
                    content = archive.read(self._members[member])
                yield member, content

    def _from_tar(self, order: list[str]) -> Iterator[tuple[str, bytes]]:
        with readable(self.path), tarfile.open(self.path) as archive:
            for member in order:
                with readable(self.path / member):
                    content = archive.extractfile(self._members[member]).read()
                yield member, content
