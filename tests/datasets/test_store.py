from __future__ import annotations

import numpy as np
import pytest

from hpc_utils.datasets import DATASETS, DataError, fetch, load, verify
from hpc_utils.datasets.store import channel_statistics
from tests.datasets import layouts


@pytest.fixture
def small(small_mnist):
    """The fetched set's folder."""
    return fetch("mnist", mirror=small_mnist)


def test_a_fetched_set_is_loaded_read_only(small):
    for split, (images, labels) in zip(("train", "test"), layouts.MNIST, strict=True):
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


@pytest.mark.parametrize("part", ["images", "labels"])
@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: b"", lambda raw: b"PK" + raw[2:]])
def test_a_file_of_the_wrong_size_or_kind_is_found_on_load(small, part, damage):
    file = small / f"train-{part}.npy"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(
        DataError, match=rf"train-{part}\.npy: expected (uint8|int64) .*`hpc data fetch mnist --force`"
    ):
        load("mnist", "train")


def test_an_array_of_another_count_is_found_on_load(small):
    np.save(small / "train-images.npy", layouts.MNIST[0][0][:-1])
    with pytest.raises(DataError, match=r"expected uint8 \(30, 28, 28, 1\), found uint8 \(29, 28, 28, 1\)"):
        load("mnist", "train")


@pytest.mark.parametrize("gone", ["test-labels.npy", "meta.json"])
def test_a_missing_file_is_named(small, gone):
    (small / gone).unlink()
    with pytest.raises(DataError, match=f"{gone}: expected .* found no such file.*--force"):
        verify("mnist")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("splits", "parts", "expected a complete description"),
        ('"images_sha256": "', '"images_sha256": "0', "expected the catalogue's train"),
    ],
)
def test_metadata_that_are_damaged_or_contradict_the_catalogue_are_refused(small, old, new, message):
    meta = small / "meta.json"
    meta.write_text(meta.read_text().replace(old, new))
    with pytest.raises(DataError, match=rf"meta\.json: {message}"):
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
