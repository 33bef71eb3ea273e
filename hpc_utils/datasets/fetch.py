"""Bring a data set here: from a local mirror or its official host, decoded and checked once, placed whole."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpc_utils import paths
from hpc_utils.datasets import digits, store
from hpc_utils.datasets.catalog import DataError, DatasetInfo, fault, info
from hpc_utils.datasets.decode import Decoded, decode
from hpc_utils.datasets.download import download

MIRROR = "HPC_DATA_MIRROR"
_WAIT_S = 3600.0

# Below the mirror, below each of its folders and below each folder of its `data/`.
_LAYOUTS = {
    "cifar10": (
        "data_batch_1",
        "data_batch_1.bin",
        "cifar-10-batches-py/data_batch_1",
        "cifar-10-batches-bin/data_batch_1.bin",
        "cifar-10-python.tar.gz",
        "cifar-10-binary.tar.gz",
    ),
    "mnist": tuple(
        f"{folder}train-images-idx3-ubyte{suffix}" for folder in ("", "raw/", "MNIST/raw/") for suffix in (".gz", "")
    ),
    "tiny-imagenet": ("wnids.txt", "tiny-imagenet*/wnids.txt", "tiny-imagenet*.zip", "tiny-imagenet*.tar*"),
}


def fetch(name: str, mirror: str | Path | None = None, progress: bool = True, force: bool = False) -> Path:
    """Make data set `name` ready for `load` and return its folder.

    It comes from the folder (or archive) `mirror`, else from HPC_DATA_MIRROR, else from its official host. A set
    that is here already is verified and left alone, unless `force` asks for it anew.
    """
    known = info(name)
    if name == "digits":
        _say(progress, "digits: ships inside scikit-learn, nothing to fetch")
        store.verify(name)
        return digits.path()
    folder = paths.data() / name
    mirror = mirror or os.environ.get(MIRROR) or None
    try:
        if not force and _present(name, folder, progress):
            return folder
        work = paths.data() / ".fetch"
        work.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(work / f"{name}.lock", progress) as alone:
            # Whoever held the lock before us may have brought the set.
            if not force and _present(name, folder, progress):
                return folder
            if alone:
                for left in work.glob(f"{name}~*"):
                    shutil.rmtree(left, ignore_errors=True)
            decoded, meta = _obtain(known, Path(mirror) if mirror else None, work / name, progress)
            fresh = Path(tempfile.mkdtemp(prefix=f"{name}~", dir=work))
            try:
                store.write(fresh, decoded, meta)
                _place(fresh, folder, force, progress)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
            shutil.rmtree(work / name, ignore_errors=True)
    except OSError as error:
        where = error.filename or paths.data()
        raise fault(where, "to write the data set", error.strerror or error, "make room, or set HPC_DATA") from error
    _say(progress, f"{name}: {meta['title']}; checked and ready in {folder}")
    return folder


def _say(progress: bool, text: str) -> None:
    if progress:
        print(text, file=sys.stderr, flush=True)


def _present(name: str, folder: Path, progress: bool) -> bool:
    if not folder.is_dir() or not any(folder.iterdir()):
        return False
    store.verify(name)
    title = store.load(name, "train").title
    _say(progress, f"{name}: {title}; already present and verified in {folder} (`--force` fetches it anew)")
    return True


def _obtain(known: DatasetInfo, mirror: Path | None, downloads: Path, progress: bool) -> tuple[Decoded, dict]:
    """Decode and check the first good copy: the mirror's, else the official one."""
    problems = []
    if mirror is not None:
        for path in in_mirror(known.name, mirror):
            _say(progress, f"{known.name}: reading {path}")
            try:
                return _decode(known, path, progress, f"replace it, or `{MIRROR}= hpc data fetch {known.name}`")
            except DataError as error:
                problems.append(str(error))
        if problems:
            raise DataError("; ".join(problems))
        problems = [f"{mirror}: expected {known.name} in the mirror, found none of it"]
        _say(progress, f"{problems[0]}; trying its official host")
    for source in known.sources:
        try:
            downloads.mkdir(parents=True, exist_ok=True)
            files = [download(archive, downloads, progress) for archive in source]
        except DataError as error:
            problems.append(str(error))
            continue
        path = files[0] if len(files) == 1 else downloads
        return _decode(known, path, progress, f"`hpc data fetch {known.name} --force`")
    raise DataError("; ".join(problems))


def _decode(known: DatasetInfo, path: Path, progress: bool, remedy: str) -> tuple[Decoded, dict]:
    try:
        decoded = decode(known.name, path, progress)
    except DataError as error:
        raise DataError(f"{error}; to mend: {remedy}") from error
    meta = store.check(known, decoded, path, remedy)
    return decoded, {**meta, "source": path.name}


def in_mirror(name: str, mirror: Path) -> list[Path]:
    """Where in `mirror` data set `name` may lie: folders in the official layout, and archives."""
    if mirror.is_file():
        return [mirror.parent if name == "mnist" else mirror]
    if not mirror.is_dir():
        raise fault(mirror, "a mirror folder", "none", f"set {MIRROR} to a folder that exists, or unset it")
    bases = [mirror]
    for parent in (mirror, mirror / "data"):
        if parent.is_dir():
            bases += sorted(child for child in parent.iterdir() if child.is_dir())
    found: dict[Path, None] = {}
    for base in bases:
        patterns = _LAYOUTS[name]
        if name == "tiny-imagenet" and base.name.startswith(name):
            patterns = (*patterns, "*.zip", "*.tar*")
        for pattern in patterns:
            for hit in sorted(base.glob(pattern)):
                if hit.is_file():
                    archive = hit.name.endswith(".zip") or ".tar" in hit.name
                    found[hit if archive else hit.parent] = None
    return list(found)


def _place(fresh: Path, folder: Path, force: bool, progress: bool) -> None:
    """Rename a finished data set into place, so that no reader ever meets half of one."""
    fresh.chmod(0o755)
    old = None
    if force and folder.is_dir():
        old = folder.with_name(f"{folder.name}.old-{os.getpid()}")
        folder.rename(old)
    try:
        fresh.rename(folder)
    except OSError:
        # Where locks do not work another fetch may have come first; then its copy must be good.
        if not folder.is_dir():
            raise
        store.verify(folder.name)
    if old is None:
        return
    for file in store.FILES:
        (old / file).unlink(missing_ok=True)
    if any(old.iterdir()):
        _say(progress, f"{folder.name}: files that are not ours were moved from {folder} to {old}")
    else:
        old.rmdir()


@contextmanager
def _one_at_a_time(lock: Path, progress: bool) -> Iterator[bool]:
    """Hold `lock`, waiting for another fetch to end; yields False where the file system has no locks."""
    try:
        import fcntl
    except ImportError:
        yield False
        return
    with lock.open("a") as file:
        deadline = time.monotonic() + _WAIT_S
        told = held = False
        while not held:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except BlockingIOError:
                if not told:
                    _say(progress, f"{lock.stem}: another process is fetching it, waiting")
                    told = True
                if time.monotonic() > deadline:
                    raise fault(
                        lock, f"a free lock within {_WAIT_S:.0f} s", "it held", "end the other fetch"
                    ) from None
                time.sleep(0.2)
            except OSError:
                break
        yield held
