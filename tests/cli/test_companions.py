"""Companions add commands to `hpc`, which the core does not import by name."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from hpc_utils import cli

COMMANDS = """
import click

def register(main):
    main.add_command(click.Command("greet"))
"""


def test_a_companion_with_commands_adds_them_and_none_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("greeting", "silent"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "greeting/commands.py").write_text(COMMANDS)
    package = ModuleType("companions")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "companions", package)
    main = click.Group()
    cli.register_companions(main)
    assert main.commands.keys() == {"greet"}
    monkeypatch.setitem(sys.modules, "companions", None)  # as if there were no such package
    cli.register_companions(bare := click.Group())
    assert not bare.commands
