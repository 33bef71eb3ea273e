"""What we know of each data set before a byte of it is here: size, statistics, terms, checksums."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

SPLITS = ("train", "test")


class DataError(Exception):
    """A data set is unknown, missing, damaged or out of reach: one line, with the command that mends it."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def fault(where: object, expected: str, found: object, mend: str) -> DataError:
    """The form of nearly every DataError: which file, what it should be, what it is, what to do."""
    return DataError(f"{where}: expected {expected}, found {found}; to mend: {mend}")


@dataclass(frozen=True)
class Archive:
    """One file of the official distribution; `urls` are tried in turn, `size` is in bytes."""

    file: str
    urls: tuple[str, ...]
    md5: str
    size: int


@dataclass(frozen=True)
class Split:
    """Number of images, and SHA-256 of the decoded pixels (uint8, NHWC) and labels (int64, little-endian).

    The checksums are None where JPEG decoders may differ in a bit.
    """

    count: int
    images_sha256: str | None = None
    labels_sha256: str | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """A data set's entry in the catalogue.

    `shape` is (H, W, C) in pixels; `mean` and `std` are per channel, over the train pixels scaled to [0, 1],
    None where they are computed at fetch; `classes` is empty where the archive names them.
    `sources` are alternatives: any one tuple of archives is the whole data set.
    """

    name: str
    title: str
    class_count: int
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    train: Split
    test: Split
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    licence: str
    citation: str
    homepage: str
    sources: tuple[tuple[Archive, ...], ...] = ()

    def split(self, name: str) -> Split:
        """The split called `name`: "train" or "test"."""
        if name not in SPLITS:
            raise DataError(f"{self.name}: expected split 'train' or 'test', found {name!r}")
        return self.train if name == "train" else self.test


_MNIST_HOSTS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


def _cifar(file: str, md5: str, size: int) -> Archive:
    return Archive(file, (f"https://www.cs.toronto.edu/~kriz/{file}",), md5, size)


def _mnist(file: str, md5: str, size: int) -> Archive:
    return Archive(file, tuple(host + file for host in _MNIST_HOSTS), md5, size)


_ALL = (
    DatasetInfo(
        name="digits",
        title="Handwritten digits, 8x8 (a demo that ships inside scikit-learn; too small for scaling results)",
        class_count=10,
        classes=tuple("0123456789"),
        shape=(8, 8, 1),
        train=Split(
            1437,
            "0f6c613b7ad2343df851ec1230c6ee15eb5ad29be01fa67639b3ffe54ca95b13",
            "3c8b5992955a308e8f8951571c5a5b0704e9087231a8ae2921804a249e56d01b",
        ),
        test=Split(
            360,
            "f8da3231f745dc76e21dcafa7258f107bdbb5603cbb47ac1807f3c667b241b70",
            "89df99af78caf5801a1854956b5e1f5f907eeb278efe75e5ba9eca6432682e98",
        ),
        mean=(0.3058024445,),
        std=(0.3760534895,),
        licence="CC BY 4.0 (UCI); shipped by scikit-learn (BSD-3-Clause)",
        citation="E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, "
        "UCI Machine Learning Repository, 1998, doi:10.24432/C50P49",
        homepage="https://archive.ics.uci.edu/dataset/80",
    ),
    DatasetInfo(
        name="cifar10",
        title="CIFAR-10: small colour photographs",
        class_count=10,
        classes=(
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        shape=(32, 32, 3),
        train=Split(
            50_000,
            "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
        ),
        test=Split(
            10_000,
            "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
        ),
        mean=(0.4913996786, 0.4821584084, 0.4465309144),
        std=(0.2470322325, 0.2434851280, 0.2615878417),
        licence="none stated; its page asks for the citation",
        citation="A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, "
        "technical report, University of Toronto, 2009",
        homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
        sources=(
            (_cifar("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),),
            (_cifar("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171),),
        ),
    ),
    DatasetInfo(
        name="mnist",
        title="MNIST: handwritten digits",
        class_count=10,
        classes=tuple("0123456789"),
        shape=(28, 28, 1),
        train=Split(
            60_000,
            "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "e474323ac02fc156161b0bbb1f8c9cfeb327a74bcd9f9680a8385269a24f566c",
        ),
        test=Split(
            10_000,
            "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            "2fd8de6bdb8d11780b4b96dc57847bcfe6953f7c32aa48bfcd8237c3b7847243",
        ),
        mean=(0.1306604763,),
        std=(0.3081078039,),
        licence="none stated by its authors; its mirrors give CC BY-SA 3.0",
        citation="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-Based Learning Applied to Document "
        "Recognition, Proceedings of the IEEE 86(11), 1998, doi:10.1109/5.726791",
        homepage="http://yann.lecun.com/exdb/mnist/",
        sources=(
            (
                _mnist("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
                _mnist("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
                _mnist("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
                _mnist("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
            ),
        ),
    ),
    DatasetInfo(
        name="tiny-imagenet",
        title="TinyImageNet: 200 classes of ImageNet at 64x64; test is the official validation set",
        class_count=200,
        classes=(),
        shape=(64, 64, 3),
        train=Split(100_000),
        test=Split(10_000),
        mean=None,
        std=None,
        licence="ImageNet's terms: non-commercial research and education only",
        citation="Y. Le, X. Yang, Tiny ImageNet Visual Recognition Challenge, Stanford CS231N, 2015; "
        "O. Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, IJCV 115, 2015, "
        "doi:10.1007/s11263-015-0816-y",
        homepage="https://www.image-net.org/download.php",
        sources=(
            (
                Archive(
                    "tiny-imagenet-200.zip",
                    (
                        "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
                        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                    ),
                    "90528d7ca1a48142e341f4ef8d21d0de",
                    248_100_043,
                ),
            ),
        ),
    ),
)

DATASETS: dict[str, DatasetInfo] = {entry.name: entry for entry in _ALL}


def info(name: str) -> DatasetInfo:
    """The catalogue's entry for `name`; an unknown name is a DataError that suggests the nearest known one."""
    if name in DATASETS:
        return DATASETS[name]
    nearest = difflib.get_close_matches(str(name).lower(), DATASETS, n=1, cutoff=0.0)[0]
    raise DataError(f"no data set is called {name!r}; did you mean {nearest!r}? (known: {', '.join(DATASETS)})")
