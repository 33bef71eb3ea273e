"""The catalogue of data sets: `catalog.toml`, read and typed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from hpc_utils import toml_config

SPLITS = ("train", "test")


class DataError(Exception):
    """A data set is unknown, missing, damaged or out of reach; one line, with the command that helps."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def fault(where: object, expected: str, actual: object, remedy: str) -> DataError:
    """A DataError with the file, the expectation, the finding and the remedy."""
    return DataError(f"{where}: expected {expected}, found {actual}; fix: {remedy}")


@dataclass(frozen=True)
class Archive:
    """One file of the official distribution; `urls` are tried in turn, `size` is in bytes."""

    file: str
    urls: tuple[str, ...]
    md5: str
    size: int


@dataclass(frozen=True)
class Source:
    """The archives that together make up the data set."""

    archives: tuple[Archive, ...]


@dataclass(frozen=True)
class Split:
    """Number of images, and SHA-256 of the decoded pixels and labels; None where decoders may differ in a bit."""

    count: int
    images_sha256: str | None = None
    labels_sha256: str | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """A data set's entry in the catalogue; the head of `catalog.toml` documents the fields."""

    name: str
    title: str
    class_count: int
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    train: Split
    test: Split
    licence: str
    citation: str
    homepage: str
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    sources: tuple[Source, ...] = ()

    def split(self, name: str) -> Split:
        """The split called `name`: "train" or "test"."""
        if name not in SPLITS:
            raise DataError(f"{self.name}: expected split 'train' or 'test', found {name!r}")
        return self.train if name == "train" else self.test


_ENTRY = TypeAdapter(DatasetInfo)
_TABLES = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))
DATASETS: dict[str, DatasetInfo] = {
    name: _ENTRY.validate_python({"name": name, **table}) for name, table in _TABLES.items()
}


def info(name: str) -> DatasetInfo:
    """The catalogue's entry for `name`; DataError if there is none."""
    if name not in DATASETS:
        raise DataError(f"no data set is called {name!r}: {toml_config.hint(name, DATASETS)}")
    return DATASETS[name]
