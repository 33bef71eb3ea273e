"""Fetch a data set from a local mirror or its official host: verified, decoded once, and put into place as a whole."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from hpc_utils import file_lock, paths

from . import store
from .catalog import Archive, DataError, DatasetInfo, fault, info
from .decode import LAYOUTS, Decoded, decode

MIRROR = "HPC_DATA_MIRROR"
WAIT = 3600.0  # s for another process's fetch
TIMEOUT = 20  # s for a server's answer
RETRIES = 2  # of a download from one address


def fetch(name: str, mirror: str | Path | None = None, force: bool = False) -> Path:
    """Make data set `name` ready for `load` and return its folder.

    Its source is the folder or archive `mirror`, else HPC_DATA_MIRROR, else its official host. A data set that is
    present is verified and kept, unless `force` is set.
    """
    dataset = info(name)
    if name == store.SHIPPED:
        store.verify(name)
        _tell(f"{name}: part of the code, nothing to fetch")
        return store.DIGITS
    folder = paths.data() / name
    work = paths.data() / ".fetch"
    mirror = mirror or os.environ.get(MIRROR) or None
    try:
        if not force and _present(name, folder):
            return folder
        work.mkdir(parents=True, exist_ok=True)
        with _alone(work / f"{name}.lock") as locked:
            if not force and _present(name, folder):  # fetched by the process that held the lock
                return folder
            if locked:
                for left in work.glob(f"{name}~*"):
                    shutil.rmtree(left, ignore_errors=True)
            decoded, meta = _obtain(dataset, Path(mirror) if mirror else None, work / name)
            fresh = Path(tempfile.mkdtemp(prefix=f"{name}~", dir=work))
            try:
                store.write_images(fresh, decoded, meta)
                _place(fresh, folder)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
            shutil.rmtree(work / name, ignore_errors=True)
    except OSError as error:
        where = error.filename or paths.data()
        raise fault(where, "to write the data set", error.strerror or error, "make room, or set HPC_DATA") from error
    _tell(f"{name}: {meta.title}; verified and ready in {folder}")
    return folder


def download(archive: Archive, folder: Path) -> Path:
    """Bring `archive` into `folder`, from the first of its addresses that has it; its path, the md5 verified."""
    import pooch
    import requests  # pooch's

    pooch.get_logger().setLevel("WARNING")
    faults = []
    for url in archive.urls:
        source = pooch.create(
            folder,
            "",
            registry={archive.file: f"md5:{archive.md5}"},
            urls={archive.file: url},
            retry_if_failed=RETRIES,
        )
        try:
            fetcher = pooch.HTTPDownloader(progressbar=True, timeout=TIMEOUT)
            return Path(source.fetch(archive.file, downloader=fetcher))
        except requests.ConnectionError:
            faults.append(f"no connection to {urlsplit(url).hostname}")
        except (OSError, ValueError) as error:  # of requests, of the disk, of a wrong checksum
            faults.append(f"{error} at {url}")
    raise fault(
        archive.file,
        f"a download of {archive.size:,} bytes with md5 {archive.md5}",
        "; ".join(faults),
        f"try again where there is a network (a login node), or put {archive.file} into a folder and set {MIRROR} to it",
    )


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _present(name: str, folder: Path) -> bool:
    if not any(folder.glob("*")):
        return False
    store.verify(name)
    title = store.load(name, "train").title
    _tell(f"{name}: {title}; already present and verified in {folder} (`--force` fetches it again)")
    return True


def _obtain(dataset: DatasetInfo, mirror: Path | None, downloads: Path) -> tuple[Decoded, store.Meta]:
    """Decode and check the first good copy: the mirror's, else the official one."""
    problems = []
    if mirror is not None:
        for path in in_mirror(dataset.name, mirror):
            _tell(f"{dataset.name}: reading {path}")
            try:
                return _decode(dataset, path, f"replace it, or `{MIRROR}= hpc data fetch {dataset.name}`")
            except DataError as error:
                problems.append(str(error))
        if problems:
            raise DataError("; ".join(problems))
        problems = [f"{mirror}: expected {dataset.name} in the mirror, found none of it"]
        _tell(f"{problems[0]}; trying its official host")
    for source in dataset.sources:
        try:
            files = [download(archive, downloads) for archive in source.archives]
        except DataError as error:
            problems.append(str(error))
            continue
        path = files[0] if len(files) == 1 else downloads
        return _decode(dataset, path, store.fetch_command(dataset.name))
    raise DataError("; ".join(problems))


def _decode(dataset: DatasetInfo, path: Path, remedy: str) -> tuple[Decoded, store.Meta]:
    try:
        decoded = decode(dataset.name, path)
    except DataError as error:
        raise DataError(f"{error}; fix: {remedy}") from error
    return decoded, store.describe(dataset, decoded, path, remedy)


def in_mirror(name: str, mirror: Path) -> list[Path]:
    """The folders and archives that may hold data set `name`: in `mirror`, in its folders, and in those of its `data/`."""
    if mirror.is_file():
        return [mirror]
    if not mirror.is_dir():
        raise fault(mirror, "a mirror folder", "none", f"set {MIRROR} to a folder that exists, or unset it")
    layout = LAYOUTS[name]
    places = (*layout.markers, *layout.places)
    patterns = [base + place for base in ("", "*/", "data/*/") for place in places]
    hits = (hit for pattern in patterns for hit in sorted(mirror.glob(pattern)) if hit.is_file())
    found = list(dict.fromkeys(hit.parent if hit.name in layout.markers else hit for hit in hits))
    is_whole = layout.folders and all((mirror / folder).is_dir() for folder in layout.folders)
    return found or [mirror] * bool(is_whole)


def _place(fresh: Path, folder: Path) -> None:
    """Move a finished data set's files into place, the description last: without it there is no data set."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in store.FILES:
        (fresh / file).replace(folder / file)


@contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """Hold `lock`, waiting for another fetch to end; yields False on a file system without locks."""
    from filelock import Timeout

    wait = functools.partial(_tell, f"{lock.stem}: another process is fetching it, waiting")
    try:
        with file_lock.hold(lock, seconds=WAIT, wait=wait) as is_locked:
            yield is_locked
    except Timeout:
        raise fault(lock, f"a free lock within {WAIT:.0f} s", "it held", "end the other fetch") from None
