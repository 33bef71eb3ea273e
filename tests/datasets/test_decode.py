from __future__ import annotations

import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from hpc_utils.datasets import DataError
from hpc_utils.datasets.decode import decode
from hpc_utils.datasets.fetch import in_mirror
from tests.datasets import layouts
from tests.datasets.layouts import CIFAR, MNIST


def assert_same(decoded, train, test):
    for split, (images, labels) in (("train", train), ("test", test)):
        np.testing.assert_array_equal(decoded.splits[split][0], images)
        np.testing.assert_array_equal(decoded.splits[split][1], labels)
        assert decoded.splits[split][0].dtype == np.uint8
        assert decoded.splits[split][1].dtype == np.int64


@pytest.fixture
def binary(tmp_path) -> Path:
    return layouts.cifar_binary(tmp_path / "cifar-10-batches-bin", *CIFAR)


@pytest.fixture
def idx_files(tmp_path) -> Path:
    return layouts.mnist(tmp_path / "raw", *MNIST, zipped=False)


def test_cifar10_binary_layout_as_folder_tar_and_zip(tmp_path, binary):
    assert_same(decode("cifar10", binary), *CIFAR)
    for form, ending in (("gztar", "tar.gz"), ("zip", "zip")):
        shutil.make_archive(tmp_path / "it", form, tmp_path, binary.name)
        assert_same(decode("cifar10", tmp_path / f"it.{ending}"), *CIFAR)


def test_cifar10_python_layout(tmp_path, small_cifar):
    archive = layouts.cifar_python(tmp_path / "cifar-10-python.tar.gz", *CIFAR)
    assert_same(decode("cifar10", archive), *CIFAR)


def test_a_pickle_with_another_checksum_is_refused_and_nothing_of_it_is_called(tmp_path, small_cifar):
    witness = tmp_path / "witness"

    class Bomb:
        def __reduce__(self):
            return Path.touch, (witness,)

    with tarfile.open(layouts.cifar_python(tmp_path / "cifar-10-python.tar.gz", *CIFAR)) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "cifar-10-batches-py"
    (folder / "data_batch_3").write_bytes(pickle.dumps({"data": Bomb(), "labels": [1]}))
    with pytest.raises(DataError, match=r"data_batch_3: expected a readable.*md5"):
        decode("cifar10", folder)
    assert not witness.exists()


def test_a_truncated_or_missing_batch_is_named(binary):
    batch = binary / "data_batch_2.bin"
    batch.write_bytes(batch.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_2\.bin: expected a readable"):
        decode("cifar10", binary)
    batch.unlink()
    with pytest.raises(DataError, match=r"data_batch_2\.bin: expected a readable"):
        decode("cifar10", binary)


def test_an_archive_with_members_or_links_outside_its_folder_is_refused(tmp_path):
    member = tarfile.TarInfo("../../escaped")
    member.size = 3
    link = tarfile.TarInfo("c/data_batch_1")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    for number, extra in enumerate((member, link)):
        archive = layouts.cifar_python(tmp_path / f"{number}/cifar-10-python.tar.gz", *CIFAR, (extra,))
        with pytest.raises(DataError, match=r"outside|absolute"):
            decode("cifar10", archive)
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize(
    ("form", "ending"), [("gztar", "tar.gz"), ("xztar", "tar.xz"), ("tar", "tar"), ("zip", "zip")]
)
def test_a_truncated_or_altered_archive_is_unreadable_in_one_line(tmp_path, binary, form, ending):
    archive = Path(shutil.make_archive(tmp_path / "it", form, tmp_path, binary.name))
    whole = archive.read_bytes()
    middle = len(whole) // 2
    damages = [whole[:middle], whole[:20], b"", b"<html>Not Found</html>" * 50]
    if ending != "tar":  # a plain tar has no checksum of its members: there the catalogue's must speak
        damages.append(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    for damaged in damages:
        archive.write_bytes(damaged)
        with pytest.raises(DataError) as error:
            decode("cifar10", archive)
        assert "\n" not in str(error.value)
        assert str(archive) in str(error.value)


@pytest.mark.parametrize("zipped", [True, False])
def test_mnist_idx(tmp_path, zipped):
    assert_same(decode("mnist", layouts.mnist(tmp_path / "raw", *MNIST, zipped)), *MNIST)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: b"\x00\x00\x09\x03" + raw[4:], "00000903"),
        (lambda raw: raw[:-1], "readable"),
        (lambda raw: raw[:8] + b"\xff" + raw[9:], "readable"),
    ],
)
def test_a_damaged_idx_file_is_named_with_what_is_wrong(idx_files, damage, message):
    file = idx_files / "train-images-idx3-ubyte"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=message):
        decode("mnist", idx_files)


def test_a_truncated_gz_is_unreadable(small_mnist):
    file = small_mnist / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz: expected a readable"):
        decode("mnist", small_mnist)


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_tiny_imagenet_layout_with_grey_images(tmp_path, form):
    path = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    if form != "folder":
        path = Path(shutil.make_archive(tmp_path / "it", form, tmp_path, path.name))
    decoded = decode("tiny-imagenet", path)
    assert decoded.classes == ("Egyptian cat", "bullfrog")  # in the order of wnids.txt, not of the alphabet
    images, labels = decoded.splits["train"]
    assert images.shape == (8, 64, 64, 3)
    assert labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    grey = (images == images[..., :1]).all(axis=(1, 2, 3))
    assert grey.tolist() == [False, True] * 4
    assert decoded.splits["test"][1].tolist() == [0, 1, 0, 1, 0, 1]


def test_tiny_imagenet_as_folders_of_classes_is_found_and_read(tmp_path):
    listed = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    expected = decode("tiny-imagenet", listed).splits
    site = tmp_path / "site"
    for wnid in ("n01", "n02"):
        shutil.copytree(listed / "train" / wnid / "images", site / "train" / wnid)
        (site / "val" / wnid).mkdir(parents=True)
    for number in range(6):
        name = f"val_{number}.JPEG"
        shutil.copy(listed / "val/images" / name, site / "val" / ("n02", "n01")[number % 2] / name)
    assert in_mirror("tiny-imagenet", site) == [site] and not in_mirror("cifar10", site)
    decoded = decode("tiny-imagenet", site)
    assert decoded.classes == ("n01", "n02")
    for split in ("train", "test"):
        images, labels = decoded.splits[split]
        first = len(labels) // 2  # of the second class in their order, the first in the lists'
        order = np.argsort(expected[split][1], kind="stable")
        assert labels.tolist() == [0] * first + [1] * first
        assert (images == np.roll(expected[split][0][order], first, axis=0)).all()


def test_tiny_imagenet_that_contradicts_its_lists(tmp_path):
    folder = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    image = folder / "train/n01/images/n01_2.JPEG"
    good = image.read_bytes()
    for damaged, message in (
        (good[:300], r"n01_2\.JPEG: expected a readable"),
        (layouts.jpeg(1, size=32), r"n01_2\.JPEG: .*32 x 32 pixels, not 64 x 64"),
    ):
        image.write_bytes(damaged)
        with pytest.raises(DataError, match=message):
            decode("tiny-imagenet", folder)
    image.write_bytes(good)
    with (folder / "val/val_annotations.txt").open("a") as file:
        file.write("val_9.JPEG\tn99\t0\t0\t1\t1\n")
    with pytest.raises(DataError, match=r"classes in wnids\.txt, found classes n99"):
        decode("tiny-imagenet", folder)
