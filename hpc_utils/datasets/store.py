"""Decoded data sets on disk: `<data>/<name>/{train,test}-{images,labels}.npy` and `meta.json`."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import TypeAdapter

from hpc_utils import paths

from .catalog import SPLITS, DatasetInfo, Split, fault, info
from .decode import Decoded

META = "meta.json"
DIGITS = Path(__file__).with_name("digits.npz")  # data/README.md documents its origin
SHIPPED = "digits"
FILES = (*(f"{split}-{part}.npy" for split in SPLITS for part in ("images", "labels")), META)


@dataclass(frozen=True)
class Images:
    """One split of a data set.

    `images` is uint8 (N, H, W, C), read-only and memory-mapped; `labels` is int64 (N,), read-only.
    `mean` and `std` are per channel over the train pixels scaled to [0, 1]. `sha256` is the pixels' checksum as
    known or recorded at fetch: it distinguishes a subset; `load(..., verify=True)` compares it.
    """

    name: str
    title: str
    split: str
    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    sha256: str


@dataclass(frozen=True)
class Meta:
    """The content of `meta.json`: what was decoded, and from which archive or folder (`source`)."""

    name: str
    title: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    splits: dict[Literal["train", "test"], Split]
    source: str = ""


def load(name: str, split: str, verify: bool = False) -> Images:
    """Open split "train" or "test" of data set `name`; `verify=True` also hashes every byte of it."""
    dataset = info(name)
    if name == SHIPPED:
        return _shipped(dataset, split)
    folder = paths.data() / name
    meta = read_meta(dataset, folder)
    noted = meta.splits[split]
    shape = (noted.count, *meta.shape)
    images = _open(dataset, folder / f"{split}-images.npy", shape, np.dtype(np.uint8), noted.images_sha256, verify)
    labels = _open(dataset, folder / f"{split}-labels.npy", shape[:1], np.dtype("<i8"), noted.labels_sha256, verify)
    return Images(name, meta.title, split, images, labels, meta.classes, meta.mean, meta.std, noted.images_sha256)


def verify(name: str) -> None:
    """Hash every file of data set `name`; a DataError names the first that differs."""
    for split in SPLITS:
        load(name, split, verify=True)


def fetch_command(name: str, force: bool = True) -> str:
    """The command that fetches data set `name` (again)."""
    return f"`hpc data fetch {name}{' --force' if force else ''}`"


def digest(array: np.ndarray) -> str:
    """SHA-256 of an array's values in C order, integers little-endian."""
    return hashlib.sha256(np.ascontiguousarray(array, array.dtype.newbyteorder("<"))).hexdigest()


def describe(dataset: DatasetInfo, decoded: Decoded, where: Path, remedy: str) -> Meta:
    """The description of decoded arrays, after a comparison with the catalogue.

    Where the catalogue has no checksums, those of the arrays are recorded, for `verify`.
    """
    splits = {}
    for split, (images, labels) in decoded.splits.items():
        expected = dataset.split(split)
        measured = Split(len(images), digest(images), digest(labels))
        last = len(decoded.classes) - 1
        checks = [
            (f"{split} image shape", dataset.shape, images.shape[1:]),
            (f"{split} labels outside 0..{last}", 0, np.count_nonzero((labels < 0) | (labels > last))),
        ]
        if expected.images_sha256:
            checks += [
                (f"{split} {name}", value, getattr(measured, name)) for name, value in asdict(expected).items()
            ]
        for what, wanted, actual in checks:
            if wanted != actual:
                raise fault(where, f"{what} {wanted}", actual, remedy)
        splits[split] = measured
    mean, std = (dataset.mean, dataset.std) if dataset.mean else channel_statistics(decoded.splits["train"][0])
    return Meta(dataset.name, _title(dataset, decoded), decoded.classes, dataset.shape, mean, std, splits, where.name)


def _title(dataset: DatasetInfo, decoded: Decoded) -> str:
    counts = [len(decoded.splits[split][0]) for split in SPLITS]
    if (len(decoded.classes), *counts) == (dataset.class_count, dataset.train.count, dataset.test.count):
        return dataset.title
    return f"{dataset.name} subset: {len(decoded.classes)} classes, {counts[0]:,} train and {counts[1]:,} test images"


def write_images(folder: Path, decoded: Decoded, meta: Meta) -> None:
    """Write the arrays and then `meta.json` into `folder`, each flushed to the disk."""
    for split, (images, labels) in decoded.splits.items():
        for part, array in (("images", images), ("labels", labels)):
            with (folder / f"{split}-{part}.npy").open("wb") as file:
                np.save(file, np.ascontiguousarray(array))
                _flush(file)
    with (folder / META).open("w", encoding="utf-8") as file:
        json.dump(asdict(meta), file, indent=1)
        _flush(file)


def _flush(file) -> None:
    file.flush()
    os.fsync(file.fileno())


def read_meta(dataset: DatasetInfo, folder: Path) -> Meta:
    """The checked content of `meta.json`."""
    file = folder / META
    remedy = fetch_command(dataset.name)
    if not any(folder.glob("*")):
        raise fault(folder, f"data set {dataset.name}", "nothing", fetch_command(dataset.name, force=False))
    try:
        meta = TypeAdapter(Meta).validate_json(file.read_bytes())
    except FileNotFoundError:
        raise fault(file, "the description of a fetched data set", "no such file", remedy) from None
    except (OSError, ValueError) as error:
        raise fault(file, "a complete description", f"damage ({error})", remedy) from error
    for name in SPLITS:
        if dataset.split(name).images_sha256 and meta.splits[name] != dataset.split(name):
            raise fault(file, f"the catalogue's {name} {dataset.split(name)}", meta.splits[name], remedy)
    return meta


def _open(
    dataset: DatasetInfo, file: Path, shape: tuple[int, ...], dtype: np.dtype, sha256: str, verify: bool
) -> np.ndarray:
    remedy = fetch_command(dataset.name)
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
        actual = f"{array.dtype} {array.shape}"
    except FileNotFoundError:
        array = None
        actual = "no such file"
    except Exception as error:  # a damaged header is parsed as Python and can raise anything
        array = None
        actual = f"no complete array ({error})"
    if array is None or (array.dtype, array.shape) != (dtype, shape) or not array.flags.c_contiguous:
        raise fault(file, f"{dtype} {shape}", actual, remedy)
    if verify and (actual := digest(array)) != sha256:
        raise fault(file, f"sha256 {sha256}", f"sha256 {actual} (the file was altered)", remedy)
    return array


def _shipped(dataset: DatasetInfo, split: str) -> Images:
    sha256 = dataset.split(split).images_sha256
    with np.load(DIGITS, allow_pickle=False) as file:
        arrays = file[f"{split}_images"], file[f"{split}_labels"].astype("<i8")
    for array in arrays:
        array.setflags(write=False)
    return Images(dataset.name, dataset.title, split, *arrays, dataset.classes, dataset.mean, dataset.std, sha256)


def channel_statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and population standard deviation per channel of uint8 (N, H, W, C), scaled to [0, 1]."""
    counts = np.zeros((images.shape[-1], 256), np.int64)
    for start in range(0, len(images), 1000):  # in pieces, because bincount widens its input eightfold
        piece = images[start : start + 1000].reshape(-1, images.shape[-1])
        counts += [np.bincount(channel, minlength=256) for channel in piece.T]
    values = np.arange(256) / 255
    share = counts / counts.sum(axis=1, keepdims=True)
    mean = share @ values
    std = np.sqrt(share @ values**2 - mean**2)
    return tuple(map(float, mean)), tuple(map(float, std))
