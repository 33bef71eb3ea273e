from __future__ import annotations

import hashlib

import numpy as np
import pytest

from hpc_utils.datasets import DataError, fetch, load
from hpc_utils.datasets.catalog import Archive
from hpc_utils.datasets.download import download
from tests.datasets import layouts

CONTENT = np.random.default_rng(0).bytes(700_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


def get(base, folder, *, urls=("a.bin",), md5=MD5, size=700_000):
    archive = Archive("a.bin", tuple(base + url for url in urls), md5, size)
    folder.mkdir(exist_ok=True)
    return download(archive, folder, progress=False, attempts=3, timeout_s=5, pause_s=0)


def test_a_cut_connection_is_resumed_where_it_stopped(tmp_path):
    with layouts.web_server({"a.bin": CONTENT}, cut_at=300_000) as (base, log):
        path = get(base, tmp_path)
        assert path.read_bytes() == CONTENT
        assert log == [("a.bin", None), ("a.bin", "bytes=300000-")]
        get(base, tmp_path)
        assert len(log) == 2  # a verified file is not asked for again


def test_an_earlier_call_is_resumed(tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:500_000])
    with layouts.web_server({"a.bin": CONTENT}) as (base, log):
        assert get(base, tmp_path).read_bytes() == CONTENT
        assert log == [("a.bin", "bytes=500000-")]
    assert not (tmp_path / "a.bin.part").exists()


def test_a_server_without_ranges_starts_again(tmp_path):
    with layouts.web_server({"a.bin": CONTENT}, cut_at=300_000, ranges=False) as (base, log):
        assert get(base, tmp_path).read_bytes() == CONTENT
        assert log[1] == ("a.bin", "bytes=300000-")


def test_a_wrong_beginning_is_thrown_away_and_fetched_afresh(tmp_path):
    (tmp_path / "a.bin.part").write_bytes(bytes(500_000))
    with layouts.web_server({"a.bin": CONTENT}) as (base, log):
        assert get(base, tmp_path).read_bytes() == CONTENT
        assert log == [("a.bin", "bytes=500000-"), ("a.bin", None)]


@pytest.mark.parametrize("size", [len(CONTENT), len(CONTENT) + 10])
def test_a_part_as_long_as_the_file_or_longer(tmp_path, size):
    (tmp_path / "a.bin.part").write_bytes((CONTENT + bytes(10))[:size])
    with layouts.web_server({"a.bin": CONTENT}) as (base, log):
        assert get(base, tmp_path).read_bytes() == CONTENT
        assert len(log) == (size > len(CONTENT))


def test_another_url_is_tried_when_one_lacks_the_file_or_serves_another(tmp_path):
    files = {"a.bin": CONTENT, "altered": bytes(1) + CONTENT[1:], "longer": CONTENT * 2}
    with layouts.web_server(files) as (base, log):
        path = get(base, tmp_path, urls=("absent", "altered", "longer", "a.bin"))
        assert path.read_bytes() == CONTENT
        assert [name for name, _ in log] == ["absent", "altered", "longer", "a.bin"]


def test_what_fails_is_said_in_one_line(tmp_path):
    with layouts.web_server({"a.bin": bytes(1) + CONTENT[1:], "short": CONTENT[:50]}) as (base, log):
        with pytest.raises(DataError) as error:
            get(base, tmp_path, urls=("absent", "a.bin", "short"))
        text = str(error.value)
        assert f"md5 {MD5}, found HTTP 404 at {base}absent; md5 " in text
        assert f"connection closed at 50 of 700,000 bytes at {base}short" in text
        assert "HPC_DATA_MIRROR" in text
        assert "\n" not in text
        assert len(log) == 5
    assert not (tmp_path / "a.bin").exists()


def test_no_server_at_all(tmp_path):
    with layouts.web_server({}) as (base, _):
        pass
    with pytest.raises(DataError, match="refused"):
        get(base, tmp_path)


def test_an_empty_mirror_and_no_host_are_both_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    train = layouts.pixels(8, 40, (28, 28, 1))
    with layouts.web_server({}) as (base, _):
        layouts.know(monkeypatch, "mnist", train, train, ((Archive("a.bin", (base + "a.bin",), MD5, 3),),))
        with pytest.raises(
            DataError, match=f"{tmp_path}: expected mnist in the mirror, found none of it; a.bin: .*404"
        ):
            fetch("mnist", mirror=tmp_path)
    assert "trying its official host" in capsys.readouterr().err


def test_a_data_set_fetched_over_http(tmp_path, monkeypatch, data):
    """Two alternatives: the first host has lost a file, the second cuts the line once."""
    train, test = layouts.pixels(8, 40, (28, 28, 1)), layouts.pixels(9, 8, (28, 28, 1))
    folder = layouts.mnist(tmp_path / "origin", train, test)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with layouts.web_server(files, cut_at=100) as (base, log):

        def source(prefix):
            return tuple(
                Archive(name, (base + prefix + name,), hashlib.md5(raw).hexdigest(), len(raw))
                for name, raw in sorted(files.items())
            )

        layouts.know(monkeypatch, "mnist", train, test, (source(""), source("nowhere/")))
        fetch("mnist", progress=False)
        assert any(asked for _, asked in log)
        np.testing.assert_array_equal(load("mnist", "train", verify=True).images, train[0])
        seen = len(log)
        fetch("mnist", progress=False)
        assert len(log) == seen
        assert [path.name for path in (data / ".fetch").iterdir()] == ["mnist.lock"]  # no archive is kept

        layouts.know(monkeypatch, "mnist", train, test, (source("nowhere/"), source("")))
        fetch("mnist", progress=False, force=True)
        np.testing.assert_array_equal(load("mnist", "test", verify=True).images, test[0])
