"""The demo: 1,797 real 8x8 digits out of scikit-learn's folder, without importing it (0.7 s on every rank)."""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from hpc_utils.datasets.catalog import fault
from hpc_utils.datasets.sources import readable

_MEND = "pip install --force-reinstall scikit-learn"


def path() -> Path:
    """The csv.gz inside the installed scikit-learn."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise fault("digits", "scikit-learn to be installed (the digits ship inside it)", "none", _MEND)
    file = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    if not file.is_file():
        raise fault(file, "the digits that ship inside scikit-learn", "no such file", _MEND)
    return file


def read(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (N, 8, 8, 1) and labels int64 (N,) of "train" (1,437) or "test" (360).

    The file's 0..16 become 0..255, rounded. Test is every fifth image of the list sorted by class: the same on
    every machine, and each class gives a fifth of its images.
    """
    file = path()
    with readable(file):
        text = gzip.decompress(file.read_bytes()).decode("ascii")
        table = np.array([line.split(",") for line in text.split()], dtype=float).astype(np.int64)
    if table.ndim != 2 or table.shape[1] != 65:
        raise fault(file, "rows of 64 pixels and a label", f"a table of shape {table.shape}", _MEND)
    images = ((table[:, :64] * 255 + 8) // 16).astype(np.uint8).reshape(-1, 8, 8, 1)
    labels = table[:, 64]
    is_test = np.zeros(len(labels), bool)
    is_test[np.argsort(labels, kind="stable")[::5]] = True
    chosen = is_test if split == "test" else ~is_test
    return images[chosen], labels[chosen]
