from __future__ import annotations

import hashlib

import numpy as np
import pytest

from hpc_utils.datasets import DataError, fetch, load
from hpc_utils.datasets.catalog import Archive
from hpc_utils.datasets.fetch import RETRIES, download
from tests.datasets import layouts

CONTENT = np.random.default_rng(0).bytes(700_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def at_once(monkeypatch) -> None:
    """No pause before another attempt."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)


def get(base, folder, *, urls=("a.bin",)):
    return download(Archive("a.bin", tuple(base + url for url in urls), MD5, 700_000), folder)


def test_a_cut_connection_is_tried_again_and_a_verified_file_is_kept(tmp_path):
    with layouts.web_server({"a.bin": CONTENT}, cut_at=300_000) as (base, log):
        assert get(base, tmp_path).read_bytes() == CONTENT
        assert log == ["a.bin", "a.bin"]
        get(base, tmp_path)
        assert len(log) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_another_url_is_tried_when_one_lacks_the_file_or_serves_another(tmp_path):
    files = {"a.bin": CONTENT, "altered": bytes(1) + CONTENT[1:], "longer": CONTENT * 2}
    with layouts.web_server(files) as (base, log):
        path = get(base, tmp_path, urls=("absent", "altered", "longer", "a.bin"))
        assert path.read_bytes() == CONTENT
        assert list(dict.fromkeys(log)) == ["absent", "altered", "longer", "a.bin"]
        assert len(log) == 3 * (1 + RETRIES) + 1


def test_every_failure_is_reported_in_one_line_and_nothing_is_left(tmp_path):
    files = {"a.bin": bytes(1) + CONTENT[1:], "short": CONTENT[:50]}
    with layouts.web_server(files) as (base, _), pytest.raises(DataError) as error:
        get(base, tmp_path, urls=("absent", "a.bin", "short"))
    text = str(error.value)
    assert MD5 in text and "404" in text and all(f"at {base}{name}" in text for name in ("absent", "a.bin", "short"))
    assert "HPC_DATA_MIRROR" in text
    assert "\n" not in text
    assert not list(tmp_path.iterdir())


def test_a_host_without_a_connection_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no connection to 127\.0\.0\.1;"):
        get("http://127.0.0.1:9/", tmp_path)


def test_an_empty_mirror_and_a_missing_host_are_both_reported(tmp_path, monkeypatch, capsys):
    with layouts.web_server({}) as (base, _):
        layouts.know(monkeypatch, "mnist", *layouts.MNIST, ((Archive("a.bin", (base + "a.bin",), MD5, 3),),))
        with pytest.raises(
            DataError, match=f"{tmp_path}: expected mnist in the mirror, found none of it; a.bin: .*404"
        ):
            fetch("mnist", mirror=tmp_path)
    assert "trying its official host" in capsys.readouterr().err


def test_a_data_set_fetched_over_http(tmp_path, monkeypatch, data):
    """Two alternatives: the first host has lost a file, the second cuts the line once."""
    train, test = layouts.MNIST
    folder = layouts.mnist(tmp_path / "origin", train, test)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with layouts.web_server(files, cut_at=100) as (base, _):

        def source(prefix):
            return tuple(
                Archive(name, (base + prefix + name,), hashlib.md5(raw).hexdigest(), len(raw))
                for name, raw in sorted(files.items())
            )

        layouts.know(monkeypatch, "mnist", train, test, (source(""), source("nowhere/")))
        fetch("mnist")
        np.testing.assert_array_equal(load("mnist", "train", verify=True).images, train[0])
        kept = [path for path in (data / ".fetch").iterdir() if path.suffix != ".lock"]
        assert not kept, "no archive is kept"

        layouts.know(monkeypatch, "mnist", train, test, (source("nowhere/"), source("")))
        fetch("mnist", force=True)
        np.testing.assert_array_equal(load("mnist", "test", verify=True).images, test[0])
