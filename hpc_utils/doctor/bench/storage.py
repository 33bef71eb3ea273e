"""How fast a data set is read, cold and warm, from the places that a job can use, and how fast the loader is there.

Each node has one copy in each place; all ranks read at once, each its own part, as in training. Cold data are not in the
node's page cache; caches behind it (of a server or a hypervisor) remain unknown.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from hpc_utils import datasets, paths, workspace
from hpc_utils.config import ConfigError
from hpc_utils.doctor.process import Console, repeats_within
from hpc_utils.doctor.storage import drop_cache, filesystem

if TYPE_CHECKING:
    from hpc_utils.train.ranks import Ranks

IMAGES = "train-images.npy"
BATCH = 128  # images of a read that is like the loader's
BATCHES = (32, 64, 128, 256, 512)  # of the loader itself
CHUNK = 8 * 2**20  # B of a sequential read
PASS = 4.0  # s that one pass over the data should take at most
MOMENT, MOST = 0.15, 50  # s that the loader is measured for each batch size, and batches at most


def require(dataset: str) -> datasets.Images:
    """The train images of a data set that is in a storage.

    Raises:
        DataError: it is not here. ConfigError: it is embedded, and so in memory anyway.
    """
    if dataset == "digits":
        raise ConfigError("digits is embedded in the package and needs no storage; choose another with --dataset")
    return datasets.load(dataset, "train")


def places() -> dict[str, Path]:
    """The data folder; a disk of the node, as the cluster file or TMPDIR names it; the node's memory."""
    local = os.environ.get("HPC_NODE_LOCAL") or tempfile.gettempdir()
    return {"shared": paths.data(), "node-local": Path(local), "memory": Path("/dev/shm")}


def measure(ranks: Ranks, *, dataset: str, repeats: int, seconds: float, console: Console) -> dict[str, Any]:
    """The record without its origin: reads and loader times of every place, `repeats` of them, interleaved.

    Raises:
        DataError, ConfigError: as `require`.
    """
    images = require(dataset).images
    with ExitStack() as copies:
        console.progress("nothing yet, the data set is copied")
        benches = [_Place(ranks, name, folder, dataset, images, copies) for name, folder in places().items()]
        for repeat in repeats_within(ranks, repeats, seconds, console):
            for bench in benches:
                if not bench.refusal:
                    console.progress(f"{bench.name}, repeat {repeat} of {repeats}")
                    bench.read(repeat)
                    bench.load()
        return {
            "dataset": dataset,
            "bytes": images.nbytes,
            "images": len(images),
            "nodes": ranks.nodes,
            "ranks_per_node": ranks.ranks_per_node,
            "places": [bench.record() for bench in benches],
        }


def table(record: Mapping[str, Any]) -> Iterator[str]:
    """The record's medians: how fast each place is read."""
    layout = f"{record['nodes']} x {record['ranks_per_node']} ranks"
    yield f"{record['dataset']}, {record['bytes'] / 1e6:.0f} MB, read by {layout} at once, each its part"
    yield f"  {'place':10}  {'file system':11}  {'as':10}  {'cold (MB/s)':>11}  {'in memory':>9}  {'warm (MB/s)':>11}"
    for place in record["places"]:
        start = f"  {place['place']:10}  {place['filesystem'] or 'unknown':11}"
        if "skipped" in place:
            yield f"{start}  not read: {place['skipped']}"
            continue
        for pattern, passes in (("batches", place), ("sequential", place["sequential"])):
            cold, warm = (passes[s]["bytes"] / median(passes[s]["seconds"]) / 1e6 for s in ("cold", "warm"))
            shares = [share for share in passes["cold"]["resident"] if share is not None]
            share = f"{median(shares):.0%}" if shares else "unknown"
            yield f"{start}  {pattern:10}  {cold:11,.0f}  {share:>9}  {warm:11,.0f}"


class _Place:
    """The measurements of one place; `refusal`: why it is skipped."""

    def __init__(
        self, ranks: Ranks, name: str, folder: Path, dataset: str, images: np.ndarray, copies: ExitStack
    ) -> None:
        self.ranks, self.name, self.folder, self.dataset, self.images = ranks, name, folder, dataset, len(images)
        node = ranks.rank // ranks.ranks_per_node
        self.home = folder / f".hpc-bench-{ranks.broadcast(uuid.uuid4().hex)}-{node}"
        self.path = self.home / dataset / IMAGES
        refusals = filter(None, ranks.gather("" if ranks.local_rank else self._copy(images.nbytes, copies)))
        self.refusal = ranks.broadcast(next(refusals, ""))  # all ranks skip a place, or none
        self.passes: dict[str, Any] = {
            pattern: {"cold": {"seconds": [], "bytes": 0, "resident": []}, "warm": {"seconds": [], "bytes": 0}}
            for pattern in ("batches", "sequential")
        }
        self.loads = [{"batch": batch, "seconds_per_batch": []} for batch in BATCHES]
        self._reads: dict[str, int] = {}  # of a pass that fit into its time

    def _copy(self, size: int, copies: ExitStack) -> str:
        """Copy the data set here; why that fails, or ""."""
        if not self.folder.is_dir():
            return f"no folder {self.folder.name}"
        free = shutil.disk_usage(self.folder).free
        if free < 2 * size:
            return f"{free / 1e6:.0f} MB free, twice {size / 1e6:.0f} MB needed"
        try:
            copies.enter_context(copied(self.dataset, self.home))
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def read(self, repeat: int) -> None:
        """One pass of each pattern, cold and then warm."""
        order = np.random.default_rng(repeat).permutation(self.images)
        mine = np.array_split(order, self.ranks.world_size)[self.ranks.rank]
        readers = {
            "batches": partial(_read_batches, self.path, mine),
            "sequential": partial(_read_part, self.path, self.ranks.rank, self.ranks.world_size),
        }
        for pattern, reader in readers.items():
            if pattern not in self._reads:
                self._drop()
                self._reads[pattern] = self._pass(reader())[2]
            for state, result in self.passes[pattern].items():
                if state == "cold":
                    result["resident"].append(self._drop())
                seconds, result["bytes"], _ = self._pass(reader(), self._reads[pattern])
                result["seconds"].append(seconds)

    def _drop(self) -> float | None:
        """Drop the copy from memory; the largest share that a node keeps, None if unknown."""
        self.ranks.barrier()
        if self.ranks.local_rank == 0:
            drop(self.path)
        self.ranks.barrier()
        share = resident(self.path)
        (most,) = self._max(-1.0 if share is None else share)
        return None if most < 0 else most

    def _pass(self, pieces: Iterator[int], most: int = 0) -> tuple[float, int, int]:
        """(seconds of the slowest rank, bytes of all ranks, reads of each rank at least) of a pass.

        It is `most` reads long, or for 0 as long as its time allows.
        """
        import torch

        self.ranks.barrier()
        began, size, reads = time.perf_counter(), 0, 0
        for piece in pieces:
            size, reads = size + piece, reads + 1
            if reads == most or (not most and time.perf_counter() - began > PASS):
                break
        slowest, fewest = self._max(time.perf_counter() - began, -reads)
        return slowest, int(self.ranks.sum(torch.tensor([size], dtype=torch.float64))), -int(fewest)

    def load(self) -> None:
        """Seconds that the trainer's own loader takes for a batch of each size, warm."""
        from hpc_utils.doctor.speed import load_batches

        for load in self.loads:
            with workspace.using(HPC_DATA=str(self.home)):
                batches = load_batches(self.dataset, load["batch"], self.ranks)
            next(batches)  # shuffles, allocates memory
            once = self._seconds_per_batch(batches, 1)
            times = max(1, min(MOST, round(MOMENT / once)))
            load["seconds_per_batch"].append(self._seconds_per_batch(batches, times))

    def _seconds_per_batch(self, batches: Iterator[Any], times: int) -> float:
        """On the slowest rank."""
        self.ranks.barrier()
        began = time.perf_counter()
        for _ in range(times):
            next(batches)
        self.ranks.synchronize()
        return self._max((time.perf_counter() - began) / times)[0]

    def _max(self, *values: float) -> list[float]:
        import torch

        return self.ranks.max(torch.tensor(values, dtype=torch.float64)).tolist()

    def record(self) -> dict[str, Any]:
        """The place's part of the record."""
        place = {"place": self.name, "filesystem": filesystem(self.folder)}
        if self.refusal:
            return place | {"skipped": self.refusal}
        return place | self.passes["batches"] | {"sequential": self.passes["sequential"], "loader": self.loads}


@contextmanager
def copied(dataset: str, home: Path) -> Iterator[None]:
    """Make `home`/<data set>, a copy of what the data folder holds; `home` is removed however this ends."""
    try:
        home.mkdir(mode=0o700)
        shutil.copytree(paths.data() / dataset, home / dataset)
        yield
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _read_batches(path: Path, chosen: np.ndarray) -> Iterator[int]:
    """Bytes of each shuffled batch, copied out of the mapped file as the loader does."""
    images = np.load(path, mmap_mode="r")
    for start in range(0, len(chosen), BATCH):
        yield images[chosen[start : start + BATCH]].nbytes


def _read_part(path: Path, part: int, parts: int) -> Iterator[int]:
    """Bytes of each chunk of one part of the file, from its beginning to its end."""
    size = path.stat().st_size
    start, stop = size * part // parts, size * (part + 1) // parts
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while start < stop and (piece := len(file.read(min(CHUNK, stop - start)))):
            start += piece
            yield piece


def drop(path: Path) -> None:
    """Write a file to the disk and drop it from memory; `resident` shows whether the kernel did."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        drop_cache(file.fileno())


def resident(path: Path) -> float | None:
    """The share of a file's pages that are in memory (mincore); None if the system does not report it.

    What a server, a controller or a hypervisor keeps is not seen.
    """
    content = np.memmap(path, mode="r")
    pages = np.zeros(-(-content.size // mmap.PAGESIZE), np.uint8)
    try:
        mincore = ctypes.CDLL(None, use_errno=True).mincore
    except AttributeError:
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t(content.size)
    failed = mincore(pointer(content.ctypes.data), size, pointer(pages.ctypes.data))
    return None if failed else float((pages & 1).mean())
