"""`hpc --help`: every command in its section, in one line."""

from __future__ import annotations

import re

from click.testing import CliRunner

from hpc_utils import cli
from hpc_utils.config import FIRST, RunConfig


def test_every_command_is_in_one_section_and_point_in_none() -> None:
    output = CliRunner().invoke(cli.main, ["--help"]).output
    sections = re.split(r"^(\w+):$", output, flags=re.M)[3:]
    assert sections[:6:2] == ["Run", "Study", "Cluster"]  # then those of companions, if there are any
    shown = [line.split()[0] for text in sections[1::2] for line in text.strip().splitlines()]
    assert len(shown) == len(set(shown)) and {*shown, "point"} == set(cli.main.commands)
    for name in cli.main.commands:
        done = CliRunner().invoke(cli.main, [name, "--help"])
        assert done.exit_code == 0 and "Usage:" in done.output


def test_parameters_of_a_first_study_are_explained_and_all_are_named() -> None:
    listed, every = (CliRunner().invoke(cli.main, ["params", *words]).output for words in ([], ["--all"]))
    meanings = {name: field.description for name, field in RunConfig.model_fields.items()}
    assert {name for name, meaning in meanings.items() if meaning in listed} == set(FIRST)
    assert all(name in listed and meanings[name] in every for name in meanings)
    alone = CliRunner().invoke(cli.main, ["params", "clip_norm"])
    assert meanings["clip_norm"] in alone.output and meanings["lr"] not in alone.output
    assert CliRunner().invoke(cli.main, ["params", "lrr"]).exit_code == 2
