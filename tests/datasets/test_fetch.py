from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from hpc_utils.datasets import DATASETS, DataError, fetch, load, verify
from hpc_utils.datasets.store import channel_statistics
from tests.datasets import layouts
from tests.datasets.layouts import CIFAR, MNIST

# The real data sets, where a mirror of them is at hand.


@pytest.mark.parametrize(
    ("name", "shape", "labels", "statistics"),
    [
        ("cifar10", (50_000, 32, 32, 3), [6, 9, 9, 4, 1], [(0.49140, 0.48216, 0.44653), (0.24703, 0.24349, 0.26159)]),
        ("mnist", (60_000, 28, 28, 1), [5, 0, 4, 1, 9], [(0.1307,), (0.3081,)]),
    ],
)
def test_real_sets_have_the_published_labels_and_statistics(real, name, shape, labels, statistics):
    verify(name)
    train = load(name, "train")
    assert (train.images.shape, train.labels[:5].tolist()) == (shape, labels)
    np.testing.assert_allclose((train.mean, train.std), statistics, atol=5e-5)
    np.testing.assert_allclose(channel_statistics(train.images), (train.mean, train.std), atol=1e-9)


def test_the_title_of_the_real_tiny_imagenet_states_a_subset(real):
    train, test = load("tiny-imagenet", "train", verify=True), load("tiny-imagenet", "test", verify=True)
    assert train.images.shape[1:] == test.images.shape[1:] == (64, 64, 3)
    assert set(train.labels.tolist()) == set(range(len(train.classes)))
    assert ("subset" in train.title) == (len(train.labels) != DATASETS["tiny-imagenet"].train.count)
    np.testing.assert_allclose(channel_statistics(train.images), (train.mean, train.std), atol=1e-12)


# Mirrors.


@pytest.mark.parametrize("below", [".", "cifar10", "data/cifar10"])
@pytest.mark.parametrize("form", ["folder", "archive"])
def test_a_mirror_is_searched_at_its_top_one_folder_down_and_in_data(tmp_path, monkeypatch, small_cifar, below, form):
    place = tmp_path / "mirror" / below
    if form == "folder":
        layouts.cifar_binary(place / "cifar-10-batches-bin", *CIFAR)
    else:
        layouts.cifar_python(place / "cifar-10-python.tar.gz", *CIFAR)
    monkeypatch.setenv("HPC_DATA_MIRROR", str(tmp_path / "mirror"))
    fetch("cifar10")
    np.testing.assert_array_equal(load("cifar10", "train", verify=True).images, CIFAR[0][0])


def test_a_mirror_may_be_the_layout_or_the_archive_itself(tmp_path, small_cifar):
    fetch("cifar10", mirror=layouts.cifar_binary(tmp_path / "bin", *CIFAR))
    fetch("cifar10", mirror=layouts.cifar_python(tmp_path / "a.tar.gz", *CIFAR), force=True)
    verify("cifar10")


def test_a_set_with_the_same_file_names_is_not_taken_for_mnist(tmp_path, monkeypatch):
    layouts.know(monkeypatch, "mnist", *MNIST)
    layouts.mnist(tmp_path / "mirror/fashion-mnist", *MNIST[::-1])
    with pytest.raises(DataError, match="fashion-mnist: expected train count 30, found 12; fix: replace it"):
        fetch("mnist", mirror=tmp_path / "mirror")
    layouts.mnist(tmp_path / "mirror/torch/MNIST/raw", *MNIST, zipped=False)
    fetch("mnist", mirror=tmp_path / "mirror")
    np.testing.assert_array_equal(load("mnist", "train").images, MNIST[0][0])


@pytest.mark.parametrize(
    ("byte", "value", "message"),
    [
        (1000, None, r"expected train images_sha256 .*HPC_DATA_MIRROR= hpc data fetch"),
        (0, None, "expected train labels_sha256"),
        (0, 77, r"expected train labels outside 0\.\.9 0, found 1"),
    ],
)
def test_one_changed_byte_in_the_mirror_is_refused_and_leaves_nothing(
    tmp_path, small_cifar, data, byte, value, message
):
    folder = layouts.cifar_binary(tmp_path / "mirror", *CIFAR)
    file = folder / "data_batch_4.bin"
    content = bytearray(file.read_bytes())
    content[byte] = content[byte] ^ 1 if value is None else value
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        fetch("cifar10", mirror=folder)
    assert not (data / "cifar10").exists()


def test_a_mirror_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="nowhere: expected a mirror folder, found none"):
        fetch("mnist", mirror=tmp_path / "nowhere")


# Placing.


def left_over(data):
    """What fetches have left behind beside their locks."""
    return [path.name for path in (data / ".fetch").iterdir() if path.suffix != ".lock"]


def test_a_present_set_is_verified_and_left_alone(tmp_path, small_mnist, capsys):
    folder = fetch("mnist", mirror=small_mnist)
    before = (folder / "train-images.npy").stat()
    assert fetch("mnist", mirror=tmp_path / "nowhere") == folder
    assert "already present and verified" in capsys.readouterr().err
    assert (folder / "train-images.npy").stat().st_mtime_ns == before.st_mtime_ns


def test_a_damaged_set_is_refused_and_replaced_by_force_that_keeps_other_files(small_mnist, data):
    folder = fetch("mnist", mirror=small_mnist)
    (folder / "train-labels.npy").write_bytes(b"")
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="--force"):
        fetch("mnist", mirror=small_mnist)
    fetch("mnist", mirror=small_mnist, force=True)
    verify("mnist")
    assert (folder / "thesis.txt").read_text() == "mine"
    assert sorted(path.name for path in data.iterdir()) == [".fetch", "mnist"]


def test_a_full_disk_leaves_nothing_behind(monkeypatch, small_mnist, data):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(DataError, match="No space left on device"):
        patch.setattr(np, "save", full)
        fetch("mnist", mirror=small_mnist)
    assert not (data / "mnist").exists()
    assert not left_over(data)
    fetch("mnist", mirror=small_mnist)
    verify("mnist")


NO_LOCKS = """
import errno, fcntl
def none(*_): raise OSError(errno.ENOLCK, "no locks available")
fcntl.flock = none
"""
STALL = """
import os, time
os.fsync = lambda file: (print('here', flush=True), time.sleep(60))
"""


def fetcher(mirror, code="", **streams):
    """A process that runs `code`, then fetches."""
    program = f"{code}\nfrom hpc_utils.datasets import fetch\nfetch('tiny-imagenet', mirror={str(mirror)!r})"
    return subprocess.Popen([sys.executable, "-c", program], text=True, **streams)


@pytest.mark.parametrize("code", ["", NO_LOCKS], ids=["locks", "no locks"])
def test_two_processes_that_fetch_at_once_leave_one_whole_set(tmp_path, code):
    mirror = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200", per_class=40)
    both = [fetcher(mirror, code, stderr=subprocess.PIPE) for _ in range(2)]
    messages = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], messages
    assert code or sorted("already present" in text for text in messages) == [False, True]
    verify("tiny-imagenet")


def test_a_killed_fetch_leaves_no_half_set_and_the_next_one_cleans_up(tmp_path, data):
    mirror = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    with fetcher(mirror, STALL, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "here\n"
        process.kill()
    assert not (data / "tiny-imagenet").exists()
    assert len(left_over(data)) == 1
    fetch("tiny-imagenet", mirror=mirror)  # the dead process holds no lock
    verify("tiny-imagenet")
    assert not left_over(data)


def test_a_tiny_imagenet_subset_is_called_one(tmp_path):
    folder = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    shutil.make_archive(tmp_path / "mirror/tiny-imagenet/two-classes", "tar", tmp_path, folder.name)
    fetch("tiny-imagenet", mirror=tmp_path / "mirror")
    train = load("tiny-imagenet", "train", verify=True)
    assert train.title == "tiny-imagenet subset: 2 classes, 8 train and 6 test images"
    assert train.classes == ("Egyptian cat", "bullfrog")
    np.testing.assert_allclose(train.mean, (train.images / 255).mean(axis=(0, 1, 2)), rtol=1e-9)
