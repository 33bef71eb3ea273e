"""Official layouts to arrays: CIFAR-10 (python and binary), MNIST (idx), TinyImageNet (JPEG)."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpc_utils.datasets.archive import MEMBER_LIMIT, Files, readable
from hpc_utils.datasets.catalog import DATASETS, DataError


@dataclass(frozen=True)
class Decoded:
    """A whole data set in memory: per split, images uint8 (N, H, W, C) and labels int64 (N,)."""

    classes: tuple[str, ...]
    splits: dict[str, tuple[np.ndarray, np.ndarray]]


def decode(name: str, path: Path, progress: bool = False) -> Decoded:
    """Read data set `name` from a folder, tar or zip in its official layout."""
    return _DECODERS[name](path, progress)


def _bar(items: Iterable, total: int, title: str, progress: bool) -> Iterable:
    from tqdm import tqdm

    return tqdm(items, total=total, desc=title, unit="image", disable=not progress)


# CIFAR-10 -------------------------------------------------------------------------------------------------

_CIFAR_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def cifar10(path: Path, progress: bool = False) -> Decoded:
    """CIFAR-10 from `cifar-10-batches-py` or `cifar-10-batches-bin`, as a folder or an archive of it."""
    files = Files(path, ("data_batch_1", "data_batch_1.bin"))
    suffix, parse = ("", _cifar_pickle) if "data_batch_1" in files else (".bin", _cifar_binary)
    batches = {
        name: parse(content, files.where(name))
        for name, content in files.read([batch + suffix for batch in _CIFAR_BATCHES])
    }
    ordered = [batches[batch + suffix] for batch in _CIFAR_BATCHES]
    images, labels = (np.concatenate(part) for part in zip(*ordered[:5], strict=True))
    return Decoded(DATASETS["cifar10"].classes, {"train": (images, labels), "test": ordered[5]})


def _cifar_planes(pixels: np.ndarray) -> np.ndarray:
    """(N, 3072) in planes R, G, B to (N, 32, 32, 3)."""
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _cifar_binary(content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    if not content or len(content) % 3073:
        raise DataError(f"{where}: expected whole records of 3,073 bytes, found {len(content):,} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, 3073)
    return _cifar_planes(records[:, 1:]), records[:, 0].astype(np.int64)


def _cifar_pickle(content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _CifarUnpickler(io.BytesIO(content), encoding="bytes").load()
        batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        pixels, labels = batch["data"].array, np.array(batch["labels"], np.int64)
    except Exception as error:  # a damaged or hostile pickle can raise anything
        raise DataError(
            f"{where}: expected a CIFAR-10 pickle, found one that cannot be read ({type(error).__name__}: {error})"
        ) from error
    if pixels.shape != (len(labels), 3072) or labels.ndim != 1:
        raise DataError(f"{where}: expected pixels (N, 3072) with N labels, found {pixels.shape} and {labels.shape}")
    return _cifar_planes(pixels), labels


class _Dtype:
    """Stands in for numpy.dtype: only unsigned bytes pass."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        if code not in (b"u1", "u1"):
            raise pickle.UnpicklingError(f"array of type {code!r}")

    def __setstate__(self, state: object) -> None:
        pass


class _Array:
    """Stands in for numpy.ndarray, so that no compiled code is handed a state that a stranger wrote."""

    array = np.empty(0, np.uint8)

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype):
            raise pickle.UnpicklingError("array without a type")
        self.array = np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


def _latin1(text: str, encoding: str) -> bytes:
    """Stands in for codecs.encode, by which Python 3 writes bytes into old pickles."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"text in encoding {encoding!r}")
    return text.encode("latin1")


class _CifarUnpickler(pickle.Unpickler):
    """Reads dicts, lists, numbers, strings and byte arrays; anything else in the file is refused, not called."""

    _KNOWN = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _latin1,
    }

    def find_class(self, module: str, name: str) -> object:
        try:
            return self._KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


# MNIST ----------------------------------------------------------------------------------------------------


def mnist(path: Path, progress: bool = False) -> Decoded:
    """MNIST from a folder (or an archive) with the four idx files, each gzipped or plain."""
    files = Files(path, ("train-images-idx3-ubyte.gz", "train-images-idx3-ubyte"))
    splits = {}
    for split, stem in (("train", "train"), ("test", "t10k")):
        images = _idx(files, f"{stem}-images-idx3-ubyte", (28, 28))
        labels = _idx(files, f"{stem}-labels-idx1-ubyte", ())
        if len(images) != len(labels):
            where = files.where(f"{stem}-labels-idx1-ubyte")
            raise DataError(f"{where}: expected {len(images):,} labels, found {len(labels):,}")
        splits[split] = (images[..., None], labels.astype(np.int64))
    return Decoded(DATASETS["mnist"].classes, splits)


def _idx(files: Files, stem: str, item: tuple[int, ...]) -> np.ndarray:
    """An idx file of unsigned bytes: magic 0x08 and the rank, big-endian sizes, then the values."""
    name = stem + ".gz" if stem + ".gz" in files else stem
    where = files.where(name)
    [(_, content)] = files.read([name])
    if name.endswith(".gz"):
        with readable(where), gzip.open(io.BytesIO(content)) as file:
            content = file.read(MEMBER_LIMIT)
    rank = 1 + len(item)
    header = 4 + 4 * rank
    magic = bytes((0, 0, 8, rank))
    if content[:4] != magic or len(content) < header:
        raise DataError(
            f"{where}: expected an idx file that begins {magic.hex()}, found {content[:4].hex() or 'nothing'}"
        )
    shape = struct.unpack(f">{rank}I", content[4:header])
    size = header + shape[0] * int(np.prod(item))
    if shape[1:] != item or len(content) != size:
        raise DataError(
            f"{where}: expected {shape[0]:,} items of {item} in {size:,} bytes, "
            f"found items of {shape[1:]} and {len(content):,} bytes"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


# TinyImageNet ---------------------------------------------------------------------------------------------


def tiny_imagenet(path: Path, progress: bool = False) -> Decoded:
    """TinyImageNet, or a subset in its layout, from a folder, tar or zip.

    What belongs to it is what its own lists name: `wnids.txt` the classes in order of label,
    `train/<wnid>/<wnid>_boxes.txt` and `val/val_annotations.txt` the images. Split "test" is `val`, for the
    labels of the official test images are not public. Grey images become RGB.
    """
    files = Files(path, ("wnids.txt",))
    wnids = files.text("wnids.txt").split()
    label = {wnid: i for i, wnid in enumerate(wnids)}
    words = dict(line.split("\t", 1) for line in files.text("words.txt").splitlines() if "\t" in line)
    classes = tuple(words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids)

    boxes = dict(files.read([f"train/{wnid}/{wnid}_boxes.txt" for wnid in wnids]))
    train = [
        (f"train/{wnid}/images/{line.split()[0]}", label[wnid])
        for wnid in wnids
        for line in boxes[f"train/{wnid}/{wnid}_boxes.txt"].decode("utf-8", "replace").splitlines()
        if line.strip()
    ]
    test = []
    for line in files.text("val/val_annotations.txt").splitlines():
        file, wnid, *_ = *line.split("\t"), ""
        if wnid not in label:
            where = files.where("val/val_annotations.txt")
            raise DataError(f"{where}: expected a class of wnids.txt for {file!r}, found {wnid!r}")
        test.append((f"val/images/{file}", label[wnid]))
    if not train or not test:
        raise DataError(f"{path}: expected images in both lists, found {len(train)} train and {len(test)} val")
    splits = {"train": _jpegs(files, train, "train", progress), "test": _jpegs(files, test, "test", progress)}
    return Decoded(classes, splits)


def _jpegs(files: Files, listed: list[tuple[str, int]], title: str, progress: bool) -> tuple[np.ndarray, np.ndarray]:
    row = {name: i for i, (name, _) in enumerate(listed)}
    if len(row) != len(listed):
        raise DataError(f"{files.path}: expected each {title} image listed once, found duplicates")
    images = np.empty((len(listed), *DATASETS["tiny-imagenet"].shape), np.uint8)
    for name, content in _bar(files.read(row), len(row), title, progress):
        images[row[name]] = _jpeg(content, files.where(name), images.shape[1:])
    return images, np.array([label for _, label in listed], np.int64)


def _jpeg(content: bytes, where: str, shape: tuple[int, ...]) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            size = image.size
            # Size first: the pixels of an image that claims to be huge are never decoded.
            pixels = np.asarray(image.convert("RGB")) if size == (shape[1], shape[0]) else None
    except Exception as error:  # Pillow raises OSError, SyntaxError, ValueError, ... on damaged files
        raise DataError(f"{where}: expected a JPEG image, found one that cannot be read ({error})") from error
    if pixels is None:
        raise DataError(f"{where}: expected {shape[1]} x {shape[0]} pixels, found {size[0]} x {size[1]}")
    return pixels


_DECODERS = {"cifar10": cifar10, "mnist": mnist, "tiny-imagenet": tiny_imagenet}
