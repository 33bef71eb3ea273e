from __future__ import annotations

import subprocess
import sys

import pytest

from hpc_utils import paths
from hpc_utils.datasets import DATASETS, DataError, info, load
from hpc_utils.datasets.catalog import SPLITS


def test_an_unknown_name_is_answered_with_the_nearest():
    for refused in (info, lambda name: load(name, "train")):
        with pytest.raises(DataError, match="cifar10"):
            refused("cifar")


def test_an_unknown_split_is_refused():
    with pytest.raises(DataError, match="'train' or 'test', found 'val'"):
        load("digits", "val")


def markdown_table() -> str:
    """The catalogue as three Markdown tables: sets, archives, checksums."""
    sets = [
        (
            f"`{d.name}`",
            d.title,
            f"{d.class_count}",
            f"{d.train.count:,} / {d.test.count:,}",
            " x ".join(map(str, d.shape)),
            f"{(d.train.count + d.test.count) * d.shape[0] * d.shape[1] * d.shape[2] / 1e6:,.1f} MB",
            d.licence,
            f"[{d.citation}]({d.homepage})",
        )
        for d in DATASETS.values()
    ]
    archives = [
        (f"`{d.name}`", f"[{a.file}]({a.urls[0]})", f"{a.size:,}", f"`{a.md5}`")
        for d in DATASETS.values()
        for source in d.sources
        for a in source.archives
    ]
    checksums = [
        (f"`{d.name}`", f"{split} {part}", f"`{digest}`")
        for d in DATASETS.values()
        for split in SPLITS
        for part, digest in (
            ("images", d.split(split).images_sha256),
            ("labels", d.split(split).labels_sha256),
        )
        if digest
    ]
    return "\n\n".join(
        (
            _table("name|what|classes|train / test|H x W x C|decoded|terms|please cite", sets),
            _table("name|archive|bytes|md5", archives),
            _table("name|decoded|sha256", checksums),
        )
    )


def _table(header: str, rows: list[tuple[str, ...]]) -> str:
    columns = header.split("|")
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def test_the_readme_repeats_the_catalogue():
    readme = (paths.root() / "data" / "README.md").read_text(encoding="utf-8")
    assert markdown_table() in readme
    assert all(entry.citation in readme for entry in DATASETS.values())


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
