"""The report: kept whole, read by people, and never at the price of another."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hpc_utils.probe import report
from hpc_utils.probe.check import Check, failed, not_applicable, passed, unknown

CHECKS = [
    replace(passed("all | well", "well"), name="first"),
    replace(failed("ill", "well", "mend it", "node1 rank 3"), name="second"),
    replace(unknown("no light"), name="third"),
    replace(not_applicable("nothing there"), name="fourth"),
]
SAW = {"first": {"node0 rank 0": {"a": 1}}}


@pytest.fixture(autouse=True)
def layout(monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")


def made(checks: list[Check] = CHECKS) -> dict:
    conductor = SimpleNamespace(saw=SAW, bench=SimpleNamespace(hosts=["node1", "node0", ""]))
    return dict(report.make(checks, conductor, 12.34))


def test_one_fault_decides_the_verdict_and_unknown_does_not() -> None:
    assert made()["verdict"] == "fail"
    assert made([check for check in CHECKS if check.name != "second"])["verdict"] == "pass"


def test_it_is_kept_with_its_facts_and_its_origin(results) -> None:
    folder = report.archive(made())
    assert made()["hosts"] == ["node0", "node1"]
    assert folder.parent == results / "doctor"
    kept = json.loads((folder / "doctor.json").read_text())
    assert kept["checks"][1] == {
        "name": "second",
        "verdict": "fail",
        "measured": "ill",
        "expected": "well",
        "fix": "mend it",
        "where": "node1 rank 3",
    }
    assert kept["saw"]["first"]["node0 rank 0"] == {"a": 1}
    assert kept["provenance"]["digest"]
    assert folder.name == f"{kept['provenance']['hardware_id']}-{kept['made'][:10]}-1"


def test_a_second_one_has_the_next_number_and_nothing_else_is_left(results) -> None:
    names = [report.archive(made()).name for _ in range(3)]
    assert [name.rpartition("-")[2] for name in names] == ["1", "2", "3"]
    assert sorted(os.listdir(results / "doctor")) == sorted(names)


def test_what_cannot_be_kept_raises_and_leaves_no_draft(results, monkeypatch) -> None:
    monkeypatch.setattr(report.atomic, "write_text", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        report.archive(made())
    assert os.listdir(results / "doctor") == []


def test_markdown_is_a_table_and_a_list_of_what_to_do() -> None:
    text = report.markdown(made())
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[0] == "| check | verdict | measured | expected |"
    assert "| first | pass | all / well | well |" in rows, "a bar would end the cell"
    assert "| second | fail | ill (node1 rank 3) | well |" in rows
    assert "- **second** (fail): mend it" in text
    assert "2 nodes x 4 ranks" in text


def test_a_row_on_the_terminal() -> None:
    assert report.line(CHECKS[0], colour=False) == "✔ first             all | well"
    assert report.line(CHECKS[1], colour=False).splitlines() == [
        "✘ second            ill",
        "                    where: node1 rank 3",
        "                    expected: well",
        "                    fix: mend it",
    ]
    assert "\x1b[31;1m✘\x1b[0m" in report.line(CHECKS[1], colour=True)


def test_columns_are_as_wide_as_the_longest_name() -> None:
    from hpc_utils.probe.plan import PLAN

    assert max(len(name) for probe in PLAN for name in probe.judges) == report.WIDTH


def test_an_examination_that_never_began_has_a_report_too() -> None:
    early = report.make(CHECKS[1:2], None, 0.5)
    assert (early["nodes"], early["ranks_per_node"], early["hosts"], early["saw"]) == (2, 4, [], {})
    assert early["verdict"] == "fail"


def test_the_summary_counts() -> None:
    assert report.summary(made(), colour=False).startswith("1 pass, 1 fail, 1 unknown, 1 not applicable; 2 nodes x 4")
