"""How fast a data set is read, cold and warm, from the places a job can use, and what its loader then takes.

One copy a node in every place; all ranks read at once, each its own part, as they do in training. Cold is what the
node's kernel does not hold; what is behind it (a server's cache, a hypervisor's) stays unknown.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpc_utils.config import RunConfig
from hpc_utils.probe.check import count

from . import pages, places
from .say import Say

if TYPE_CHECKING:
    from hpc_utils.train.ranks import Ranks

IMAGES = "train-images.npy"
BATCH = 128  # images of a read that is like the loader's
BATCHES = (32, 64, 128, 256, 512)  # of the loader itself
CHUNK = 8 * 2**20  # B of a sequential read
PASS = 4.0  # s that one pass over the data should take at most
MOMENT, MOST = 0.15, 50  # s that the loader is looked at for each batch size, and batches at most
PATTERNS = ("batches", "sequential")


@dataclass
class Reads:
    """One pattern of reading a place, cold or warm: bytes of a pass, seconds and share in memory before each."""

    bytes: int = 0
    seconds: list[float] = field(default_factory=list)
    resident: list[float | None] = field(default_factory=list)


def measure(ranks: Ranks, *, dataset: str, repeats: int, seconds: float, say: Say) -> dict[str, Any]:
    """The record but for its origin: reads and loader times of every place, `repeats` of them, interleaved.

    Raises:
        DataError, ConfigError: as `places.stored`.
    """
    images = places.stored(dataset).images
    began, tried = time.perf_counter(), []
    with ExitStack() as copies:
        for place in places.known():
            say.now(f"nothing yet, a copy goes to {place.name}")
            tried.append(_Tried(ranks, place, dataset, images.nbytes, len(images), copies))
        for repeat in range(repeats):
            start = time.perf_counter()
            for one in tried:
                if not one.refusal:
                    say.now(f"{one.place.name}, repeat {repeat + 1} of {repeats}")
                    one.read(repeat)
                    one.load()
            now = time.perf_counter()
            if repeat + 1 < repeats and ranks.broadcast(2 * now - start > began + seconds):
                say.line(f"only {repeat + 1} of {repeats} repeats: each takes {now - start:.0f} s")
                break
    return {
        "dataset": dataset,
        "bytes": images.nbytes,
        "images": len(images),
        "nodes": ranks.nodes,
        "ranks_per_node": ranks.ranks_per_node,
        "places": [one.described() for one in tried],
    }


def table(record: Mapping[str, Any]) -> Iterator[str]:
    """The record's medians: how fast each place is read."""
    layout = f"{count(record['nodes'], 'node')} x {count(record['ranks_per_node'], 'rank')}"
    yield f"{record['dataset']}, {record['bytes'] / 1e6:.0f} MB, read by {layout}, all at once, each its part"
    yield f"  {'place':10}  {'file system':11}  {'as':10}  {'cold (MB/s)':>11}  {'in memory':>9}  {'warm (MB/s)':>11}"
    for place in record["places"]:
        kind = place["filesystem"] or "not known"
        if "skipped" in place:
            yield f"  {place['place']:10}  {kind:11}  not read: {place['skipped']}"
            continue
        for pattern, reads in (("batches", place), ("sequential", place["sequential"])):
            rates = [reads[s]["bytes"] / statistics.median(reads[s]["seconds"]) / 1e6 for s in ("cold", "warm")]
            shares = [share for share in reads["cold"]["resident"] if share is not None]
            share = f"{statistics.median(shares):.0%}" if shares else "not told"
            yield (
                f"  {place['place']:10}  {kind:11}  {pattern:10}  {rates[0]:11,.0f}  {share:>9}  {rates[1]:11,.0f}"
            )


class _Tried:
    """One place as it is measured."""

    def __init__(
        self, ranks: Ranks, place: places.Place, dataset: str, size: int, images: int, copies: ExitStack
    ) -> None:
        self.ranks, self.place, self.dataset, self.images = ranks, place, dataset, images
        node = ranks.rank // ranks.ranks_per_node
        self.home = place.folder / f".hpc-bench-{ranks.broadcast(uuid.uuid4().hex)}-{node}"
        self.refusal = self._agreed(place.refusal(size))
        if not self.refusal:
            self.refusal = self._agreed(self._copy(copies))
        self.reads = {(pattern, state): Reads() for pattern in PATTERNS for state in ("cold", "warm")}
        self.loads: dict[int, list[float]] = {batch: [] for batch in BATCHES}
        self._most: dict[str, int] = {}  # reads of a pass that fit into its time

    def _copy(self, copies: ExitStack) -> str:
        if self.ranks.local_rank == 0:
            try:
                copies.enter_context(places.copied(self.dataset, self.home))
            except OSError as error:
                return error.strerror or str(error)
        return ""

    def _agreed(self, word: str) -> str:
        """The first word that a rank has to say: all ranks leave a place out, or none."""
        return self.ranks.broadcast(next(filter(None, self.ranks.gather(word)), ""))

    @property
    def path(self) -> Path:
        return self.home / self.dataset / IMAGES

    def read(self, repeat: int) -> None:
        """One pass in every pattern, cold and then warm."""
        for pattern in PATTERNS:
            reader = {"batches": self._batches, "sequential": self._chunks}[pattern](repeat)
            if pattern not in self._most:
                self._forget()
                self._most[pattern] = self._timed(reader)[2]
            for state in ("cold", "warm"):
                share = self._forget() if state == "cold" else None
                seconds, size, _ = self._timed(reader, self._most[pattern])
                reads = self.reads[pattern, state]
                reads.seconds.append(seconds)
                reads.bytes = size
                if state == "cold":
                    reads.resident.append(share)

    def _forget(self) -> float | None:
        """Drop the copy from memory; the largest share that a node kept, None where it is not told."""
        self.ranks.barrier()
        if self.ranks.local_rank == 0:
            pages.drop(self.path)
        self.ranks.barrier()
        share = pages.resident(self.path)
        found = self._greatest(-1.0 if share is None else share)
        return None if found < 0 else found

    def _timed(self, reader: Callable[[], Iterator[int]], most: int = 0) -> tuple[float, int, int]:
        """(seconds of the slowest rank, bytes of all ranks, reads that each made at least) of a pass.

        It is `most` reads long, or for 0 as long as its time allows.
        """
        self.ranks.barrier()
        began, size, count = time.perf_counter(), 0, 0
        for piece in reader():
            size, count = size + piece, count + 1
            if count == most or (not most and time.perf_counter() - began > PASS):
                break
        seconds = self._greatest(time.perf_counter() - began)
        return seconds, int(self._sum(size)), int(-self._greatest(-count))

    def _batches(self, repeat: int) -> Callable[[], Iterator[int]]:
        """This rank's shuffled batches, copied out of the mapped file as the loader does."""
        order = np.random.default_rng(repeat).permutation(self.images)
        mine = np.array_split(order, self.ranks.world_size)[self.ranks.rank]

        def read() -> Iterator[int]:
            images = np.load(self.path, mmap_mode="r")
            for start in range(0, len(mine), BATCH):
                yield images[mine[start : start + BATCH]].nbytes

        return read

    def _chunks(self, repeat: int) -> Callable[[], Iterator[int]]:
        """This rank's part of the file from its beginning to its end."""
        size, world = self.path.stat().st_size, self.ranks.world_size
        start, stop = (size * place // world for place in (self.ranks.rank, self.ranks.rank + 1))

        def read() -> Iterator[int]:
            with self.path.open("rb", buffering=0) as file:
                file.seek(start)
                left = stop - start
                while left > 0 and (piece := len(file.read(min(CHUNK, left)))):
                    left -= piece
                    yield piece

        return read

    def load(self) -> None:
        """Seconds that the trainer's own loader takes for a batch of each size, warm."""
        from hpc_utils.train.loader import Loader
        from hpc_utils.train.resolve import resolve
        from hpc_utils.train.sampler import Sampler

        ranks = self.ranks
        for batch in BATCHES:
            config = RunConfig(workload="cnn", dataset=self.dataset, batch_per_device=batch)
            with places.data_in(self.home):
                workload = resolve(config)
            loader = Loader(workload.train, workload, config, ranks.device)
            every = batch * ranks.world_size
            sampler = Sampler(self.images, every, rank=ranks.rank, world_size=ranks.world_size, steps=10_000)
            batches = loader.batches(sampler.epoch(1), 1)
            next(batches)  # shuffles, and finds the memory
            once = self._several(batches, 1)
            self.loads[batch].append(self._several(batches, max(1, min(MOST, round(MOMENT / once)))))

    def _several(self, batches: Iterator[Any], times: int) -> float:
        """Seconds a batch on the slowest rank."""
        self.ranks.barrier()
        began = time.perf_counter()
        for _ in range(times):
            next(batches)
        self.ranks.synchronize()
        return self._greatest((time.perf_counter() - began) / times)

    def _greatest(self, value: float) -> float:
        import torch

        return float(self.ranks.max(torch.tensor([value], dtype=torch.float64)))

    def _sum(self, value: float) -> float:
        import torch

        return float(self.ranks.sum(torch.tensor([value], dtype=torch.float64)))

    def described(self) -> dict[str, Any]:
        """The place's part of the record."""
        found: dict[str, Any] = {"place": self.place.name, "filesystem": self.place.filesystem}
        if self.refusal:
            return found | {"skipped": self.refusal}

        def passes(pattern: str) -> dict[str, Any]:
            cold, warm = self.reads[pattern, "cold"], self.reads[pattern, "warm"]
            return {
                "cold": {"seconds": cold.seconds, "bytes": cold.bytes, "resident": cold.resident},
                "warm": {"seconds": warm.seconds, "bytes": warm.bytes},
            }

        loads = [{"batch": batch, "seconds_per_batch": times} for batch, times in self.loads.items()]
        return found | passes("batches") | {"sequential": passes("sequential"), "loader": loads}
