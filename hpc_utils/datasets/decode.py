"""Decoders of the official layouts: CIFAR-10 (python and binary), MNIST (idx), TinyImageNet (JPEG).

A new data set needs an entry in `catalog.toml` and one in `LAYOUTS`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .archive import Folder, content, opened, readable
from .catalog import DataError, DatasetInfo, info

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Decoded:
    """A data set in memory: per split, images uint8 (N, H, W, C) and labels int64 (N,)."""

    classes: tuple[str, ...]
    splits: dict[str, Arrays]


@dataclass(frozen=True)
class Layout:
    """How a data set is read.

    Attributes:
        decode: takes the folder with the files, and the catalogue's entry.
        markers: files by which the folder is recognised.
        places: further paths of a marker, or of an archive, in a mirror. folders: a mirror with these is the data set, too.
    """

    decode: Callable[[Folder, DatasetInfo], Decoded]
    markers: tuple[str, ...]
    places: tuple[str, ...]
    folders: tuple[str, ...] = ()


def decode(name: str, path: Path) -> Decoded:
    """Data set `name` from a folder, tar or zip in its official layout; DataError if it is damaged."""
    layout = LAYOUTS[name]
    with opened(path, *layout.markers) as folder, readable(path):
        return layout.decode(folder, info(name))


# CIFAR-10 -------------------------------------------------------------------------------------------------

CIFAR_MD5 = {  # of the official pickles
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


def _cifar10(folder: Folder, dataset: DatasetInfo) -> Decoded:
    python = (folder / "data_batch_1").is_file()
    batches = []
    for name, md5 in CIFAR_MD5.items():
        file = folder / (name if python else f"{name}.bin")
        raw = content(file)
        with readable(file):
            if python:
                checksum = hashlib.md5(raw, usedforsecurity=False).hexdigest()
                if checksum != md5:
                    raise ValueError(f"md5 {checksum}, the official file has {md5}")
                # A pickle can run code when it is loaded. This one has the checksum of the official file, byte for
                # byte.
                batch = pickle.loads(raw, encoding="latin1")  # noqa: S301
                pixels, labels = batch["data"], np.array(batch["labels"], np.int64)
            else:
                records = np.frombuffer(raw, np.uint8).reshape(-1, 3073)
                pixels, labels = records[:, 1:], records[:, 0].astype(np.int64)
        batches.append((np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels))
    images, labels = (np.concatenate(part) for part in zip(*batches[:5], strict=True))
    return Decoded(dataset.classes, {"train": (images, labels), "test": batches[5]})


# MNIST ----------------------------------------------------------------------------------------------------


def _mnist(folder: Folder, dataset: DatasetInfo) -> Decoded:
    splits = {}
    for split, stem in (("train", "train"), ("test", "t10k")):
        images = _idx(folder, f"{stem}-images-idx3-ubyte", (28, 28))
        labels = _idx(folder, f"{stem}-labels-idx1-ubyte", ())
        splits[split] = (images[..., None], labels.astype(np.int64))
    return Decoded(dataset.classes, splits)


def _idx(folder: Folder, stem: str, item: tuple[int, ...]) -> np.ndarray:
    """An idx file of unsigned bytes, gzipped or plain: magic 0x08 and the rank, big-endian sizes, then the values."""
    file = folder / f"{stem}.gz"
    zipped = file.is_file()
    raw = content(file if zipped else folder / stem)
    rank = 1 + len(item)
    with readable(file):
        raw = gzip.decompress(raw) if zipped else raw
        shape = tuple(map(int, np.frombuffer(raw, ">u4", rank, offset=4)))
        if raw[:4] != bytes((0, 0, 8, rank)) or shape[1:] != item:
            raise ValueError(f"its header is {raw[:4].hex()}, its items are of {shape[1:]}, not {item}")
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


# TinyImageNet ---------------------------------------------------------------------------------------------


def _tiny_imagenet(folder: Folder, dataset: DatasetInfo) -> Decoded:
    """TinyImageNet, or a subset in its layout, or as folders of classes (`train/<class>`, `val/<class>`).

    Its lists name what belongs to it: `wnids.txt` the classes in order of label, `train/<wnid>/<wnid>_boxes.txt` and
    `val/val_annotations.txt` the images; without a list all in the folders, by name. Split "test" is `val`,
    because the labels of the official test images are not public. Grey images become RGB.
    """

    def lines(name: str) -> list[list[str]]:
        return [line.split("\t") for line in content(folder / name).decode().splitlines() if line.strip()]

    def images_of(place: str, wnid: str) -> list[tuple[str, str]]:
        """(path, class) of the images of a class: those in its list, or else in its folder or that folder's `images`."""
        home = f"{place}/{wnid}"
        boxes = f"{home}/{wnid}_boxes.txt"
        if (folder / boxes).is_file():
            return [(f"{home}/images/{image}", wnid) for image, *_ in lines(boxes)]
        inner = f"{home}/images" if (folder / home / "images").is_dir() else home
        return [(f"{inner}/{name}", wnid) for name in sorted(image.name for image in (folder / inner).iterdir())]

    def classes_in(place: str) -> list[str]:
        return sorted(path.name for path in (folder / place).iterdir() if path.is_dir())

    wnids = [wnid for (wnid, *_) in lines("wnids.txt")] if (folder / "wnids.txt").is_file() else classes_in("train")
    words = {wnid: text for wnid, text, *_ in lines("words.txt")} if (folder / "words.txt").is_file() else {}
    classes = tuple(words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids)
    listed = {"train": [image for wnid in wnids for image in images_of("train", wnid)]}
    if (folder / "val/val_annotations.txt").is_file():
        listed["test"] = [(f"val/images/{image}", wnid) for image, wnid, *_ in lines("val/val_annotations.txt")]
    else:
        listed["test"] = [image for wnid in classes_in("val") for image in images_of("val", wnid)]
    return Decoded(
        classes,
        {split: _jpegs(folder, images, wnids, dataset.shape, split) for split, images in listed.items()},
    )


def _jpegs(
    folder: Folder,
    listed: list[tuple[str, str]],
    wnids: list[str],
    shape: tuple[int, ...],
    title: str,
) -> Arrays:
    from PIL import Image
    from tqdm import tqdm

    label = {wnid: number for number, wnid in enumerate(wnids)}
    if not listed or (unknown := {wnid for _, wnid in listed} - set(wnids)):
        problem = f"classes {', '.join(sorted(unknown))}" if listed else "none"
        raise DataError(f"{folder}: expected {title} images of the classes in wnids.txt, found {problem}")
    images = np.empty((len(listed), *shape), np.uint8)
    for row, (name, _) in enumerate(tqdm(listed, desc=title, unit="image")):
        raw = content(folder / name)
        with readable(folder / name), Image.open(io.BytesIO(raw), formats=("JPEG",)) as image:
            if image.size != (shape[1], shape[0]):  # checked before the pixels are decoded
                raise ValueError(f"it has {image.size[0]} x {image.size[1]} pixels, not {shape[1]} x {shape[0]}")
            images[row] = np.asarray(image.convert("RGB"))
    return images, np.array([label[wnid] for _, wnid in listed], np.int64)


LAYOUTS = {
    "cifar10": Layout(
        _cifar10,
        ("data_batch_1", "data_batch_1.bin"),
        ("cifar-10-batches-*/data_batch_1", "cifar-10-batches-*/data_batch_1.bin",
         "cifar-10-python.tar.gz", "cifar-10-binary.tar.gz"),
    ),
    "mnist": Layout(
        _mnist,
        ("train-images-idx3-ubyte.gz", "train-images-idx3-ubyte"),
        tuple(f"{folder}train-images-idx3-ubyte{end}" for folder in ("raw/", "MNIST/raw/") for end in (".gz", "")),
    ),
    "tiny-imagenet": Layout(
        _tiny_imagenet,
        ("wnids.txt",),
        ("tiny-imagenet*/wnids.txt", "tiny-imagenet*.zip", "tiny-imagenet*.tar*",
         "tiny-imagenet*/*.zip", "tiny-imagenet*/*.tar*"),
        folders=("train", "val"),
    ),
}  # fmt: skip
