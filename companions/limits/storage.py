"""How fast a data set is read, cold and warm, from the places that a job can use, and how fast the loader is there.

Each node has one copy in each place; all ranks read at once, each its own part, in shuffled batches, as in training.
Cold data were dropped from the node's page cache; caches behind it (of a server or a hypervisor) remain unknown.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from hpc_utils import datasets, paths, workspace
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.doctor.process import Console, repeats_within, slowest_seconds
from hpc_utils.doctor.storage import IMAGES, drop_cache, filesystem, read_batches

from .bench_tables import is_read_from_memory

if TYPE_CHECKING:
    from hpc_utils.train.ranks import Ranks

BATCHES = (32, 64, 128, 256, 512)  # of the loader itself
PASS = 4.0  # s that one pass over the data should take at most
MOMENT = 0.15  # s that the loader is measured for each batch size
MOST = 50  # batches of that measurement at most


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


def measure(
    ranks: Ranks, *, dataset: str, repeats: int, seconds: float, console: Console, **_: Any
) -> dict[str, Any]:
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
                if "skipped" not in bench.record:
                    console.progress(f"{bench.record['place']}, repeat {repeat} of {repeats}")
                    bench.read(repeat)
                    bench.load()
        return {
            "dataset": dataset,
            "bytes": images.nbytes,
            "images": len(images),
            "nodes": ranks.nodes,
            "ranks_per_node": ranks.ranks_per_node,
            "places": [bench.record for bench in benches],
        }


def table(record: Mapping[str, Any]) -> Iterator[str]:
    """The record's medians: how fast each place is read. A cold rate that memory served is no speed of a disk."""
    layout = f"{record['nodes']} x {record['ranks_per_node']} ranks"
    yield f"{record['dataset']}, {record['bytes'] / 1e6:.0f} MB, read by {layout} at once, each its part"
    yield f"  {'place':10}  {'file system':11}  {'cold (MB/s)':>11}  {'warm (MB/s)':>11}"
    for place in record["places"]:
        start = f"  {place['place']:10}  {place['filesystem'] or 'unknown':11}"
        if "skipped" in place:
            yield f"{start}  not read: {place['skipped']}"
        else:
            cold, warm = (place[s]["bytes"] / median(place[s]["seconds"]) / 1e6 for s in ("cold", "warm"))
            cold_rate = "from memory" if is_read_from_memory(place) else f"{cold:,.0f}"
            yield f"{start}  {cold_rate:>11}  {warm:11,.0f}"


class _Place:
    """The measurements of one place; `record["skipped"]`: why it is skipped."""

    def __init__(
        self, ranks: Ranks, name: str, folder: Path, dataset: str, images: np.ndarray, copies: ExitStack
    ) -> None:
        self.ranks = ranks
        self.dataset = dataset
        self.images = len(images)
        self.home = folder / f".hpc-bench-{ranks.broadcast(uuid.uuid4().hex)}-{ranks.rank // ranks.ranks_per_node}"
        self.record: dict[str, Any] = {"place": name, "filesystem": filesystem(folder)}
        refusals = filter(None, ranks.gather("" if ranks.local_rank else self._copy(images.nbytes, copies)))
        if refusal := ranks.broadcast(next(refusals, "")):  # all ranks skip a place, or none
            self.record["skipped"] = refusal
        else:
            self.record |= {state: {"seconds": [], "bytes": 0} for state in ("cold", "warm")}
            self.record["loader"] = [{"batch": batch, "seconds_per_batch": []} for batch in BATCHES]
        self._reads = 0  # of a pass that fit into its time

    def _copy(self, size: int, copies: ExitStack) -> str:
        """Copy the data set here; why that fails, or ""."""
        folder = self.home.parent
        if not folder.is_dir():
            return f"no folder {folder.name}"
        free = shutil.disk_usage(folder).free
        if free < 2 * size:
            return f"{free / 1e6:.0f} MB free, twice {size / 1e6:.0f} MB needed"
        try:
            copies.enter_context(copied(self.dataset, self.home))
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def read(self, repeat: int) -> None:
        """One pass cold and one warm; the first repeat finds out how long a pass may be."""
        order = np.random.default_rng(repeat).permutation(self.images)
        mine = np.array_split(order, self.ranks.world_size)[self.ranks.rank]
        if not self._reads:
            self._drop()
            self._reads = self._pass(mine)[2]
        self._drop()
        for state in ("cold", "warm"):
            seconds, self.record[state]["bytes"], _ = self._pass(mine, self._reads)
            self.record[state]["seconds"].append(seconds)

    def _drop(self) -> None:
        """Write the copy to the disk and drop it from memory."""
        self.ranks.barrier()
        if self.ranks.local_rank == 0:
            with (self.home / self.dataset / IMAGES).open("rb") as file:
                os.fsync(file.fileno())
                drop_cache(file.fileno())

    def _pass(self, mine: np.ndarray, most: int = 0) -> tuple[float, int, int]:
        """(seconds of the slowest rank, bytes of all ranks, reads of each rank at least) of
        `doctor.storage.read_batches`."""
        import torch

        self.ranks.barrier()
        path = self.home / self.dataset / IMAGES
        duration, size, reads = read_batches(path, mine, seconds=PASS, most=most)
        slowest, fewest = self.ranks.max(torch.tensor([duration, -reads], dtype=torch.float64)).tolist()
        return slowest, int(self.ranks.sum(torch.tensor([size], dtype=torch.float64))), -int(fewest)

    def load(self) -> None:
        """Seconds that the trainer's own loader takes for a batch of each size, warm."""
        for load in self.record["loader"]:
            with workspace.using(HPC_DATA=str(self.home)):
                batches = load_batches(self.dataset, load["batch"], self.ranks)
            next(batches)  # shuffles, allocates memory
            next_batch = partial(next, batches)
            once = slowest_seconds(self.ranks, next_batch, 1)
            times = max(1, min(MOST, round(MOMENT / once)))
            seconds = slowest_seconds(self.ranks, next_batch, times)
            load["seconds_per_batch"].append(seconds)


@contextmanager
def copied(dataset: str, home: Path) -> Iterator[None]:
    """Make `home`/<data set>, a copy of what the data folder holds; `home` is removed however this ends."""
    try:
        home.mkdir(mode=0o700)
        shutil.copytree(paths.data() / dataset, home / dataset)
        yield
    finally:
        shutil.rmtree(home, ignore_errors=True)


def load_batches(dataset: str, batch: int, ranks: Ranks) -> Iterator[Any]:
    """(inputs, targets) of the trainer's own loader, each rank its part."""
    from hpc_utils.train.loader import Loader
    from hpc_utils.train.resolve import resolve
    from hpc_utils.train.sampler import Sampler

    config = RunConfig(workload="cnn", dataset=dataset, batch_per_device=batch)
    workload = resolve(config)
    global_batch = batch * ranks.world_size
    sampler = Sampler(len(workload.train), global_batch, rank=ranks.rank, world_size=ranks.world_size, steps=10_000)
    return Loader(workload.train, workload, config, ranks.device).batches(sampler.epoch(1), 1)
