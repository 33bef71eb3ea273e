"""Hints for an unknown name or key."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import toml_config


def test_the_nearest_or_all_are_named() -> None:
    assert toml_config.hint("scalin", ["scaling", "other"]) == "did you mean scaling?"
    assert toml_config.hint("zzz", ["b", "a"]) == "known are a, b"


def test_an_unknown_key_names_its_table_and_the_nearest_known_key(tmp_path: Path) -> None:
    class Inner(toml_config.Strict):
        link_gbit: float = 0.0

    class Outer(toml_config.Strict):
        network: Inner

    file = tmp_path / "cluster.toml"
    file.write_text("[network]\nlink_gbits = 3\n")
    with pytest.raises(ValueError, match="network: unknown key 'link_gbits': did you mean link_gbit"):
        toml_config.read_toml(file, Outer, ValueError)
