"""A folder, a tar or a zip as one thing: named files, read one by one and never unpacked to disk."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from hpc_utils.datasets.catalog import DataError

MEMBER_LIMIT = 64 * 2**20  # bytes; the largest official file has 31 MB, so a larger one is an accident or a bomb


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


class Files:
    """Files of one data set under a common root: the folder, or in an archive the folder that holds one of `markers`."""

    def __init__(self, path: Path, markers: Iterable[str]) -> None:
        self.path, self._root = path, PurePosixPath()
        self._members: dict[str, zipfile.ZipInfo | tarfile.TarInfo] | None = None
        if path.is_dir():
            return
        with readable(path):
            self._members = self._list()
        markers = tuple(markers)
        roots = [PurePosixPath(name).parent for name in self._members if name.split("/")[-1] in markers]
        if not roots:
            raise DataError(f"{path}: expected an archive that holds {markers[0]}, found none in it")
        self._root = min(roots, key=lambda root: len(root.parts))

    def __contains__(self, name: str) -> bool:
        if self._members is None:
            return (self.path / name).is_file()
        return str(self._root / name) in self._members

    def where(self, name: str) -> str:
        """What messages call the file `name`."""
        return str(self.path / self._root / name)

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield (name, content) in the archive's own order, which is the fast one in a compressed tar."""
        names = list(names)
        for name in names:
            if name not in self:
                raise DataError(f"{self.where(name)}: expected a regular file of the official layout, found none")
        if self._members is None:
            for name in names:
                with readable(self.where(name)), (self.path / name).open("rb") as file:
                    content = file.read(MEMBER_LIMIT)
                yield name, content
            return
        wanted = {str(self._root / name): name for name in names}
        with readable(self.path), self._open() as archive:
            for path, member in self._members.items():
                if path in wanted:
                    with readable(self.path / path):
                        zipped = isinstance(archive, zipfile.ZipFile)
                        content = archive.read(member) if zipped else archive.extractfile(member).read()
                    yield wanted[path], content

    def text(self, name: str) -> str:
        """The content of a text file."""
        [(_, content)] = self.read([name])
        with readable(self.where(name)):
            return content.decode("utf-8")

    def _open(self) -> zipfile.ZipFile | tarfile.TarFile:
        return zipfile.ZipFile(self.path) if self.path.suffix == ".zip" else tarfile.open(self.path)

    def _list(self) -> dict[str, zipfile.ZipInfo | tarfile.TarInfo]:
        with self._open() as archive:
            if isinstance(archive, zipfile.ZipFile):
                members = [(m.filename, m.file_size, m) for m in archive.infolist()]
                plain = [not m.is_dir() for *_, m in members]
            else:
                members = [(m.name, m.size, m) for m in archive.getmembers()]
                plain = [m.isreg() for *_, m in members]  # no links, no devices
                while archive.fileobj.read(2**20):  # to a gzip's end, where its checksum is compared
                    pass
        for path, size, _ in members:
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "\\" in path:
                raise DataError(f"{self.path}: expected members inside the archive's folder, found {path!r}")
            if size > MEMBER_LIMIT:
                raise DataError(
                    f"{self.path}: expected members of at most {MEMBER_LIMIT:,} bytes, found {path!r} of {size:,}"
                )
        return {str(PurePosixPath(path)): m for (path, _, m), own in zip(members, plain, strict=True) if own}
