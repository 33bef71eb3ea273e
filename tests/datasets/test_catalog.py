from __future__ import annotations

import subprocess
import sys

import pytest

from hpc_utils import paths
from hpc_utils.datasets import DATASETS, DataError, info, load
from hpc_utils.datasets.catalog import markdown_table


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("cifar", "cifar10"), ("CIFAR-10", "cifar10"), ("imagenet", "tiny-imagenet")]
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong, nearest):
    with pytest.raises(DataError, match=f"did you mean '{nearest}'"):
        info(wrong)
    with pytest.raises(DataError, match=f"did you mean '{nearest}'"):
        load(wrong, "train")


def test_an_unknown_split_is_refused():
    with pytest.raises(DataError, match="'train' or 'test', found 'val'"):
        load("digits", "val")


def test_the_readme_repeats_the_catalogue():
    readme = (paths.root() / "data" / "README.md").read_text(encoding="utf-8")
    assert markdown_table() in readme
    assert all(entry.citation in readme for entry in DATASETS.values())


def test_importing_the_room_and_loading_digits_imports_nothing_heavy():
    code = """
import sys
import hpc_utils.datasets
heavy = {'torch', 'sklearn', 'PIL', 'tqdm', 'urllib.request', 'pandas', 'scipy'}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
hpc_utils.datasets.load('digits', 'train')
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
