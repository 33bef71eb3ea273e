"""`hpc --help`: every command in its section, in one line."""

from __future__ import annotations

import re

from click.testing import CliRunner

from hpc_utils import cli


def test_every_command_is_in_one_section_and_point_in_none() -> None:
    output = CliRunner().invoke(cli.main, ["--help"]).output
    sections = re.split(r"^(\w+):$", output, flags=re.M)[3:]
    assert sections[::2] == ["Run", "Study", "Cluster", "Publish"]
    shown = [line.split()[0] for text in sections[1::2] for line in text.strip().splitlines()]
    assert len(shown) == len(set(shown)) and {*shown, "point"} == set(cli.main.commands)
    for name in cli.main.commands:
        done = CliRunner().invoke(cli.main, [name, "--help"])
        assert done.exit_code == 0 and "Usage:" in done.output
