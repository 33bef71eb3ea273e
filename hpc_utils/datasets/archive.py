"""A data set's official files as one folder, from a folder, a tar or a zip."""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from .catalog import DataError

Folder = Path | zipfile.Path


@contextmanager
def readable(where: object) -> Iterator[None]:
    """Turn whatever an unreadable file or archive raises into a DataError that names it."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # each codec has an error of its own, some without a common base
        reason = str(error) or type(error).__name__
        raise DataError(f"{where}: expected a readable, complete file, found it unreadable ({reason})") from error


@contextmanager
def opened(path: Path, *markers: str) -> Iterator[Folder]:
    """The folder in `path` that holds one of the files `markers`. A tar is unpacked to a temporary folder.

    Raises:
        DataError: the archive cannot be read, or holds none of them.
    """
    with tempfile.TemporaryDirectory(prefix="hpc-data-") as home:
        if path.is_dir():
            yield path
            return
        with readable(path):
            if path.suffix == ".zip":
                archive = zipfile.ZipFile(path)
                names = archive.namelist()
            else:
                with tarfile.open(path) as tar:
                    tar.extractall(home, filter="data")  # refuses members outside the folder, links and devices
                    names = tar.getnames()
                    while tar.fileobj.read(2**20):  # to the end of a gzip, where its checksum is compared
                        pass
        parents = [PurePosixPath(name).parent for name in names if name.split("/")[-1] in markers]
        if not parents:
            raise DataError(f"{path}: expected an archive that holds {markers[0]}, found none in it")
        inner = min(parents, key=lambda folder: len(folder.parts)).as_posix()
        if path.suffix != ".zip":
            yield Path(home, inner)
            return
        with archive:
            yield zipfile.Path(archive, "" if inner == "." else f"{inner}/")


def content(file: Folder) -> bytes:
    """The bytes of a file; a DataError if it is missing or unreadable."""
    with readable(file):
        return file.read_bytes()
