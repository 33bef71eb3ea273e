from __future__ import annotations

import shutil
import tarfile

import numpy as np
import pytest

from hpc_utils.datasets import DataError
from hpc_utils.datasets.decode import decode
from tests.datasets import layouts

TRAIN, TEST = layouts.pixels(1, 20, (32, 32, 3)), layouts.pixels(2, 6, (32, 32, 3))


def assert_same(decoded, train, test):
    for split, (images, labels) in (("train", train), ("test", test)):
        np.testing.assert_array_equal(decoded.splits[split][0], images)
        np.testing.assert_array_equal(decoded.splits[split][1], labels)
        assert decoded.splits[split][0].dtype == np.uint8
        assert decoded.splits[split][1].dtype == np.int64


def test_cifar10_binary_layout_as_folder_tar_and_zip(tmp_path):
    folder = layouts.cifar_binary(tmp_path / "cifar-10-batches-bin", TRAIN, TEST)
    assert_same(decode("cifar10", folder), TRAIN, TEST)
    for form, ending in (("gztar", "tar.gz"), ("zip", "zip")):
        shutil.make_archive(tmp_path / "it", form, tmp_path, folder.name)
        assert_same(decode("cifar10", tmp_path / f"it.{ending}"), TRAIN, TEST)


def test_cifar10_python_layout(tmp_path, monkeypatch):
    archive = layouts.cifar_python(tmp_path / "cifar-10-python.tar.gz", TRAIN, TEST)
    layouts.know_batches(monkeypatch, TRAIN, TEST)
    assert_same(decode("cifar10", archive), TRAIN, TEST)


@pytest.mark.parametrize("content", ["bomb", b"", b"not a pickle"])
def test_a_pickle_with_another_checksum_is_refused_and_nothing_of_it_is_called(tmp_path, monkeypatch, content):
    layouts.know_batches(monkeypatch, TRAIN, TEST)
    witness = tmp_path / "witness"
    with tarfile.open(layouts.cifar_python(tmp_path / "cifar-10-python.tar.gz", TRAIN, TEST)) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "cifar-10-batches-py"
    (folder / "data_batch_3").write_bytes(layouts.Bomb.batch(witness) if content == "bomb" else content)
    with pytest.raises(DataError, match=r"data_batch_3: expected a readable.*md5"):
        decode("cifar10", folder)
    assert not witness.exists()


def test_a_truncated_or_missing_batch_is_named(tmp_path):
    folder = layouts.cifar_binary(tmp_path / "cifar-10-batches-bin", TRAIN, TEST)
    batch = folder / "data_batch_2.bin"
    whole = batch.read_bytes()
    batch.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"data_batch_2\.bin: expected a readable"):
        decode("cifar10", folder)
    batch.unlink()
    with pytest.raises(DataError, match=r"data_batch_2\.bin: expected a regular file"):
        decode("cifar10", folder)


def test_an_archive_with_members_or_links_outside_its_folder_is_refused(tmp_path):
    member = tarfile.TarInfo("../../escaped")
    member.size = 3
    link = tarfile.TarInfo("c/data_batch_1")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    for number, extra in enumerate((member, link)):
        archive = layouts.cifar_python(tmp_path / f"{number}/cifar-10-python.tar.gz", TRAIN, TEST, (extra,))
        with pytest.raises(DataError, match=r"outside|absolute"):
            decode("cifar10", archive)
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("ending", ["tar.gz", "tar.xz", "tar", "zip"])
def test_a_truncated_or_altered_archive_is_unreadable_in_one_line(tmp_path, ending):
    folder = layouts.cifar_binary(tmp_path / "cifar-10-batches-bin", TRAIN, TEST)
    form = {"tar.gz": "gztar", "tar.xz": "xztar"}.get(ending, ending)
    archive = tmp_path / f"it.{ending}"
    shutil.make_archive(tmp_path / "it", form, tmp_path, folder.name)
    whole = archive.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:20], b"", b"<html>Not Found</html>" * 50):
        archive.write_bytes(damaged)
        with pytest.raises(DataError) as error:
            decode("cifar10", archive)
        assert "\n" not in str(error.value)
        assert str(archive) in str(error.value)
    if ending != "tar":  # a plain tar has no checksum of its members: there the catalogue's must speak
        archive.write_bytes(
            whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :]
        )
        with pytest.raises(DataError):
            assert_same(decode("cifar10", archive), TRAIN, TEST)


@pytest.mark.parametrize("zipped", [True, False])
def test_mnist_idx(tmp_path, zipped):
    train, test = layouts.pixels(3, 9, (28, 28, 1)), layouts.pixels(4, 5, (28, 28, 1))
    assert_same(decode("mnist", layouts.mnist(tmp_path / "raw", train, test, zipped)), train, test)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: b"\x00\x00\x09\x03" + raw[4:], "00000903"),
        (lambda raw: b"", "readable"),
        (lambda raw: raw[:-1], "readable"),
        (lambda raw: raw[:8] + b"\xff" + raw[9:], "readable"),
        (lambda raw: layouts.idx(np.zeros((8, 28, 28), np.uint8)), "expected as many train labels"),
    ],
)
def test_a_damaged_idx_file_is_named_with_what_is_wrong(tmp_path, damage, message):
    train, test = layouts.pixels(3, 9, (28, 28, 1)), layouts.pixels(4, 5, (28, 28, 1))
    folder = layouts.mnist(tmp_path / "raw", train, test, zipped=False)
    file = folder / "train-images-idx3-ubyte"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=message):
        decode("mnist", folder)


def test_a_truncated_gz_is_unreadable(tmp_path):
    train, test = layouts.pixels(3, 9, (28, 28, 1)), layouts.pixels(4, 5, (28, 28, 1))
    file = layouts.mnist(tmp_path / "raw", train, test) / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz: expected a readable"):
        decode("mnist", file.parent)


@pytest.mark.parametrize("form", ["folder", "tar", "gztar", "zip"])
def test_tiny_imagenet_layout_with_grey_images(tmp_path, form):
    path = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    if form != "folder":
        path = type(path)(shutil.make_archive(tmp_path / "it", form, tmp_path, path.name))
    decoded = decode("tiny-imagenet", path)
    assert decoded.classes == ("Egyptian cat", "bullfrog")  # in the order of wnids.txt, not of the alphabet
    images, labels = decoded.splits["train"]
    assert images.shape == (8, 64, 64, 3)
    assert labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    grey = (images[..., 0] == images[..., 1]).all(axis=(1, 2)) & (images[..., 1] == images[..., 2]).all(axis=(1, 2))
    assert grey.tolist() == [False, True] * 4
    assert decoded.splits["test"][1].tolist() == [0, 1, 0, 1, 0, 1]


def test_tiny_imagenet_that_contradicts_its_lists(tmp_path):
    folder = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    image = folder / "train/n01/images/n01_2.JPEG"
    good = image.read_bytes()
    for damaged, message in (
        (good[:300], r"n01_2\.JPEG: expected a readable"),
        (layouts.jpeg(1, size=32), r"n01_2\.JPEG: .*32 x 32 pixels, not 64 x 64"),
        (b"", r"n01_2\.JPEG: expected a readable"),
    ):
        image.write_bytes(damaged)
        with pytest.raises(DataError, match=message):
            decode("tiny-imagenet", folder)
    image.unlink()
    with pytest.raises(DataError, match=r"n01_2\.JPEG: expected a regular file"):
        decode("tiny-imagenet", folder)
    image.write_bytes(good)
    with (folder / "val/val_annotations.txt").open("a") as file:
        file.write("val_9.JPEG\tn99\t0\t0\t1\t1\n")
    with pytest.raises(DataError, match=r"classes in wnids\.txt, found classes n99"):
        decode("tiny-imagenet", folder)
