"""The checklist says of each item whether it holds, and what to do where it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from hpc_utils import paths, provenance
from hpc_utils.cli import main
from hpc_utils.publish import exports
from hpc_utils.publish.release import ReleaseRefused, ready
from hpc_utils.publish.release.ready import FAILS, HOLDS, UNKNOWN, Item

from .conftest import SET, build, commit


def states(project: Path) -> dict[str, str]:
    return {item.name: item.state for item in ready.items(project)}


def test_a_small_project_may_be_released_but_is_no_version_1(project: Path) -> None:
    found = ready.items(project)
    assert [item.name for item in found if item.always and item.state != HOLDS] == []
    assert ready.refused(found, "0.1.0") == []
    assert len(ready.refused(found, "1.0.0")) == sum(item.state != HOLDS for item in found) > 3


def test_unknown_counts_as_not_held() -> None:
    found = [Item("tests pass", UNKNOWN, "nobody ran them"), Item("sizes", HOLDS, "", True)]
    assert ready.refused(found, "0.9") == []
    assert ready.refused(found, "1.0rc1") == ["tests pass (unknown), which 1.0rc1 needs: nobody ran them"]
    assert ready.refused([Item("sizes", FAILS, "x", True)], "0.9") == ["sizes: x"]
    with pytest.raises(ReleaseRefused, match="'one' is no version"):
        ready.refused(found, "one")


def test_tests_hold_for_the_commit_at_which_they_passed(project: Path) -> None:
    assert states(project)["tests pass"] == UNKNOWN
    passed = project / ready.PASSED
    passed.write_text(json.dumps({"commit": commit_of(project)}))
    assert states(project)["tests pass"] == HOLDS
    (project / "README.md").write_text("another")
    commit(project)
    assert states(project)["tests pass"] == UNKNOWN


def commit_of(project: Path) -> str:
    from hpc_utils.publish.release.tree import head

    return head(project).commit


def test_a_study_counts_as_measured_on_gpus_if_all_its_runs_were(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready, "AIMS", ("laptop",))
    assert states(project)["measured on GPUs"] == FAILS
    path = project / SET / "csv/runs.csv"
    table = pd.read_csv(path, dtype=str)
    table.assign(device=["cpu"] + ["cuda"] * (len(table) - 1)).to_csv(path, index=False)
    commit(project)
    assert states(project)["measured on GPUs"] == FAILS
    table.assign(device="cuda").to_csv(path, index=False)
    commit(project)
    assert states(project)["measured on GPUs"] == HOLDS


@pytest.mark.parametrize(
    ("verdict", "now", "state"), [("agree", "b", HOLDS), ("agree", "a", FAILS), ("differ", "b", FAILS)]
)
def test_a_run_is_reproduced_if_it_agrees_on_other_hardware(
    project: Path, verdict: str, now: str, state: str
) -> None:
    account = {"verdict": verdict, "tolerance": 0.1} | {
        side: {"provenance": {"hardware_id": own}} for side, own in (("then", "a"), ("now", now))
    }
    (project / SET / "verify").mkdir()
    (project / SET / "verify/run.json").write_text(json.dumps(account))
    commit(project)
    assert states(project)["reproduced elsewhere"] == state


def test_commands_are_tested_if_a_test_reads_their_page(project: Path) -> None:
    (project / "REPRODUCE.md").write_text("x")
    (project / "tests").mkdir()
    (project / "tests/test_pages.py").write_text('PAGES = ("README.md",)\n')
    commit(project)
    told = {item.name: item for item in ready.items(project)}["commands are tested"]
    assert told.why == "no test reads REPRODUCE.md: its commands may not work"
    (project / "tests/test_pages.py").write_text('PAGES = ("README.md", "REPRODUCE.md")\n')
    commit(project)
    assert states(project)["commands are tested"] == HOLDS


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ('value = "here:laptop-efficiency[ranks=2]", at_least = 0.5', HOLDS),
        ('value = "here:laptop-efficiency[ranks=2]", at_least = 0.95', HOLDS),
        ('value = "here:laptop-efficiency[ranks=2]", at_least = 0.72', HOLDS),
        ('value = "here:laptop-efficiency[ranks=8]", at_least = 0.72', FAILS),
    ],
    ids=["supported", "refuted", "cannot be told", "not measured"],
)
def test_claims_are_judged_when_none_lacks_its_measurement(project: Path, condition: str, state: str) -> None:
    (project / "paper/claims.toml").write_text(
        f'[efficiency]\nsentence = "They are efficient."\nplanned = true\ntests = [{{ {condition} }}]\n'
    )
    commit(project)
    told = {item.name: item for item in ready.items(project)}["claims are judged"]
    assert told.state == state, told.why


def test_the_command_prints_the_list_and_what_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "root", lambda: project)
    done = CliRunner().invoke(main, ["release", "--check"])
    assert done.exit_code == 0, done.output
    assert "  fails   measured on GPUs: no committed result set has" in done.output
    assert "0.1.0 can be released\n1.0.0 is refused: " in done.output
    (project / "README.md").write_text("changed")
    done = CliRunner().invoke(main, ["release", "--check"])
    assert done.exit_code == 1 and "0.1.0 is refused: 1 to mend" in done.output


def test_the_command_packs_or_says_why_not(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "root", lambda: project)
    done = CliRunner().invoke(main, ["release", "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out/scaling-compendium-0.1.0.zip").exists()
    build(project, b"%PDF-1.7 another")
    (project / "paper/build/paper.pdf").unlink()
    done = CliRunner().invoke(main, ["release", "--output", str(tmp_path / "out")])
    assert done.exit_code == 2 and "paper/build/paper.pdf is missing" in done.output


def test_the_page_names_every_item() -> None:
    page = (paths.root() / "RELEASING.md").read_text()
    source = (paths.root() / "hpc_utils/publish/release/ready.py").read_text()
    import re

    names = re.findall(r'\("([^"]+)", look\.', source)
    assert len(names) == 14
    assert [name for name in names if f"| {name} |" not in page] == []
    assert [aim for aim in ready.AIMS if f"`{aim}`" not in page] == []
    assert all((paths.studies() / f"{aim}.toml").exists() for aim in ready.AIMS)


def test_tables_of_code_that_was_not_committed_are_named(project: Path) -> None:
    page = project / SET / "exports/laptop-06_paper_figures.json"
    for dirty in (False, True):
        told = json.loads(page.read_text()) | {"dirty": dirty}
        (page).write_text(json.dumps(told | {"fingerprint": exports.seal(told)}))
        execution = page.parents[1] / told["executed"]
        execution.write_text(exports.seal(told))
        exports.note_execution(page.parents[1], execution)
        commit(project)
        fresh = {item.name: item for item in ready.items(project)}["exports are current"]
        assert fresh.state == (FAILS if dirty else HOLDS), fresh.why
    assert "exports/laptop-06_paper_figures.json was written by code that was not committed" in fresh.why


def test_tables_of_other_analysis_than_the_commit_s_are_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "analysis_digest", lambda notebook: "edited since")
    fresh = {item.name: item for item in ready.items(project)}["exports are current"]
    assert fresh.state == FAILS and "was computed by other code than is here now" in fresh.why
