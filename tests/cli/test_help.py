"""`hpc --help`: every command in its section, as its own help has it."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from hpc_utils import cli
from hpc_utils.publish import reference


def test_every_command_is_in_one_section_and_point_in_none() -> None:
    output = CliRunner().invoke(cli.main, ["--help"]).output
    sections = re.split(r"^(\w+):$", output, flags=re.M)[1:]
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    found.pop("Options")
    assert list(found) == ["Run", "Study", "Cluster", "Publish"]
    shown = [name for lines in found.values() for name in re.findall(r"^  (\S+)", lines, re.M)]
    assert len(shown) == len(set(shown)) and {*shown, "point"} == set(cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_command_has_help(name: str) -> None:
    done = CliRunner().invoke(cli.main, [name, "--help"])
    assert done.exit_code == 0 and "Usage:" in done.output


def test_the_help_of_keep_names_chapters_that_it_executes() -> None:
    text = cli.main.get_command(click.Context(cli.main), "study").commands["keep"].help
    named = set(re.findall(r"\b0\d\b", text))
    assert named and named <= {chapter[:2] for chapter in reference.TOGETHER}
