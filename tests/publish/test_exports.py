"""What a chapter exports is read back as it was, and nothing of it can change unnoticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from hpc_utils import paths, provenance
from hpc_utils.publish import exports, staleness
from hpc_utils.publish.chapter import Chapter, stacked
from hpc_utils.publish.exports import ExportError

from .conftest import chart, execution

pytestmark = pytest.mark.usefixtures("styled")
PAGE = "exports/laptop-06_paper_figures.json"
ONE = pd.DataFrame({"ranks": [1]})


def test_what_was_exported_is_read_back(exported: Path) -> None:
    found = exports.read(exported)
    table, every = found.tables["laptop-efficiency"], {path.name for path in (exported / "runs").iterdir()}
    assert (table.measure, set(table.runs), table.page) == ("efficiency", every, "laptop-06_paper_figures")
    assert table.units == {"ranks": "count", "efficiency": "share", "repeats": "count", "limit": "text"}
    frame = found.frame("laptop-efficiency")
    assert frame.efficiency.tolist() == [1, 0.7231] and frame.low.isna().tolist() == [True, False]
    assert set(frame.runs[1].split()) == every
    figure = found.figures["laptop-efficiency"]
    assert {Path(file).suffix for file in figure.files} == {".pdf", ".png", ".csv"}
    assert pd.read_csv(exported / figure.file("csv")).efficiency.tolist() == [1, 0.7231]
    assert 0 < len(figure.runs) < len(every)
    assert set(found.tables["laptop-points"].runs) == every, "without a column of runs: those of the chapter"


def test_a_table_rests_on_the_runs_of_its_columns_or_of_its_caller(result_set: Path) -> None:
    chapter = Chapter("x")
    one, other, third = chapter.runs.run_id[:3]
    data = pd.DataFrame({"a": [1, 2], "runs": [(one, other), (other,)], "gain_runs": [(third,), ()]})
    chapter.table(data, "t", "")
    chapter.export(data, "v", "", runs=[one])
    chapter.figure(chart(data, "f"), chart(data, "g").of([one, one]).named("h"))
    chapter.close()
    found = exports.read(result_set)
    assert set(found.tables["t"].runs) == set(found.figures["f"].runs) == {one, other, third}
    assert found.tables["v"].runs == found.figures["h-g"].runs == (one,)
    assert found.frame("t").runs.tolist() == [f"{one} {other}", other]


def test_names_start_with_study_and_label_and_an_empty_table_is_not_exported(result_set: Path) -> None:
    chapter = Chapter("x", study="laptop", label="scaling")
    assert f"{len(chapter.runs)} complete runs" in chapter.overview().data and chapter.targets.strong_ranks
    chapter.export(ONE, "t", "")
    chapter.table(ONE.head(0), "links", "", missing="`hpc submit links`")
    chapter.close()
    found = exports.read(result_set)
    assert set(found.tables) == {"laptop-scaling-t"} and found.pages.keys() == {"laptop-x"}
    assert not (result_set / "tables/laptop-scaling-links.csv").exists()


def test_several_frames_stand_above_each_other_with_their_names() -> None:
    both = stacked({"a": ONE, "none": ONE.head(0), "b": ONE})
    assert both.study.tolist() == ["a", "b"] and stacked({}).empty


def test_one_name_stands_for_one_thing(result_set: Path) -> None:
    chapter = Chapter("x")
    for add in (lambda: chapter.export(ONE, "t", ""), lambda: chapter.figure(chart(ONE))):
        add()
        with pytest.raises(ExportError, match="two"):
            add()


def test_a_unit_that_no_text_can_print_is_refused(result_set: Path) -> None:
    with pytest.raises(ExportError, match="GFLOP/s"):
        Chapter("x").export(ONE, "t", "", units={ONE.columns[0]: "GFLOP/s"})


def test_nothing_rests_on_runs_or_files_that_were_not_read(result_set: Path) -> None:
    chapter = Chapter("x")
    with pytest.raises(ExportError, match="no-such-run"):
        chapter.export(ONE, "t", "", runs=["no-such-run"])
    chapter.export(ONE, "u", "", files=["probes/none.json"])
    with pytest.raises(ExportError, match=r"probes/none\.json"):
        chapter.close()


def test_a_set_without_runs_is_refused_unless_none_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPC_RESULTS", str(tmp_path))
    with pytest.raises(LookupError, match="hpc study run"):
        Chapter("x")
    assert Chapter("x", required=False).runs.empty


def edit(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before


def page(**changes: object) -> Callable[[Path], None]:
    """A change of the page's fields; None: without it."""

    def change(exported: Path) -> None:
        now = json.loads((exported / PAGE).read_text()) | changes
        (exported / PAGE).write_text(json.dumps({name: part for name, part in now.items() if part is not None}))

    return change


def written(name: str, content: str | bytes) -> Callable[[Path], None]:
    content = content.encode() if isinstance(content, str) else content
    return lambda exported: (exported / name).write_bytes(content) and None


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    return lambda exported: edit(exported / name, lambda text: text.replace(old, new, 1))


def first_run(exported: Path) -> Path:
    return sorted((exported / "runs").iterdir())[0]


def samples_of_an_epoch(exported: Path) -> None:
    edit(first_run(exported) / "epochs.csv", lambda text: text[:-2] + "9\n")


def a_state_in_the_joined_table(exported: Path) -> None:
    name = first_run(exported).name
    replaced("csv/runs.csv", f"{name},complete", f"{name},failed")(exported)


def a_run_less(exported: Path) -> None:
    shutil.rmtree(first_run(exported))


def a_run_more(exported: Path) -> None:
    chapter = Chapter("06_paper_figures", study="laptop")
    chapter.runs = chapter.runs[1:]
    execution(exported, "laptop/06_paper_figures", chapter.close())


def a_run_of_the_index(exported: Path) -> None:
    index = json.loads((exported / "studies/laptop.json").read_text())
    (exported / "studies/laptop.json").write_text(json.dumps(index | {"runs": index["runs"][1:]}))


NOTEBOOK = "notebooks/laptop/06_paper_figures.ipynb"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (replaced("studies/laptop.json", '"series": "', '"series": "other '), r"rests on studies/laptop\.json"),
        (a_run_of_the_index, "1 runs that its chapter would no longer read"),
        (written("studies/laptop.json", '{"runs": [{}]}'), r"studies/laptop\.json is damaged"),
        (replaced(NOTEBOOK, "Exported: 2", "Exported: 3"), "was changed after it was executed"),
        (written(NOTEBOOK, b"\xff\xfe"), "is not the execution"),
        (written(NOTEBOOK, "{}"), "is not the execution"),
        (written("csv/runs.csv", b"\xff\xfe\n"), r"csv/runs\.csv cannot be read \(UnicodeDecodeError\)"),
        (written("csv/runs.csv", ""), r"csv/runs\.csv cannot be read"),
        (replaced("csv/runs.csv", ",throughput", ",throughput "), "has a column 'throughput '"),
        (a_state_in_the_joined_table, r"csv/runs\.csv differs"),
        (page(fingerprint=7), "fingerprint"),
        (page(fingerprint=None), "fingerprint"),
        (page(schema=1), "schema"),
        (page(runs={"a": None}), r"runs\.a"),
        (written(PAGE, "{"), PAGE),
        (replaced(PAGE, "of every point", "of each point"), "was changed after its chapter wrote it"),
        (samples_of_an_epoch, "records of the run"),
        (written("figures/laptop-efficiency.png", "painted"), r"figures/laptop-efficiency\.png"),
        (replaced("figures/laptop-efficiency.csv", "0.7231", "0.9"), r"figures/laptop-efficiency\.csv"),
        (replaced("tables/laptop-efficiency.csv", "0.7231", "0.9"), r"tables/laptop-efficiency\.csv"),
        (a_run_less, "is gone"),
        (a_run_more, "does not know of 1 complete run"),
    ],
)  # fmt: skip
def test_whatever_changes_is_found(exported: Path, change: Callable[[Path], None], named: str) -> None:
    assert staleness.faults(exported) == []
    change(exported)
    found = staleness.faults(exported)
    assert pd.Series(found).str.contains(named).any(), found


def test_a_chapter_about_the_set_rests_on_all_indices(exported: Path) -> None:
    execution(exported, "03_scaling", Chapter("03_scaling").close())
    assert staleness.faults(exported) == []
    for name in ("studies/other.json", "probes/compute/a.json", "bench/loaders.csv"):
        (exported / name).parent.mkdir(exist_ok=True, parents=True)
        (exported / name).write_text('{"runs": []}')
        (fault,) = [line for line in staleness.faults(exported) if f"does not know of {name}" in line]
        assert "exports/03_scaling.json" in fault, "a chapter about one study reads none of these"
        (exported / name).unlink()


def test_a_name_that_two_chapters_use_is_a_fault(exported: Path) -> None:
    chapter = Chapter("05_optimization", label="laptop")
    chapter.export(ONE, "points", "")
    execution(exported, "05_optimization", chapter.close())
    assert [line for line in staleness.faults(exported) if "laptop-points" in line and "05_optimization" in line]


def test_what_other_code_computed_may_be_the_same(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert staleness.computed_otherwise(exported) == []
    monkeypatch.setattr(provenance, "analysis_digest", lambda notebook: f"of {notebook}, edited")
    (doubt,) = staleness.computed_otherwise(exported)
    assert PAGE in doubt and f"`hpc chapter 06_paper_figures --results {exported} -p study=laptop`" in doubt
    assert staleness.faults(exported) == []


@pytest.mark.parametrize("change", [replaced(PAGE, '"dirty": false', '"dirty": null'), page(executed_sha256=None)])
def test_a_page_without_commit_or_notebook_is_not_traceable(exported: Path, change: Callable[[Path], None]) -> None:
    assert staleness.untraceable(exported) == []
    change(exported)
    (fault,) = staleness.untraceable(exported)
    assert fault.startswith(PAGE)


def test_other_groups_profiles_need_not_be_at_hand_later(result_set: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs.json").write_text("{}")
    chapter = Chapter("x", outside={"profile:theirs": tmp_path / "theirs.json"})
    chapter.export(ONE, "t", "", runs=(), files=["profile:theirs"])
    execution(result_set, "x", chapter.close())
    (tmp_path / "theirs.json").unlink()
    assert staleness.faults(result_set) == []
    table = exports.read(result_set).tables["t"]
    assert (table.runs, table.evidence) == ((), ("profile:theirs",))


def test_a_file_of_the_project_is_evidence(result_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    (tmp_path / "plan.toml").write_text("months = 12")
    chapter = Chapter("x")
    chapter.rests_on("plan.toml")
    execution(result_set, "x", chapter.close())
    assert staleness.faults(result_set) == []
    (tmp_path / "plan.toml").write_text("months = 6")
    assert "project:plan.toml" in staleness.faults(result_set)[0]
