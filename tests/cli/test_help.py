"""`hpc --help`: every command in its section, as its own help has it."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from hpc_utils import cli
from hpc_utils.publish import reference


def test_every_command_stands_in_one_section_and_point_in_none() -> None:
    said = CliRunner().invoke(cli.main, ["--help"]).output
    sections = re.split(r"^(\w+):$", said, flags=re.M)[1:]
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    found.pop("Options")
    assert list(found) == ["Run", "Study", "Cluster", "Publish"]
    names = {title: re.findall(r"^  (\S+)", lines, re.M) for title, lines in found.items()}
    assert names["Publish"] == ["chapter", "paper", "verify", "export", "release"]
    shown = [name for own in names.values() for name in own]
    assert len(shown) == len(set(shown)) and {*shown, "point"} == set(cli.COMMANDS)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_each_can_be_asked_for_help(name: str) -> None:
    done = CliRunner().invoke(cli.main, [name, "--help"])
    assert done.exit_code == 0 and "Usage:" in done.output


def test_what_is_said_of_keep_names_a_chapter_that_it_executes_together() -> None:
    said = cli.main.get_command(click.Context(cli.main), "study").commands["keep"].help
    named = set(re.findall(r"\b0\d\b", said))
    assert named and named <= {chapter[:2] for chapter in reference.TOGETHER}


def test_report_says_that_a_set_is_bound_and_not_executed() -> None:
    said = " ".join(CliRunner().invoke(cli.main, ["report", "--help"]).output.split())
    assert "report [OPTIONS] [STUDY]" in said and "With --results nothing is executed" in said
