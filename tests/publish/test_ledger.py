"""What a chapter hands on is read back as it was, and nothing of it can change unnoticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hpc_utils import paths, provenance, records
from hpc_utils.analyze.value import Value
from hpc_utils.publish import freshness, ledger

PAGE = "values/laptop-06_paper_figures.json"


def test_what_was_handed_on_is_read_back(handed: Path) -> None:
    found = ledger.read(handed)
    value = found.values["strong.efficiency.2"]
    assert (value.value, value.low, value.high, value.unit, value.repeats) == (0.7231, 0.6412, 0.8109, "share", 3)
    assert set(value.runs) == {path.name for path in (handed / "runs").iterdir()}
    assert not found.values["study.runs"].has_interval
    assert found.values["study.runs"].value == len(value.runs)
    assert found.values["study.device"].value == "AMD EPYC"
    figure = found.figures["laptop-efficiency"]
    assert {Path(file).suffix for file in figure.files} == {".pdf", ".png", ".csv"}
    assert pd.read_csv(handed / figure.file("csv")).efficiency.tolist() == [1, 0.7231]
    assert 0 < len(figure.runs) < len(value.runs)
    assert found.tables["laptop-points"].runs == value.runs
    assert found.of["study.runs"] == "laptop-06_paper_figures"


def test_numbers_of_numpy_are_numbers(result_set: Path) -> None:
    own = ledger.Ledger("x", records.load(result_set).runs)
    own.add(
        [
            Value("a.b", np.float64(0.5), "s", "", np.float64(0.4), np.float64(0.6), np.int64(3)),
            Value("a.c", np.int64(4), "count", ""),
        ]
    )
    own.write()
    found = ledger.read(result_set).values
    assert (found["a.b"].value, found["a.b"].low, found["a.c"].value) == (0.5, 0.4, 4)


def test_runs_in_the_data_are_those_that_a_table_rests_on(result_set: Path) -> None:
    runs = records.load(result_set).runs
    own, other, third = runs.run_id[:3]
    ledger_of_all = ledger.Ledger("x", runs)
    data = pd.DataFrame({"a": [1, 2], "runs": [(own, other), (other,)], "runs_one": [(third,), ()]})
    ledger_of_all.table(data, "t", says="")
    ledger_of_all.table(data.drop(columns=["runs", "runs_one"]), "u", says="")
    ledger_of_all.table(data, "v", says="", runs=[own])
    ledger_of_all.write()
    tables = ledger.read(result_set).tables
    assert set(tables["t"].runs) == {own, other, third}
    assert set(tables["u"].runs) == set(runs.run_id)
    assert set(tables["v"].runs) == {own}
    assert pd.read_csv(result_set / "tables/t.csv").runs.tolist() == [f"{own} {other}", other]


def test_of_several_studies_each_one_s_values_end_in_its_name(handed: Path) -> None:
    index = (handed / "studies/laptop.json").read_text()
    (handed / "studies/other.json").write_text(index)
    own = ledger.Ledger("06_paper_figures", records.load(handed).runs, study="other")
    whole = ledger.Ledger("03_scaling", records.load(handed).runs)
    for one, count in ((own, 3), (whole, ledger.read(handed).values["study.runs"].value)):
        one.add([Value("study.runs", count, "count", "")])
        path = handed / "notebooks" / one.study / f"{one.notebook}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text(one.write())
    assert ledger.read(handed).values["study.runs.other"].value == 3
    assert freshness.faults(handed) == [], "two chapters may tell the same by one name"


def test_one_name_stands_for_one_thing(result_set: Path) -> None:
    own = ledger.Ledger("x", records.load(result_set).runs)
    own.add([Value("a.b", 1.0, "s", "")])
    with pytest.raises(ledger.LedgerError, match=r"two values of the name a\.b"):
        own.add([Value("a.b", 1.0, "s", "")])
    own.table(pd.DataFrame({"a": [1]}), "points", says="")
    with pytest.raises(ledger.LedgerError, match="draws two of the name points"):
        own.table(pd.DataFrame({"a": [1]}), "points", says="")


def test_nothing_rests_on_runs_or_files_that_were_not_read(result_set: Path) -> None:
    own = ledger.Ledger("x", records.load(result_set).runs)
    with pytest.raises(ledger.LedgerError, match="a run of nobody's"):
        own.add([Value("a.b", 1.0, "s", "", runs=("a run of nobody's",))])
    own.add([Value("a.c", 1.0, "s", "", files=("probes/none.json",))])
    with pytest.raises(ledger.LedgerError, match=r"probes/none\.json"):
        own.write()


def test_a_page_that_is_not_whole_is_named(handed: Path) -> None:
    page = handed / PAGE
    page.write_text(page.read_text()[:-30])
    with pytest.raises(ledger.LedgerError, match="laptop-06_paper_figures"):
        ledger.read(handed)
    assert "hpc chapter" in freshness.faults(handed)[0]


def test_what_nobody_touched_is_fresh(handed: Path) -> None:
    assert freshness.faults(handed) == []


def edit(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before


def first_run(handed: Path) -> Path:
    return sorted((handed / "runs").iterdir())[0]


def samples_of_an_epoch(handed: Path) -> None:
    edit(first_run(handed) / "epochs.csv", lambda text: text[:-2] + "9\n")


def a_value(handed: Path) -> None:
    edit(handed / PAGE, lambda text: text.replace("0.7231", "0.7931"))


def a_run_s_number_in_the_joined_table(handed: Path) -> None:
    name = first_run(handed).name
    edit(handed / "csv/runs.csv", lambda text: text.replace(f"{name},complete", f"{name},failed"))


def a_figure(handed: Path) -> None:
    (handed / "figures/laptop-efficiency.png").write_bytes(b"painted")


def a_figure_s_data(handed: Path) -> None:
    edit(handed / "figures/laptop-efficiency.csv", lambda text: text.replace("0.7231", "0.9"))


def a_table(handed: Path) -> None:
    edit(handed / "tables/laptop-points.csv", lambda text: text.replace("0.7231", "0.9"))


def a_run_less(handed: Path) -> None:
    shutil.rmtree(first_run(handed))


def a_run_more(handed: Path) -> None:
    runs = records.load(handed, study="laptop").runs
    fewer = ledger.Ledger("06_paper_figures", runs[1:], study="laptop")
    (handed / "notebooks/laptop/06_paper_figures.ipynb").write_text(fewer.write())


def the_execution(handed: Path) -> None:
    (handed / "notebooks/laptop/06_paper_figures.ipynb").write_text("{}")


def the_index_s_series(handed: Path) -> None:
    edit(handed / "studies/laptop.json", lambda text: text.replace('"series": "', '"series": "other ', 1))


def a_run_of_the_index(handed: Path) -> None:
    index = json.loads((handed / "studies/laptop.json").read_text())
    (handed / "studies/laptop.json").write_text(json.dumps(index | {"runs": index["runs"][1:]}))


def an_index_without_ids(handed: Path) -> None:
    (handed / "studies/laptop.json").write_text('{"runs": [{}]}')


def a_number_in_the_execution(handed: Path) -> None:
    path = handed / "notebooks/laptop/06_paper_figures.ipynb"
    path.write_text(path.read_text() + "0.7")
    ledger.executed(handed, path)
    assert freshness.faults(handed) == []
    edit(path, lambda text: text.replace("0.7", "0.9"))


def bytes_in_the_execution(handed: Path) -> None:
    (handed / "notebooks/laptop/06_paper_figures.ipynb").write_bytes(b"\xff\xfe")


def bytes_in_the_joined_table(handed: Path) -> None:
    (handed / "csv/runs.csv").write_bytes(b"\xff\xfe\n")


def nothing_in_the_joined_table(handed: Path) -> None:
    (handed / "csv/runs.csv").write_text("")


def a_page_s_fingerprint(handed: Path) -> None:
    page = json.loads((handed / PAGE).read_text())
    (handed / PAGE).write_text(json.dumps(page | {"fingerprint": 7}))


def no_fingerprint(handed: Path) -> None:
    page = json.loads((handed / PAGE).read_text())
    del page["fingerprint"]
    (handed / PAGE).write_text(json.dumps(page))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (the_index_s_series, r"rests on studies/laptop\.json, which has changed"),
        (a_run_of_the_index, "rests on 1 runs that its chapter would no longer read"),
        (an_index_without_ids, "does not list the runs"),
        (a_number_in_the_execution, "was changed after it was executed"),
        (bytes_in_the_execution, "is not the execution"),
        (bytes_in_the_joined_table, r"csv/runs\.csv cannot be read \(UnicodeDecodeError\): `hpc collect --results /"),
        (nothing_in_the_joined_table, r"csv/runs\.csv cannot be read"),
        (a_page_s_fingerprint, "fingerprint is no text"),
        (no_fingerprint, "KeyError: 'fingerprint'"),
        (samples_of_an_epoch, "records of the run"),
        (a_value, "was changed after its chapter wrote it"),
        (a_run_s_number_in_the_joined_table, r"csv/runs\.csv says something else"),
        (a_figure, r"figures/laptop-efficiency\.png"),
        (a_figure_s_data, r"figures/laptop-efficiency\.csv"),
        (a_table, r"tables/laptop-points\.csv"),
        (a_run_less, "is gone"),
        (a_run_more, "does not know of 1 complete run"),
        (the_execution, "is not the execution"),
    ],
)
def test_whatever_changes_is_found(handed: Path, change: Callable[[Path], None], named: str) -> None:
    change(handed)
    found = freshness.faults(handed)
    assert any(pd.Series([line]).str.contains(named).all() for line in found), found


def test_a_chapter_about_the_set_rests_on_all_indices(handed: Path) -> None:
    own = ledger.Ledger("03_scaling", records.load(handed).runs)
    path = handed / "notebooks/03_scaling.ipynb"
    path.write_text(own.write())
    ledger.executed(handed, path)
    assert freshness.faults(handed) == []
    for name in ("studies/other.json", "probes/compute/a.json", "bench/loaders.csv"):
        (handed / name).parent.mkdir(exist_ok=True, parents=True)
        (handed / name).write_text('{"runs": []}')
        (said,) = [line for line in freshness.faults(handed) if f"does not know of {name}" in line]
        assert "values/03_scaling.json" in said, "a chapter about one study reads none of these"
        (handed / name).unlink()


def test_what_other_code_computed_is_doubted(handed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert freshness.computed_otherwise(handed) == []
    monkeypatch.setattr(provenance, "analysis_digest", lambda notebook: f"of {notebook}, edited")
    (said,) = freshness.computed_otherwise(handed)
    assert PAGE in said and f"`hpc chapter 06_paper_figures --results {handed} -p study=laptop`" in said
    assert freshness.faults(handed) == [], "a doubt: the values may be the same"


def test_a_column_that_no_record_fills_is_found(handed: Path) -> None:
    edit(handed / "csv/runs.csv", lambda text: text.replace(",throughput", ",throughput ", 1))
    assert [line for line in freshness.faults(handed) if "has a column 'throughput '" in line]


def test_a_page_that_tells_nothing_of_a_run_is_not_whole(handed: Path) -> None:
    page = json.loads((handed / PAGE).read_text())
    page["runs"][next(iter(page["runs"]))] = None
    (handed / PAGE).write_text(json.dumps(page))
    with pytest.raises(ledger.LedgerError, match="no table with a fingerprint"):
        ledger.read(handed)


def test_a_page_of_unknown_code_counts_as_not_committed(handed: Path) -> None:
    edit(handed / PAGE, lambda text: text.replace('"dirty": false', '"dirty": null'))
    assert [
        line for line in freshness.untraceable(handed) if f"{PAGE} was written by code that was not committed" in line
    ]


def test_a_page_that_does_not_hold_its_notebook_s_digest_is_not_traceable(handed: Path) -> None:
    assert freshness.untraceable(handed) == []
    edit(handed / PAGE, lambda text: json.dumps({**json.loads(text), ledger.EXECUTED: None}))
    (said,) = freshness.untraceable(handed)
    assert said.startswith(f"{PAGE} holds no digest of the notebook")


def test_a_name_that_two_chapters_use_is_named(handed: Path) -> None:
    own = ledger.Ledger("03_scaling", records.load(handed).runs)
    own.add([Value("study.runs", 1, "count", "")])
    line = own.write()
    (handed / "notebooks/03_scaling.ipynb").write_text(line)
    assert [line for line in freshness.faults(handed) if "study.runs" in line and "03_scaling" in line]


def test_others_profiles_need_not_be_at_hand_later(result_set: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs.json").write_text("{}")
    own = ledger.Ledger("x", records.load(result_set).runs, outside={"profile:theirs": tmp_path / "theirs.json"})
    own.add([Value("profile.busy", 0.5, "share", "", files=("profile:theirs",))])
    (result_set / "notebooks").mkdir()
    (result_set / "notebooks/x.ipynb").write_text(own.write())
    (tmp_path / "theirs.json").unlink()
    assert freshness.faults(result_set) == []


def test_a_file_of_the_project_is_evidence(result_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    (tmp_path / "plan.toml").write_text("months = 12")
    own = ledger.Ledger("x", records.load(result_set).runs, files=["project:plan.toml"])
    (result_set / "notebooks").mkdir()
    (result_set / "notebooks/x.ipynb").write_text(own.write())
    assert freshness.faults(result_set) == []
    (tmp_path / "plan.toml").write_text("months = 6")
    assert "project:plan.toml" in freshness.faults(result_set)[0]


def test_a_unit_that_nobody_can_print_is_refused(result_set: Path) -> None:
    own = ledger.Ledger("x", records.load(result_set).runs)
    with pytest.raises(ledger.LedgerError, match="'of 1', which nobody can print"):
        own.add([Value("a.b", 0.5, "of 1", "")])


def test_what_an_interval_is_else_is_read_back(result_set: Path) -> None:
    own = ledger.Ledger("x", records.load(result_set).runs)
    own.add([Value("a.b", 0.5, "share", "", 0.1, 0.9, span="allowance"), Value("a.c", 0.5, "share", "", 0.1, 0.9)])
    own.write()
    found = ledger.read(result_set)
    assert found.values["a.b"].span == "allowance" and found.values["a.c"].span == ""
    assert "span" not in found.pages["x"]["values"]["a.c"], "told only where it differs"
