from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from hpc_utils.datasets import DATASETS, DataError, fetch, load, verify
from hpc_utils.datasets.store import channel_statistics
from tests.datasets import layouts

MNIST = layouts.pixels(5, 30, (28, 28, 1)), layouts.pixels(6, 12, (28, 28, 1))
CIFAR = layouts.pixels(1, 20, (32, 32, 3)), layouts.pixels(2, 6, (32, 32, 3))


# The real data sets, where a mirror of them is at hand.


def test_real_cifar10(real, monkeypatch):
    monkeypatch.setenv("HPC_DATA", str(real))
    train, test = load("cifar10", "train", verify=True), load("cifar10", "test", verify=True)
    assert train.images.shape == (50_000, 32, 32, 3)
    assert test.images.shape == (10_000, 32, 32, 3)
    assert train.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert [train.classes[i] for i in train.labels[:3]] == ["frog", "truck", "truck"]
    assert np.bincount(train.labels).tolist() == [5000] * 10
    np.testing.assert_allclose(train.mean, (0.49140, 0.48216, 0.44653), atol=5e-6)
    np.testing.assert_allclose(train.std, (0.24703, 0.24349, 0.26159), atol=5e-6)
    np.testing.assert_allclose(channel_statistics(train.images), (train.mean, train.std), atol=1e-9)


def test_real_mnist(real, monkeypatch):
    monkeypatch.setenv("HPC_DATA", str(real))
    train = load("mnist", "train", verify=True)
    assert train.images.shape == (60_000, 28, 28, 1)
    assert train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    np.testing.assert_allclose((*train.mean, *train.std), (0.1307, 0.3081), atol=5e-5)
    np.testing.assert_allclose(channel_statistics(train.images), (train.mean, train.std), atol=1e-9)
    verify("mnist")


def test_the_title_of_the_real_tiny_imagenet_states_a_subset(real, monkeypatch):
    monkeypatch.setenv("HPC_DATA", str(real))
    train, test = load("tiny-imagenet", "train", verify=True), load("tiny-imagenet", "test", verify=True)
    assert len(train.labels) % len(train.classes) == 0
    assert train.images.shape[1:] == test.images.shape[1:] == (64, 64, 3)
    assert set(train.labels.tolist()) == set(range(len(train.classes)))
    assert ("subset" in train.title) == (len(train.labels) != DATASETS["tiny-imagenet"].train.count)
    np.testing.assert_allclose(channel_statistics(train.images), (train.mean, train.std), atol=1e-12)


# Mirrors.


@pytest.mark.parametrize("below", [".", "cifar10", "data", "data/cifar10"])
@pytest.mark.parametrize("form", ["folder", "archive"])
def test_a_mirror_is_searched_at_its_top_one_folder_down_and_in_data(tmp_path, monkeypatch, below, form):
    layouts.know(monkeypatch, "cifar10", *CIFAR)
    place = tmp_path / "mirror" / below
    if form == "folder":
        layouts.cifar_binary(place / "cifar-10-batches-bin", *CIFAR)
    else:
        layouts.cifar_python(place / "cifar-10-python.tar.gz", *CIFAR)
        layouts.know_batches(monkeypatch, *CIFAR)
    monkeypatch.setenv("HPC_DATA_MIRROR", str(tmp_path / "mirror"))
    fetch("cifar10", progress=False)
    np.testing.assert_array_equal(load("cifar10", "train", verify=True).images, CIFAR[0][0])


def test_a_mirror_may_be_the_layout_or_the_archive_itself(tmp_path, monkeypatch):
    layouts.know(monkeypatch, "cifar10", *CIFAR)
    layouts.know_batches(monkeypatch, *CIFAR)
    fetch("cifar10", mirror=layouts.cifar_binary(tmp_path / "bin", *CIFAR), progress=False)
    fetch("cifar10", mirror=layouts.cifar_python(tmp_path / "a.tar.gz", *CIFAR), progress=False, force=True)
    verify("cifar10")


def test_a_set_with_the_same_file_names_is_not_taken_for_mnist(tmp_path, monkeypatch):
    layouts.know(monkeypatch, "mnist", *MNIST)
    layouts.mnist(tmp_path / "mirror/fashion-mnist", *MNIST[::-1])
    with pytest.raises(DataError, match="fashion-mnist: expected train count 30, found 12; fix: replace it"):
        fetch("mnist", mirror=tmp_path / "mirror", progress=False)
    layouts.mnist(tmp_path / "mirror/torch/MNIST/raw", *MNIST, zipped=False)
    fetch("mnist", mirror=tmp_path / "mirror", progress=False)
    np.testing.assert_array_equal(load("mnist", "train").images, MNIST[0][0])


def test_one_flipped_pixel_in_the_mirror_is_refused_and_leaves_nothing(tmp_path, monkeypatch, data):
    layouts.know(monkeypatch, "cifar10", *CIFAR)
    folder = layouts.cifar_binary(tmp_path / "mirror", *CIFAR)
    file = folder / "data_batch_4.bin"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"expected train images_sha256 .*HPC_DATA_MIRROR= hpc data fetch"):
        fetch("cifar10", mirror=folder, progress=False)
    assert not (data / "cifar10").exists()
    content[1000] ^= 1
    content[0] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="expected train labels_sha256"):
        fetch("cifar10", mirror=folder, progress=False)
    content[0] = 77
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"expected train labels outside 0\.\.9 0, found 1"):
        fetch("cifar10", mirror=folder, progress=False)


def test_a_mirror_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="nowhere: expected a mirror folder, found none"):
        fetch("mnist", mirror=tmp_path / "nowhere", progress=False)


# Placing.


def test_a_present_set_is_verified_and_left_alone(tmp_path, monkeypatch, capsys):
    layouts.know(monkeypatch, "mnist", *MNIST)
    folder = fetch("mnist", mirror=layouts.mnist(tmp_path / "m", *MNIST), progress=False)
    before = (folder / "train-images.npy").stat()
    assert fetch("mnist", mirror=tmp_path / "nowhere") == folder
    assert "already present and verified" in capsys.readouterr().err
    assert (folder / "train-images.npy").stat().st_mtime_ns == before.st_mtime_ns


def test_a_damaged_set_is_refused_and_replaced_by_force(tmp_path, monkeypatch, data):
    layouts.know(monkeypatch, "mnist", *MNIST)
    mirror = layouts.mnist(tmp_path / "m", *MNIST)
    folder = fetch("mnist", mirror=mirror, progress=False)
    (folder / "train-labels.npy").write_bytes(b"")
    with pytest.raises(DataError, match="--force"):
        fetch("mnist", mirror=mirror, progress=False)
    fetch("mnist", mirror=mirror, progress=False, force=True)
    verify("mnist")
    assert sorted(path.name for path in data.iterdir()) == [".fetch", "mnist"]


def test_force_keeps_other_files(tmp_path, monkeypatch, data):
    layouts.know(monkeypatch, "mnist", *MNIST)
    (data / "mnist").mkdir(parents=True)
    (data / "mnist/thesis.txt").write_text("mine")
    mirror = layouts.mnist(tmp_path / "m", *MNIST)
    with pytest.raises(DataError, match=r"meta\.json: expected the description"):
        fetch("mnist", mirror=mirror, progress=False)
    fetch("mnist", mirror=mirror, progress=False, force=True)
    verify("mnist")
    assert (data / "mnist/thesis.txt").read_text() == "mine"


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, data):
    layouts.know(monkeypatch, "mnist", *MNIST)
    mirror = layouts.mnist(tmp_path / "m", *MNIST)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(DataError, match="No space left on device"):
            fetch("mnist", mirror=mirror, progress=False)
    assert not (data / "mnist").exists()
    assert not [path for path in (data / ".fetch").iterdir() if path.suffix != ".lock"]
    fetch("mnist", mirror=mirror, progress=False)
    verify("mnist")


def _fetcher(mirror, code=""):
    program = f"{code}\nfrom hpc_utils.datasets import fetch\nfetch('tiny-imagenet', mirror={str(mirror)!r})"
    return subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)


def test_two_processes_fetch_at_once(tmp_path):
    mirror = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200", per_class=40)
    both = [_fetcher(mirror) for _ in range(2)]
    messages = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], messages
    assert sorted("already present" in text for text in messages) == [False, True]
    verify("tiny-imagenet")


def test_without_locks_two_fetches_still_leave_one_whole_set(tmp_path):
    mirror = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200", per_class=40)
    both = [
        _fetcher(
            mirror, "import filelock\ndef none(*_, **__): raise NotImplementedError\nfilelock.FileLock.acquire = none"
        )
        for _ in range(2)
    ]
    messages = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], messages
    verify("tiny-imagenet")


def test_a_killed_fetch_leaves_no_half_set_and_the_next_one_cleans_up(tmp_path, data):
    mirror = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    stall = "import os, time\nos.fsync = lambda f: (print('here', flush=True), time.sleep(60))"
    program = (
        f"{stall}\nfrom hpc_utils.datasets import fetch\nfetch('tiny-imagenet', {str(mirror)!r}, progress=False)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (data / "tiny-imagenet").exists()
    assert len(list((data / ".fetch").glob("tiny-imagenet~*"))) == 1
    start = time.monotonic()
    fetch("tiny-imagenet", mirror=mirror, progress=False)
    assert time.monotonic() - start < 60  # the dead process holds no lock
    verify("tiny-imagenet")
    assert not [path for path in (data / ".fetch").iterdir() if path.suffix != ".lock"]


def test_a_tiny_imagenet_subset_is_called_one(tmp_path):
    folder = layouts.tiny_imagenet(tmp_path / "tiny-imagenet-200")
    shutil.make_archive(tmp_path / "mirror/tiny-imagenet/two-classes", "tar", tmp_path, folder.name)
    fetch("tiny-imagenet", mirror=tmp_path / "mirror", progress=False)
    train = load("tiny-imagenet", "train", verify=True)
    assert train.title == "tiny-imagenet subset: 2 classes, 8 train and 6 test images"
    assert train.classes == ("Egyptian cat", "bullfrog")
    np.testing.assert_allclose(train.mean, (train.images / 255).mean(axis=(0, 1, 2)), rtol=1e-9)
