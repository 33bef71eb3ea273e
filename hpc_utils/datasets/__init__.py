"""Data sets: fetched once, checked, and read by every rank as memory-mapped uint8 images.

>>> fetch("cifar10")                      # once, on a node with a network or from HPC_DATA_MIRROR
>>> train = load("cifar10", "train")      # on every rank; opens files, copies nothing
>>> train.images.shape, train.mean        # ((50000, 32, 32, 3), (0.4914, 0.4822, 0.4465))
"""

from __future__ import annotations

from .catalog import DATASETS, DataError, DatasetInfo, info
from .fetch import fetch
from .store import Images, load, verify
