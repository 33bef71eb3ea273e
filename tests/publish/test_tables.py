"""Tables as text."""

from __future__ import annotations

import io

import pandas as pd
from bs4 import BeautifulSoup

from hpc_utils.analyze import scaling
from hpc_utils.publish import tables
from tests.analyze.runs import study


def test_the_workshop_s_table_reads_as_people_fill_it_in() -> None:
    runs = study(strong={"1x2": 0.9, "2x4": 0.8})
    runs = runs[(runs.world_size < 8) | (runs.repeat == 2)]
    table = tables.workshop(scaling.workshop(runs)).set_index("devices")
    assert table.index.tolist() == ["1 (no group)", "1 (DDP)", "2", "4", "8", "12"]
    assert set(table.curve) == {"strong, batch 768, cnn on digits, fp32"}
    two = table.loc["2"]
    assert two["nodes x ranks"] == "1x2" and two["batch per device"] == "384" and two["global batch"] == "768"
    assert two["time per step (ms)"].startswith("444.4 (4") and " to " in two["time per step (ms)"]
    assert two["efficiency (%)"].startswith("90 (8") and two["speed-up"].startswith("1.8 (1.7")
    assert two["peak memory per device (MiB)"].startswith("400")
    assert table.loc["8", "throughput (samples/s)"] == "6,144 (single run)"
    assert table.loc["1 (no group)", "speed-up"] == "1" and table.loc["1 (no group)", "efficiency (%)"] == "100"
    assert table.loc["4", "throughput (samples/s)"] == "not measured"
    assert table.loc["4", "nodes x ranks"] == table.loc["4", "efficiency (%)"] == "–"


def test_a_table_survives_markdown_and_csv() -> None:
    table = tables.workshop(scaling.workshop(study(weak={"1x2": 0.9})))
    assert table.curve[0] == "weak, 100 a device, cnn on digits, fp32"
    head, rule, *lines = tables.markdown(table).splitlines()
    assert len(lines) == len(table) == 6
    assert {line.count(" | ") for line in (head, *lines)} == {len(table.columns) - 1} and set(rule) == set("| :-")
    assert pd.read_csv(io.StringIO(table.to_csv(index=False)), dtype=str).equals(table)
    assert tables.markdown(pd.DataFrame({"a|b": ["c|d"]})) == "| a\\|b |\n| :-- |\n| c\\|d |"


def test_a_shown_table_has_units_intervals_and_no_ids() -> None:
    data = pd.DataFrame(
        {
            "kind": ["strong", None], "efficiency": [0.8512, float("nan")], "efficiency_low": [0.7, float("nan")],
            "efficiency_high": [0.95, float("nan")], "wall_seconds": [7.5, 9000.0], "batch": [1536, 8], "runs": [("a",), ("b",)],
        }
    )  # fmt: skip
    html, text = tables.readable(data)
    cells = [cell.get_text() for cell in BeautifulSoup(html, "html.parser").select("th, td")]
    assert cells[:4] == ["kind", "efficiency (%)", "wall time", "batch"]
    assert html.count("text-align: left") == 3, "the texts"
    assert cells[4:8] == ["strong", "85 [70,\xa095]", "7.50\xa0s", "1,536"] and cells[8:11] == ["–", "–", "2.50\xa0h"]
    assert 'title="speed-up over ranks' in html and text.count("\n") == 2
    assert tables.readable(data, ["batch"])[1].split() == ["batch", "1,536", "8"]


def test_a_row_s_own_unit_is_that_of_the_measure() -> None:
    data = pd.DataFrame({"metric": ["accuracy", "loss"], "value": [0.94, 0.2], "unit": ["share", "ratio"]})
    _, text = tables.readable(data, measure="value")
    assert (
        text.splitlines()[0].split() == ["metric", "value"]
        and "94.0\xa0%" in text
        and "%" not in text.splitlines()[2]
    )


def test_a_long_table_is_shown_to_a_limit() -> None:
    _, text = tables.readable(pd.DataFrame({"rank": range(tables.MOST_ROWS + 5)}))
    assert text.endswith("(5 further rows)") and len(text.splitlines()) == tables.MOST_ROWS + 2


def test_a_wide_table_folds_after_what_is_equal_in_all_rows() -> None:
    wide = pd.DataFrame({"workload": "cnn"} | {f"column{number}": [number, number + 0.5] for number in range(10)})
    html, text = tables.readable(wide)
    assert "workload cnn" in html.partition("<table")[0]
    shown, folded = html.split("<details>")
    assert len(BeautifulSoup(shown, "html.parser").select("th")) == 8
    headings = [heading.text for heading in BeautifulSoup(folded, "html.parser").select("th")]
    assert headings == ["column0", "column8", "column9"]
    assert "column9" in text and "workload" in text
    assert "<details>" not in tables.readable(wide.iloc[:, :8])[0]


def test_a_table_of_numbers_and_an_empty_one_are_html() -> None:
    assert "<td" in tables.html(pd.DataFrame({"runs": [1]}), ["runs"])
    assert "nan" not in tables.html(pd.DataFrame(columns=["runs"]), ["runs"])


def test_the_comparison_names_what_differs_and_its_reference() -> None:
    runs = study(strong={"1x2": 0.9})
    runs = pd.concat([runs, runs.assign(run_id=runs.run_id + "x", settings='compile="default"')], ignore_index=True)
    epochs = runs[["run_id"]].assign(epoch=1, test_accuracy=0.9)
    table, caption = tables.comparison(scaling.comparison(runs, epochs))
    assert table.Configuration.is_unique and len(table) == 6
    assert table.Configuration.str.endswith("compile=default").sum() == 3
    (reference,) = table.Configuration[table.Speedup == "1"][:1]
    assert set(table["Peak memory/device"]) == {"400 MiB"}
    part = tables.text_table(
        pd.DataFrame([{"peak_bytes": 455 * 2**20, "device_bytes": 16 * 2**30}]), {"m": tables._memory}
    )
    assert part.m[0] == "455 MiB, 2.8 % of 16 GiB"
    assert reference in caption and "1 (no group) x 768" in reference
