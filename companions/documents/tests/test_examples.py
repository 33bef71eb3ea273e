"""What the pages for writers show of cited cells is what the committed sets say."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from companions.documents import project
from companions.documents.sets import ResultSet, Sets
from hpc_utils import paths
from hpc_utils.cli import main
from hpc_utils.publish import exports, formatting

ROOT = paths.root()
FOLDERS = project.read_project(ROOT / "paper/paper.toml").sets
SETS = Sets(
    ResultSet(alias, ROOT / folder, exports.read_exports(ROOT / folder), checked=False)
    for alias, folder in FOLDERS.items()
)


def text(page: str) -> str:
    return (ROOT / page).read_text()


def cited(page: str) -> list[str]:
    """The citations of a page that are no pattern of one, nor of the reader's own set."""
    found = re.findall(r"\{\{([^{}|\\]+)[|\\}]", text(page))
    return [one for one in found if "\u2026" not in one and not one.startswith(("claim", "mine:"))]


@pytest.mark.parametrize("page", ["docs/quickstart.md", "paper/README.md"])
def test_every_cell_that_is_cited_is_there(page: str) -> None:
    assert cited(page) and all(SETS.value(one).content for one in cited(page))


def test_the_example_is_rendered_as_shown() -> None:
    def shown(form: str) -> str:
        return formatting.text(value, form).replace("\xa0", " ")

    (example,) = {one for one in cited("paper/README.md") if ":" in one}
    value = SETS.value(example).content
    assert f"`{{{{{example}}}}}` | {shown('value')}: " in text("paper/README.md")
    assert f"| {shown('interval')}, or" in text("paper/README.md")
    assert f'gets "{shown("interval")}"' in " ".join(text("docs/quickstart.md").split())


def test_the_list_of_what_can_be_cited_names_a_set_by_its_alias() -> None:
    values = CliRunner().invoke(main, ["paper", "--values", "laptop:laptop-eff*"]).stdout
    assert values.startswith("laptop:laptop-efficiency")
    refused = CliRunner().invoke(main, ["paper", "--values", "efficency"])
    assert refused.exit_code == 2 and "no table or figure matches 'efficency'" in refused.stderr


def test_the_aliases_of_sets_agree_with_their_folders() -> None:
    for alias, folder in re.findall(r"`([a-z0-9]+) = ([a-z0-9-]+)`", text("paper/README.md")):
        assert FOLDERS[alias].endswith(f"/{folder}")
