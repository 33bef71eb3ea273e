"""The report: complete, readable, and never at the price of another."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import click
import pytest

from hpc_utils.doctor import report
from hpc_utils.doctor.check import Result, failed, not_applicable, passed, unknown

RESULTS = [
    replace(passed("all | well", expected="well"), name="first"),
    replace(failed("ill", "mend it", "node1 rank 3", "well"), name="second"),
    replace(unknown("no light"), name="third"),
    replace(not_applicable("nothing there"), name="fourth"),
]
OBSERVED = {"first": {"node0 rank 0": {"a": 1}}}


@pytest.fixture(autouse=True)
def layout(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")


def made(results: list[Result] = RESULTS) -> report.Report:
    runner = SimpleNamespace(observed=OBSERVED, context=SimpleNamespace(hosts=["node1", "node0", ""]))
    return report.make(results, runner, 12.34)


def test_a_failure_decides_the_verdict_and_unknown_does_not() -> None:
    assert made()["verdict"] == "fail"
    assert made([RESULTS[0], *RESULTS[2:]])["verdict"] == "pass"


def test_it_is_written_with_facts_and_provenance(results) -> None:
    path = report.write_report(made())
    folder = path.parent
    assert (path.name, folder.parent) == ("doctor.json", results / "doctor")
    written = json.loads(path.read_text())
    assert written["checks"][1] == asdict(RESULTS[1])
    assert (written["saw"], written["hosts"]) == (OBSERVED, ["node0", "node1"])
    assert written["provenance"]["digest"]
    assert folder.name == f"{written['provenance']['hardware_id']}-{written['made'][:10]}-1"
    assert report.write_report(made()).parent.name == folder.name[:-1] + "2"


def test_checks_that_never_began_have_a_report_too() -> None:
    early = report.make(RESULTS[1:2], None, 0.5)
    assert (early["nodes"], early["ranks_per_node"], early["hosts"], early["saw"]) == (2, 4, [], {})
    assert early["verdict"] == "fail"


def test_rows_and_summary_on_the_terminal() -> None:
    assert click.unstyle(report.row(RESULTS[0])) == "✔ first             all | well"
    assert len(report.row(RESULTS[1]).splitlines()) == 4  # with where, expected, fix
    assert "\x1b[31m\x1b[1m✘\x1b[0m" in report.row(RESULTS[1])
    assert report.summary(made()).startswith("1 pass, 1 fail, 1 unknown, 1 not applicable; 2 x 4 ranks")
