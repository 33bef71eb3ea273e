from __future__ import annotations

import json

import numpy as np
import pytest

from hpc_utils.datasets import DATASETS, DataError, fetch, load, verify
from hpc_utils.datasets.store import channel_statistics
from tests.datasets import layouts

TRAIN, TEST = layouts.pixels(5, 30, (28, 28, 1)), layouts.pixels(6, 12, (28, 28, 1))


@pytest.fixture
def small(data, tmp_path, monkeypatch):
    """A fetched MNIST of 30 + 12 images that the catalogue takes for the whole; returns its folder."""
    layouts.know(monkeypatch, "mnist", TRAIN, TEST)
    return fetch("mnist", mirror=layouts.mnist(tmp_path / "mirror", TRAIN, TEST), progress=False)


def test_a_fetched_set_is_loaded_read_only(small):
    for split, (images, labels) in (("train", TRAIN), ("test", TEST)):
        loaded = load("mnist", split, verify=True)
        np.testing.assert_array_equal(loaded.images, images)
        np.testing.assert_array_equal(loaded.labels, labels)
        assert isinstance(loaded.images, np.memmap)
        assert (loaded.name, loaded.split, loaded.classes) == ("mnist", split, tuple("0123456789"))
        assert loaded.sha256 == DATASETS["mnist"].split(split).images_sha256
        for array in (loaded.images, loaded.labels):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


def test_missing_data_name_the_command(data):
    with pytest.raises(DataError, match=r"mnist: expected data set mnist, found nothing.*`hpc data fetch mnist`"):
        load("mnist", "train")
    (data / "mnist").mkdir(parents=True)
    with pytest.raises(DataError, match="found nothing"):
        verify("mnist")


@pytest.mark.parametrize("part", ["images", "labels"])
def test_one_altered_byte_is_found_by_verify(small, part):
    file = small / f"test-{part}.npy"
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content)
    load("mnist", "test")  # opening hashes nothing
    for check in (lambda: load("mnist", "test", verify=True), lambda: verify("mnist")):
        with pytest.raises(DataError, match=rf"test-{part}\.npy: expected sha256 .*--force"):
            check()


def _cut(raw: bytes) -> bytes:
    return raw[:-1]


@pytest.mark.parametrize("part", ["images", "labels"])
@pytest.mark.parametrize("damage", [_cut, lambda raw: raw[:40], lambda raw: b"", lambda raw: b"PK" + raw[2:]])
def test_a_file_of_the_wrong_size_or_kind_is_found_on_load(small, part, damage):
    file = small / f"train-{part}.npy"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(
        DataError, match=rf"train-{part}\.npy: expected (uint8|int64) .*`hpc data fetch mnist --force`"
    ):
        load("mnist", "train")


def test_an_array_of_another_count_is_found_on_load(small):
    np.save(small / "train-images.npy", TRAIN[0][:-1])
    with pytest.raises(DataError, match=r"expected uint8 \(30, 28, 28, 1\), found uint8 \(29, 28, 28, 1\)"):
        load("mnist", "train")
    np.save(small / "train-images.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="no complete array"):
        load("mnist", "train")


@pytest.mark.parametrize("gone", ["train-images.npy", "test-labels.npy", "meta.json"])
def test_a_missing_file_is_named(small, gone):
    (small / gone).unlink()
    with pytest.raises(DataError, match=f"{gone}: expected .* found no such file.*--force"):
        verify("mnist")


@pytest.mark.parametrize("content", ["", "{}", '{"splits": 3}'])
def test_damaged_metadata_are_named(small, content):
    (small / "meta.json").write_text(content)
    with pytest.raises(DataError, match=r"meta\.json: expected a complete description"):
        load("mnist", "train")


def test_metadata_that_contradict_the_catalogue_are_refused(small):
    meta = json.loads((small / "meta.json").read_text())
    meta["splits"]["train"]["images_sha256"] = "0" * 64
    (small / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(DataError, match=r"meta\.json: expected the catalogue's train"):
        load("mnist", "train")


def test_statistics_agree_with_numpy():
    images = layouts.pixels(7, 2100, (3, 5, 3))[0]
    mean, std = channel_statistics(images)
    np.testing.assert_allclose(mean, (images / 255).mean(axis=(0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, (images / 255).std(axis=(0, 1, 2)), rtol=1e-9)


def test_digits_are_the_real_ones_split_by_class():
    """The checksums of the catalogue were taken from the original set."""
    train, test = load("digits", "train"), load("digits", "test", verify=True)
    assert train.images.shape == (1437, 8, 8, 1)
    assert test.images.shape == (360, 8, 8, 1)
    assert (train.images.dtype, train.labels.dtype) == (np.uint8, np.int64)
    assert "demo" in train.title
    assert not train.images.flags.writeable and not train.labels.flags.writeable
    share = np.bincount(test.labels) / (np.bincount(test.labels) + np.bincount(train.labels))
    np.testing.assert_allclose(share, 0.2, atol=0.005)
    np.testing.assert_allclose(channel_statistics(train.images), (train.mean, train.std), atol=1e-9)
