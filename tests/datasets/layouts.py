"""Small synthetic data sets in the official layouts, and a web server that can misbehave."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import io
import pickle
import struct
import tarfile
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from hpc_utils.datasets import DATASETS
from hpc_utils.datasets.catalog import Source, Split
from hpc_utils.datasets.decode import CIFAR_MD5
from hpc_utils.datasets.store import digest

CIFAR_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def pixels(seed: int, count: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, *shape), np.uint8), rng.integers(0, 10, count)


MNIST = pixels(5, 30, (28, 28, 1)), pixels(6, 12, (28, 28, 1))
CIFAR = pixels(1, 20, (32, 32, 3)), pixels(2, 6, (32, 32, 3))


def know(monkeypatch, name: str, train, test, sources=()) -> None:
    """Make the catalogue expect these arrays instead of the real ones."""
    splits = [Split(len(images), digest(images), digest(labels)) for images, labels in (train, test)]
    entry = dataclasses.replace(
        DATASETS[name], train=splits[0], test=splits[1], sources=tuple(Source(archives) for archives in sources)
    )
    monkeypatch.setitem(DATASETS, name, entry)


def cifar_binary(folder: Path, train, test) -> Path:
    """`cifar-10-batches-bin`: the train images in five equal batches."""
    folder.mkdir(parents=True)
    for name, images, labels in _cifar_batches(train, test):
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        records = np.concatenate([labels.astype(np.uint8)[:, None], planes], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return folder


def cifar_python(archive: Path, train, test, extra: tuple[tarfile.TarInfo, ...] = ()) -> Path:
    """`cifar-10-python.tar.gz`, its pickles as Python 2's cPickle wrote them."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz", compresslevel=0) as tar:
        for member in extra:
            tar.addfile(member, io.BytesIO(b"x" * member.size) if member.isreg() else None)
        # The official archive does not hold its batches in order.
        for name, images, labels in sorted(_cifar_batches(train, test), reverse=True):
            content = python2_batch(images, labels)
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive


def know_batches(monkeypatch, train, test) -> None:
    """Take the checksums of `cifar_python`'s batches for the official ones."""
    for name, images, labels in _cifar_batches(train, test):
        content = python2_batch(images, labels)
        monkeypatch.setitem(CIFAR_MD5, name, hashlib.md5(content).hexdigest())


def _cifar_batches(train, test):
    parts = [np.array_split(part, 5) for part in train]
    yield from zip(CIFAR_BATCHES[:5], *parts, strict=True)
    yield (CIFAR_BATCHES[5], *test)


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes as Python 2's strings, as the official batches have them."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012

    def save_string(self, value: str | bytes) -> None:
        raw = value.encode("latin1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
        self.memoize(value)

    dispatch[str] = dispatch[bytes] = save_string


def python2_batch(images: np.ndarray, labels: np.ndarray) -> bytes:
    """A batch of `cifar-10-batches-py`."""
    file = io.BytesIO()
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    Python2Pickler(file, protocol=2).dump({"data": planes, "labels": labels.tolist()})
    return file.getvalue()


def mnist(folder: Path, train, test, zipped: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, (images, labels) in (("train", train), ("t10k", test)):
        for kind, array in (("images-idx3", images[..., 0]), ("labels-idx1", labels.astype(np.uint8))):
            content = idx(array)
            name = f"{stem}-{kind}-ubyte"
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
            else:
                (folder / name).write_bytes(content)
    return folder


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def jpeg(seed: int, mode: str = "RGB", size: int = 64) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((size, size)).convert(mode).save(file, "JPEG")
    return file.getvalue()


def tiny_imagenet(folder: Path, per_class: int = 4, val: int = 6) -> Path:
    """Two classes; every other train image is grey."""
    wnids = ("n02", "n01")
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (folder / "words.txt").write_text("n01\tbullfrog, Rana\nn02\tEgyptian cat\nn03\tunused\n")
    for k, wnid in enumerate(wnids):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        names = [f"{wnid}_{i}.JPEG" for i in range(per_class)]
        (images.parent / f"{wnid}_boxes.txt").write_text("".join(f"{name}\t0\t0\t63\t63\n" for name in names))
        for i, name in enumerate(names):
            (images / name).write_bytes(jpeg(10 * k + i, "L" if i % 2 else "RGB"))
    lines = []
    for i in range(val):
        lines.append(f"val_{i}.JPEG\t{wnids[i % 2]}\t0\t0\t63\t63\n")
        (folder / "val" / "images" / f"val_{i}.JPEG").write_bytes(jpeg(100 + i))
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder


@contextmanager
def web_server(files: dict[str, bytes], cut_at: int | None = None):
    """Serve `files` on 127.0.0.1; yields (base URL, log of paths).

    The first reply stops after `cut_at` bytes although it promised more.
    """
    log: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.lstrip("/")
            log.append(name)
            if name not in files:
                return self.send_error(404)
            content = files[name]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: cut_at if len(log) == 1 else None])

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", log
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
