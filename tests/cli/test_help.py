"""`hpc --help`: every command in its section, in one line."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from hpc_utils import cli, paths
from hpc_utils.cli.study import study
from hpc_utils.publish import reference


def test_every_command_is_in_one_section_and_point_in_none() -> None:
    output = CliRunner().invoke(cli.main, ["--help"]).output
    sections = re.split(r"^(\w+):$", output, flags=re.M)[3:]
    assert sections[::2] == ["Run", "Study", "Cluster", "Publish"]
    lines = [line for text in sections[1::2] for line in text.strip().splitlines()]
    assert all(line.endswith(".") for line in lines)
    shown = [line.split()[0] for line in lines]
    assert len(shown) == len(set(shown)) and {*shown, "point"} == set(cli.main.commands)


@pytest.mark.parametrize("name", cli.main.commands)
def test_each_command_has_help(name: str) -> None:
    done = CliRunner().invoke(cli.main, [name, "--help"])
    assert done.exit_code == 0 and "Usage:" in done.output


def test_the_help_of_keep_names_chapters_that_it_executes() -> None:
    named = set(re.findall(r"\b0\d\b", study.commands["keep"].help))
    chapters = {path.stem for path in paths.notebooks().glob("*.ipynb")} - {*reference.OF_ONE_STUDY}
    assert named and named <= {chapter[:2] for chapter in chapters}
