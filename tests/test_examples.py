"""What the pages for writers show of named values is what the committed sets say."""

from __future__ import annotations

import re

import pytest

from hpc_utils import paths
from hpc_utils.publish import amounts, ledger
from hpc_utils.publish.documents import project

ROOT = paths.root()
SETS = {
    alias: ledger.read(ROOT / folder).values for alias, folder in project.read(ROOT / "paper/paper.toml").sets.items()
}
READMES = ("README.md", "paper/README.md")


def text(page: str) -> str:
    return (ROOT / page).read_text()


@pytest.mark.parametrize("page", READMES)
def test_every_value_that_is_named_is_there(page: str) -> None:
    named = re.findall(r"\{\{(?:([a-z0-9-]+):)?([a-z][a-z0-9-]*\.[a-z0-9.-]+)", text(page))
    named += [("", name) for name in re.findall(r"`(strong\.[a-z0-9.-]+)`", text(page))]
    assert named
    for alias, name in named:
        having = [one for one, values in SETS.items() if name in values]
        assert alias in having if alias else len(having) == 1, f"{alias}:{name} stands in {having}"


def test_the_example_becomes_what_is_shown() -> None:
    value = SETS["shares"]["strong.efficiency.2"]
    interval = amounts.text(value, "interval").replace("\xa0", " ")
    (shown,) = re.findall(r'`\{\{shares:strong\.efficiency\.2\|interval\}\}` and gets "([^"]+)"', text("README.md"))
    assert shown == interval
    rows = dict(
        re.findall(r"^\| `\{\{([^`]+)\}\}`[^|]*? \| ([^:|(]+?)(?:[:,] [^|]*)? \|$", text("paper/README.md"), re.M)
    )
    assert rows["strong.efficiency.2"] == amounts.text(value, "value").replace("\xa0", " ")
    assert f"| {interval}, or" in text("paper/README.md")


def test_a_set_s_names_are_told_together() -> None:
    sets = project.read(ROOT / "paper/paper.toml").sets
    for alias, folder in re.findall(r"`([a-z0-9]+) = ([a-z0-9-]+)`", text("paper/README.md")):
        assert sets[alias].endswith(f"/{folder}")
