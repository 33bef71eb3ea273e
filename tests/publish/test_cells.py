"""Cells of exported tables, as texts cite them: found with unit, interval and evidence, or an error that names the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils.publish import cells
from hpc_utils.publish.cells import UnknownCell
from hpc_utils.publish.exports import Exports, Item

TABLE = """\
kind,world_size,baseline,link_gbit,told,efficiency,efficiency_low,efficiency_high,speedup,speedup_low,speedup_high,step_ms,verdict,repeats,runs,runs_base,speedup_runs
strong,1,none,,True,1,,,1,,,2.5,met,1,a,a,a
strong,8,none,,True,0.9,0.85,0.95,7.2,6.8,7.6,2.5,met,3,b c,a b,b
strong,8,none,0.3,False,0.4,0.3,0.5,3.2,2.4,4,2.5,missed,3,d,,d
weak,8,ddp,,False,,,,,,,2.5,,2,e,,e
"""
UNITS = {
    "world_size": "count", "efficiency": "share", "speedup": "ratio", "verdict": "text", "told": "text",
    "link_gbit": "count",
}  # fmt: skip


@pytest.fixture
def find(tmp_path: Path):
    """The cell that a text cites of `TABLE`, or of a table whose rows have units of their own."""
    (tmp_path / "tables").mkdir()
    costs = "cost,value,value_low,value_high,unit,latency\nhost,1e-9,,,s/B,2\noverlap,0.5,0.4,0.6,ratio,2\n"
    for name, text in (("curves", TABLE), ("costs", costs)):
        (tmp_path / f"tables/{name}.csv").write_text(text)
    kinds = (("curves", "efficiency", UNITS, ""), ("costs", "value", {"latency": "s"}, "allowance"))
    tables = {
        name: Item(name, "It.", ("a", "z"), {f"tables/{name}.csv": "1"}, "x", measure, own, span, ("profile:p",))
        for name, measure, own, span in kinds
    }
    exported = Exports(tmp_path, tables)
    return lambda written: cells.cell(exported, cells.parse(written))


def test_a_citation_has_set_table_column_and_keys() -> None:
    cited = cells.parse('a-b:t-1.c_d[e=f, g = h i, k="l, m=n"]')
    keys = (("e", "f"), ("g", "h i"), ("k", "l, m=n"))
    assert (cited.alias, cited.table, cited.column, cited.keys) == ("a-b", "t-1", "c_d", keys)
    assert cells.parse(str(cited)) == cited


@pytest.mark.parametrize(
    "written", ["", "t.", "t[e]", "t[=f]", "t[e=f", 't[e="f, g]', "t.c.d", "a:b:t", "t[e=f]|low", "T.c"]
)
def test_what_is_no_citation_is_refused(written: str) -> None:
    with pytest.raises(UnknownCell, match="cites no cell"):
        cells.parse(written)


def test_a_cell_has_unit_interval_repeats_runs_and_files(find) -> None:
    found = find("curves[world_size=8, kind=strong, link_gbit=none]")
    assert (found.value, found.unit, found.low, found.high, found.repeats) == (0.9, "share", 0.85, 0.95, 3)
    assert found.runs == ("b", "c", "a") and found.files == ("tables/curves.csv", "profile:p") and found.span == ""
    other = find("curves.speedup[world_size=8, kind=strong, link_gbit=none]")
    assert (other.value, other.unit, other.low, other.high, other.repeats) == (7.2, "ratio", 6.8, 7.6, 3)
    assert other.runs == ("b",), "the column's own runs"
    word = find("curves.verdict[link_gbit=0.3]")
    assert (word.value, word.unit, word.has_interval) == ("missed", "text", False)


def test_a_row_s_own_unit_and_the_table_s_span_and_runs(find) -> None:
    host, overlap = find("costs[cost=host]"), find("costs.value[cost=overlap]")
    assert (host.value, host.unit, host.runs) == (1e-9, "s/B", ("a", "z"))
    assert (overlap.unit, overlap.low, overlap.span) == ("ratio", 0.4, "allowance")
    assert find("costs.latency[cost=host]").unit == "s", "the row's unit is of the measure"


@pytest.mark.parametrize(
    ("keys", "row"),
    [
        ("world_size=1", 0),
        ("link_gbit=0.30", 2),
        ("told=true, world_size=8", 1),
        ("told=False, link_gbit=0.3", 2),
        ("baseline=None, world_size=1", 0),  # the word that the file has
    ],
)
def test_keys_are_numbers_words_booleans_or_none(find, keys: str, row: int) -> None:
    assert find(f"curves.speedup[{keys}]").value == [1, 7.2, 3.2][row]


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("curves.eficiency[world_size=1]", "did you mean efficiency"),
        ("curves[word_size=1]", "did you mean world_size"),
        ("curves[kind=strong, world_size=2]", "kind=strong, world_size=1; kind=strong, world_size=8"),
        ("curves[told=1]", "told=True"),  # 1 is no boolean
        ("curves[world_size=True]", "world_size=1"),  # and True no number
        ("curves[world_size=8]", r"3 rows; say which with .*kind=strong\|weak.*link_gbit=none\|0\.3"),
        ("curves[kind=weak, baseline=ddp]", "is empty"),
        (
            "curves.verdict[kind=weak]",
            "baseline=ddp",
        ),  # else it would change its meaning when a usual baseline is measured
        ("curves.step_ms[world_size=1]", "unit of 'step_ms' is not declared"),
    ],
)
def test_an_error_names_the_nearest(find, written: str, named: str) -> None:
    with pytest.raises(UnknownCell, match=named):
        find(written)
