from __future__ import annotations

import subprocess
import sys

import pytest

from hpc_utils import paths
from hpc_utils.datasets import DATASETS, DataError, info, load


def test_an_unknown_name_is_answered_with_the_nearest():
    for refused in (info, lambda name: load(name, "train")):
        with pytest.raises(DataError, match="cifar10"):
            refused("cifar")


def test_an_unknown_split_is_refused():
    with pytest.raises(DataError, match="'train' or 'test', found 'val'"):
        load("digits", "val")


def test_the_readme_repeats_the_catalogue():
    readme = (paths.root() / "data" / "README.md").read_text(encoding="utf-8")
    for entry in DATASETS.values():
        splits = [entry.train, entry.test]
        facts = [entry.title, entry.licence, entry.citation, " / ".join(f"{split.count:,}" for split in splits)]
        facts += [checksum for split in splits for checksum in (split.images_sha256, split.labels_sha256)]
        archives = [archive for source in entry.sources for archive in source.archives]
        facts += [fact for archive in archives for fact in (archive.urls[0], f"{archive.size:,}", archive.md5)]
        for fact in facts:
            assert fact is None or fact in readme, entry.name


def test_importing_the_room_and_loading_digits_imports_nothing_heavy():
    code = """
import sys
import hpc_utils.datasets
heavy = {'torch', 'pooch', 'requests', 'PIL', 'tqdm', 'urllib.request', 'pandas', 'scipy'}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
hpc_utils.datasets.load('digits', 'train')
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
