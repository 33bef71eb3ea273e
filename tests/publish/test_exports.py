"""What a chapter exports is read back, and a change of anything that it rests on is found."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from hpc_utils import paths, provenance, records, source_code
from hpc_utils.launch import cluster
from hpc_utils.publish import exports, staleness
from hpc_utils.publish.chapter import Chapter
from hpc_utils.publish.exports import ExportError
from hpc_utils.records import atomic, packed

from .conftest import chart, execution, faults

pytestmark = pytest.mark.usefixtures("styled")
PAGE, NOTEBOOK = "exports/laptop-06_paper_figures.json", "notebooks/laptop/06_paper_figures.ipynb"
ONE = pd.DataFrame({"ranks": [1]})


def test_what_was_exported_is_read_back(exported: Path) -> None:
    found = exports.read_exports(exported)
    table, every = found.tables["laptop-efficiency"], {path.name for path in (exported / "runs").iterdir()}
    assert (table.measure, set(table.runs), table.page) == ("efficiency", every, "laptop-06_paper_figures")
    assert table.units["efficiency"] == "share" and table.units["limit"] == "text"
    frame = found.frame("laptop-efficiency")
    assert frame.efficiency.tolist() == [1, 0.7231] and frame.efficiency_low.isna().tolist() == [True, False]
    figure = found.figures["laptop-efficiency"]
    assert figure.files.keys() == {"figures/laptop-efficiency.pdf"}
    assert pd.read_csv(io.StringIO(figure.data)).efficiency.tolist() == [1, 0.7231]
    assert 0 < len(figure.runs) < len(every)
    assert set(found.tables["laptop-points"].runs) == every, "without a column of runs: those of the chapter"


def test_a_table_rests_on_the_runs_of_its_columns_or_of_its_caller(result_set: Path) -> None:
    chapter = Chapter("x", study="laptop", label="scaling")
    assert f"{len(chapter.runs)} complete runs" in chapter.overview().data and chapter.targets.strong_ranks
    one, other, third = chapter.runs.run_id[:3]
    data = pd.DataFrame({"a": [1, 2], "runs": [(one, other), (other,)], "gain_runs": [(third,), ()]})
    chapter.show(data, "t", "It.")
    chapter.export(data, "v", "", runs=[one])
    chapter.figure(chart(data, "f"), chart(data, "g").of([one, one]).named("h"))
    chapter.show(ONE.head(0), "links", "It.", missing="`hpc submit links`")
    chapter.close()
    found = exports.read_exports(result_set)
    assert set(found.tables) == {"laptop-scaling-t", "laptop-scaling-v"}, "an empty table is not exported"
    assert found.tables["laptop-scaling-t"].runs == found.figures["laptop-scaling-f"].runs == (one, other, third)
    assert found.tables["laptop-scaling-v"].runs == found.figures["laptop-scaling-h-g"].runs == (one,)
    assert found.frame("laptop-scaling-t").runs.tolist() == [f"{one} {other}", other]


def test_settings_and_machines_are_shown_where_nothing_else_tells_rows_apart(result_set: Path, monkeypatch) -> None:
    shown = []
    monkeypatch.setattr("hpc_utils.publish.chapter.display", lambda formats, raw: shown.append(formats["text/plain"]))
    pair = pd.DataFrame(
        {"kind": ["strong"] * 2, "settings": ["epochs=2, seed=1", "epochs=3, seed=1"], "value": [1.0, 2.0]}
    )
    chapter = Chapter("x", study="laptop")
    chapter.display(pair, "kind value")
    chapter.display(pair.assign(kind=["strong", "weak"]), "kind value")
    assert [text.splitlines()[0].split() for text in shown] == [["settings", "kind", "value"], ["kind", "value"]]
    assert "epochs=2" in shown[0] and "seed" not in shown[0]
    chapter.display(pair.assign(settings="defaults", device_name=["X", "Y"]), "kind value")
    assert shown[-1].splitlines()[0].split() == ["device", "name", "kind", "value"]


def test_a_set_without_runs_shows_a_committed_one_and_keeps_nothing(results: Path) -> None:
    chapter = Chapter("x", required=False, example="shares")
    chapter.export(ONE, "t", "It.")
    chapter.close()
    assert len(chapter.runs) and not results.exists()
    assert not (paths.reference() / "shares/exports/x.json").exists()


def test_invalid_exports_are_refused(result_set: Path) -> None:
    chapter = Chapter("x")
    for add in (lambda: chapter.export(ONE, "t", ""), lambda: chapter.figure(chart(ONE))):
        add()
        with pytest.raises(ExportError, match="two"):
            add()
    with pytest.raises(ExportError, match="without a name"):
        chapter.export(ONE)
    with pytest.raises(ExportError, match="no-such-run"):
        chapter.export(ONE, "u", "", runs=["no-such-run"])
    chapter.export(ONE, "u", "", files=["probes/none.json"])
    with pytest.raises(FileNotFoundError, match=r"probes/none\.json"):
        chapter.close()


def test_a_set_without_runs_is_refused_unless_none_are_needed(results: Path) -> None:
    with pytest.raises(LookupError, match="hpc study run"):
        Chapter("x")
    assert Chapter("x", required=False).runs.empty


Change = Callable[[Path], None]


def written(name: str, content: bytes) -> Change:
    return lambda exported: (exported / name).write_bytes(content) and None


def replaced(name: str, old: str, new: str) -> Change:
    def change(exported: Path) -> None:
        (path,) = sorted(exported.glob(name))[:1]
        before = path.read_text()
        path.write_text(before.replace(old, new, 1))
        assert path.read_text() != before

    return change


def first_run(exported: Path) -> Path:
    return sorted((exported / "runs").iterdir())[0]


def a_run_less(exported: Path) -> None:
    shutil.rmtree(first_run(exported))


def a_run_more(exported: Path) -> None:
    chapter = Chapter("06_paper_figures", study="laptop")
    chapter.runs = chapter.runs[1:]
    execution(exported, "laptop/06_paper_figures", chapter.close())


def a_run_of_the_index(exported: Path) -> None:
    index = json.loads((exported / "studies/laptop.json").read_text())
    (exported / "studies/laptop.json").write_text(json.dumps(index | {"runs": index["runs"][1:]}))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (replaced("studies/laptop.json", '"series": "', '"series": "other '), r"has changed.*: studies/laptop\.json:"),
        (a_run_of_the_index, "is no longer valid.*: cnn-"),
        (written("studies/laptop.json", b'{"runs": [{}]}'), r"studies/laptop\.json is damaged"),
        (replaced(NOTEBOOK, "Exported: 2", "Exported: 3"), "is not the execution"),
        (replaced("runs/*/epochs.csv", "5120", "5121"), "has changed.*: cnn-"),
        (written("figures/laptop-efficiency.pdf", b"painted"), r"figures/laptop-efficiency\.pdf"),
        (replaced("tables/laptop-efficiency.csv", "0.7231", "0.9"), r"tables/laptop-efficiency\.csv"),
        (a_run_less, "is gone: cnn-"),
        (lambda exported: (exported / "figures/laptop-efficiency.pdf").unlink(), r"figures/laptop-efficiency\.pdf"),
        (a_run_more, "does not know what its chapter would read: cnn-"),
    ],
)  # fmt: skip
def test_whatever_changes_is_found(exported: Path, change: Change, named: str) -> None:
    assert faults(exported) == []
    change(exported)
    assert pd.Series(faults(exported)).str.contains(named).any(), faults(exported)


@pytest.mark.parametrize(
    "change", [written(PAGE, b"{"), written(PAGE, b"[]"), replaced(PAGE, "of every point", "of each point")]
)
def test_a_page_that_its_chapter_did_not_write_is_refused(exported: Path, change: Change) -> None:
    change(exported)
    with pytest.raises(ExportError, match=PAGE):
        exports.read_exports(exported)


def test_a_name_that_two_chapters_use_is_refused(exported: Path) -> None:
    chapter = Chapter("05_optimization", label="laptop")
    chapter.export(ONE, "points", "")
    chapter.close()
    with pytest.raises(ExportError, match="table laptop-points is exported by 05_optimization and laptop-06"):
        exports.read_exports(exported)


def test_a_chapter_about_the_set_rests_on_all_indices(exported: Path) -> None:
    execution(exported, "03_scaling", Chapter("03_scaling").close())
    assert faults(exported) == []
    for name in ("studies/other.json", "probes/compute/a.json", "bench/loaders.csv"):
        (exported / name).parent.mkdir(exist_ok=True, parents=True)
        (exported / name).write_text('{"runs": []}')
    (fault,) = faults(exported)
    assert "exports/03_scaling.json" in fault, "a chapter about one study reads none of these"
    assert "bench/loaders.csv, probes/compute/a.json, studies/other.json" in fault


def test_other_code_or_uncommitted_code_is_no_fault_of_the_data(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = exports.read_exports(exported)
    assert staleness.computed_otherwise(found) == []
    monkeypatch.setattr(provenance, "analysis_digest", lambda notebook: f"of {notebook}, edited")
    (doubt,) = staleness.computed_otherwise(found)
    assert PAGE in doubt and f"`hpc chapter 06_paper_figures --results {exported} -p study=laptop`" in doubt
    found.pages["laptop-06_paper_figures"]["dirty"] = None
    assert faults(exported) == []


def test_a_stale_page_is_executed_again_with_its_parameters(exported: Path) -> None:
    execution(exported, "laptop/06_paper_figures", "", cluster="atlas", note="two words")
    found = exports.read_exports(exported)
    command = staleness.remedy(exported, found.pages["laptop-06_paper_figures"])
    assert "-p study=laptop -p cluster=atlas -p 'note=two words'`" in command


def test_a_study_file_that_was_edited_since_is_named(exported: Path) -> None:
    found = exports.read_exports(exported)
    records.read_study("laptop").model_copy(update={"command": "hpc study run laptop"}).write()
    planned = exported / "studies/laptop/laptop.toml"
    planned.parent.mkdir(exist_ok=True)
    planned.write_text(paths.study_files()["laptop"].read_text())
    assert staleness.computed_otherwise(found) == []
    planned.write_text("a former state")
    (doubt,) = staleness.computed_otherwise(found)
    assert "laptop.toml" in doubt and "`hpc study run laptop`" in doubt
    packed.pack(exported)
    assert staleness.computed_otherwise(found) == [], "of a set that is kept the study moves on"


def test_a_page_is_stale_after_the_code_of_a_users_own_workload_changed(
    result_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "own_model.py"
    module.write_text("width = 1")
    monkeypatch.chdir(tmp_path)
    own = {"workload": "own_model:net", "source": source_code.digest("own_model:net")}
    for path in result_set.glob("runs/*/run.json"):
        run = json.loads(path.read_text())
        atomic.write_json(path, run | {"config": run["config"] | own})
    execution(result_set, "laptop/x", Chapter("x", study="laptop").close())
    module.write_text("width = 1  # a comment")
    assert faults(result_set) == []
    module.write_text("width = 2")
    (fault,) = faults(result_set)
    assert fault.startswith("24 of 24 runs of laptop ")
    assert fault in Chapter("x", study="laptop").overview().data
    packed.pack(result_set)
    assert faults(result_set) == [], "of a set that is kept the code moves on"


def test_an_edited_cluster_file_leaves_a_committed_set_as_it_is(
    result_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    shared, kept = tmp_path / "jobs/clusters/site.toml", result_set / "studies/laptop/clusters/site.toml"
    for price, file in (("3", shared), ("2", kept)):
        file.parent.mkdir(parents=True)
        file.write_text(f'title = "Site"\n[nodes.cpu]\npartition = "cpu"\nprecisions = ["fp32"]\nprice = {price}')

    def page() -> None:
        chapter = Chapter("x")
        chapter.rests_on(*cluster.files(["site-cpu"]))
        execution(result_set, "x", chapter.close())

    page()
    assert cluster.prices(["site-cpu"])["site-cpu"].price == 3, "a set that is still measured has today's prices"
    shared.write_text(shared.read_text().replace("price = 3", "price = 4"))
    assert "project:jobs/clusters/site.toml" in faults(result_set)[0]
    packed.pack(result_set)
    assert faults(result_set) == []
    found = exports.read_exports(result_set)
    monkeypatch.setattr(provenance, "analysis_digest", lambda notebook: found.pages["x"]["analysis"])
    (doubt,) = staleness.computed_otherwise(found)
    assert "exports/x.json" in doubt
    page()
    assert (
        cluster.prices(["site-cpu"])["site-cpu"].price == 2
        and "studies/laptop/clusters/site.toml" in exports.read_exports(result_set).pages["x"]["files"]
    )
    assert staleness.computed_otherwise(exports.read_exports(result_set)) == faults(result_set) == []
    kept.write_text("")
    assert "studies/laptop/clusters/site.toml" in faults(result_set)[0]


def test_evidence_outside_the_set(result_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the project must not change; another group's profile may be gone later."""
    monkeypatch.setattr(paths, "root", lambda: tmp_path)
    (tmp_path / "plan.toml").write_text("months = 12")
    (tmp_path / "theirs.json").write_text("{}")
    chapter = Chapter("x")
    chapter.outside = {"profile:theirs": tmp_path / "theirs.json"}
    chapter.export(ONE, "t", "", runs=(), files=["profile:theirs"])
    chapter.rests_on("plan.toml")
    execution(result_set, "x", chapter.close())
    (tmp_path / "theirs.json").unlink()
    assert faults(result_set) == []
    table = exports.read_exports(result_set).tables["t"]
    assert (table.runs, table.evidence) == ((), ("profile:theirs",))
    (tmp_path / "plan.toml").write_text("months = 6")
    assert "project:plan.toml" in faults(result_set)[0]
