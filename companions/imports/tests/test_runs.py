"""Results measured elsewhere: from CSV files of epochs to records, figures, tables and documents that say so."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from companions.imports.kernels import read_kernels
from hpc_utils import paths, records
from hpc_utils.analyze.profiles.timeline import ProfileError
from hpc_utils.cli import main
from hpc_utils.publish import exports
from tests.support import pdf_text

PAGE = paths.root() / "docs/your-model.md"
SECTION = PAGE.read_text().partition("## Results at hand")[2]
MAPPING = re.search(r"^```toml\n(.*?)^```", SECTION, re.M | re.S)[1]
COMMANDS = re.search(r"^```\n(hpc import.*?)^```", SECTION, re.M | re.S)[1].splitlines()
HEADER = re.search(r"^```csv\n(.*?)\n", SECTION, re.M)[1]
RUNS = {"fp32": (4460, 77.4), "fp16": (7600, 78.7), "ddp2": (5000, 74.1)}  # samples/s, percent


def hpc(command: str) -> Result:
    return CliRunner().invoke(main, command.split()[1:])


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: Path) -> Path:
    """The files of the page, in a folder of its own; documents go to `paper/` there."""
    for name, (speed, accuracy) in RUNS.items():
        rows = [
            f"{epoch},{2 / epoch},{accuracy},{accuracy - 4 + epoch},{speed},{50_000 / speed:.3f}"
            for epoch in range(1, 5)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    kernels = "kernel,time_ms\nvolta_scudnn_winograd_128x128,30\nvoid bn_fw_tr_1C11_kernel_NCHW,10\n"
    (tmp_path / "kernels.csv").write_text(kernels)
    (tmp_path / "runs.toml").write_text(MAPPING)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_s_commands_lead_from_the_files_to_documents(
    desk: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in COMMANDS[:2]:
        done = hpc(command)
        assert done.exit_code == 0, done.output
    folder = results / "foreign/v100"
    exported = exports.read_exports(folder)
    assert set(exported.figures) == {"v100-throughput", "v100-accuracy", "v100-efficiency", "v100-kinds"}
    items = [*exported.figures.values(), *exported.tables.values()]
    assert all("imported, not measured here: v100" in item.caption for item in items)
    table = exported.frame("v100-comparison").set_index("Configuration")
    assert [name.split(", ")[1] for name in table.index] == ["fp16", "fp32", "fp32"]
    assert table.Speedup.tolist() == ["1.704 (single run)", "1.121 (single run)", "1 (single run)"]
    assert table.index[2] in exported.tables["v100-comparison"].caption
    efficiency = exported.frame("v100-efficiency").query("world_size == 2").efficiency
    assert efficiency.tolist() == pytest.approx([5000 / 4460 / 2], rel=1e-4)
    (kinds,) = exported.frame("v100-kinds").to_dict("records")
    assert (kinds["convolution"], kinds["normalisation"]) == (0.75, 0.25)
    shutil.copytree(paths.root() / "paper", desk / "paper")
    monkeypatch.setattr(paths, "root", lambda: desk)
    for command in COMMANDS[2:]:
        done = hpc(command)
        assert done.exit_code == 0, done.output
    assert hpc("hpc export v100:v100-kinds --format pdf").exit_code == 0
    assert (results / "export/v100-kinds.pdf").exists()
    assert "(imported)" in pdf_text(desk / "paper/build/v100-pitch.pdf")
    page = " ".join(pdf_text(desk / "paper/build/v100.pdf").split())
    assert "imported, not measured here: v100" in page and "directly on the machine" not in page
    assert hpc("hpc paper new own --template paper --results v100").exit_code == 0
    written = (desk / "paper/own.md").read_text()
    assert (
        "torchrun" not in written
        and "interleaved" not in written
        and "precision=fp32]|" in written.split("# Intro")[0]
    )


def test_an_imported_set_holds_records_and_can_be_kept(
    desk: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hpc(COMMANDS[0]).exit_code == 0 and hpc(COMMANDS[0]).exit_code == 0, "again"
    found = records.load(results / "foreign/v100", study="v100")
    assert not found.refused and len(found.runs) == 3 and len(found.epochs) == 12
    assert set(found.runs.hardware_id) == {"foreign:v100"} and set(found.runs.digest) == {""}
    accuracies = found.runs.set_index("precision").test_accuracy.astype(float)
    assert accuracies["fp16"] == pytest.approx(0.787)
    monkeypatch.setattr(paths, "reference", lambda: desk / "reference")
    done = hpc("hpc study keep v100 --results v100 --as mine")
    assert done.exit_code == 0 and '= "results/reference/mine"' in done.stderr, done.output
    kept = records.load(desk / "reference/mine")
    assert kept.runs.run_id.tolist() == found.runs.run_id.tolist()


def test_chapters_show_of_an_imported_set_nothing_of_the_project(desk: Path, results: Path) -> None:
    assert hpc(COMMANDS[0]).exit_code == 0
    assert hpc("hpc chapter 04_profiling --results v100 -p study=v100").exit_code == 0
    assert hpc("hpc chapter 07_proposal --results v100").exit_code == 1
    exported = exports.read_exports(results / "foreign/v100")
    assert set(exported.tables) == {"v100-profiling-thresholds"} and not exported.figures


def test_epochs_that_count_from_0_are_kept_from_1(desk: Path, results: Path) -> None:
    for name in RUNS:
        header, *rows = (desk / f"{name}.csv").read_text().splitlines()
        rows = [f"{epoch},{row.partition(',')[2]}" for epoch, row in enumerate(rows)]
        (desk / f"{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    assert hpc(COMMANDS[0]).exit_code == 0
    assert set(records.load(results / "foreign/v100").epochs.epoch) == {1, 2, 3, 4}


def test_what_all_rows_of_a_file_lack_is_said_once(desk: Path, results: Path) -> None:
    (desk / "runs.toml").write_text(MAPPING.replace('parallel = "ddp"\n', ""))
    done = hpc(COMMANDS[0])
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("refused")]
    assert done.exit_code == 1 and "ddp2.csv:2" in line and "1 more" in line


@pytest.mark.parametrize(
    ("was", "now", "names"),
    [
        ("nodes = 1\n", "", "nodes"),
        ('precision = "fp16"', 'precision = "half"', "half"),
        ('precision = "fp16"', 'precision = "fp32"', "the same run"),
        ("accuracy_is", "# accuracy_is", "percent"),
        ("samples = 50000", "samples = 60000", "throughput"),
    ],
)
def test_a_row_that_makes_no_record_is_refused(desk: Path, results: Path, was: str, now: str, names: str) -> None:
    (desk / "runs.toml").write_text(MAPPING.replace(was, now, 1))
    done = hpc(COMMANDS[0])
    assert done.exit_code in (1, 2) and names in done.stderr


@pytest.mark.parametrize(
    ("was", "now"), [('[runs."ddp2.csv"]', '[runs."ddp3.csv"]'), ('reference = "fp32.csv"', 'reference = "none"')]
)
def test_a_file_that_was_not_given_is_named(desk: Path, results: Path, was: str, now: str) -> None:
    (desk / "runs.toml").write_text(MAPPING.replace(was, now, 1))
    done = hpc(COMMANDS[0])
    assert done.exit_code == 2 and now.split('"')[1] in done.stderr and not results.exists()


def test_a_trace_gives_the_time_by_kind_of_kernel(desk: Path, results: Path) -> None:
    from tests.analyze.profiles.torch_traces import real

    trace = next(path for path in sorted(real("8xH100-compiled").rglob("*")) if path.is_file())
    (desk / "runs.toml").write_text(MAPPING.replace("kernels.csv", str(trace)))
    assert hpc(COMMANDS[0]).exit_code == 0
    (table,) = (results / "foreign/v100").glob("runs/*/profile/kernels.csv")
    assert pd.read_csv(table).share.sum() == pytest.approx(1)


def test_a_name_of_a_committed_set_is_refused(desk: Path, results: Path) -> None:
    done = hpc(COMMANDS[0].replace("--as v100", "--as shares"))
    assert done.exit_code == 2 and "shares" in done.stderr and not (results / "foreign").exists()


def test_shares_that_are_called_percent_are_refused(desk: Path, results: Path) -> None:
    rows = [f"{epoch},1.0,0.7{epoch},0.7{epoch},7600,6.579" for epoch in range(1, 5)]
    (desk / "fp16.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    done = hpc(COMMANDS[0])
    assert done.exit_code == 2 and "fp16.csv" in done.stderr and "percent" in done.stderr


def test_a_second_row_of_an_epoch_is_named(desk: Path, results: Path) -> None:
    with (desk / "fp16.csv").open("a") as file:
        file.write((desk / "fp16.csv").read_text().splitlines()[-1] + "\n")
    done = hpc(COMMANDS[0])
    assert done.exit_code == 1 and "fp16.csv:6" in done.stderr and "epoch 4" in done.stderr


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (["kernel,time_ms", "ncclDevKernel(void*, int),30"], "3 fields"),
        (["kernel,share", "gemm,41 %"], "'41 %'"),
        (["kernel,time_ms", "gemm,-1"], "'-1'"),
        (["kind,share", "GEMM,90", "convolution,50"], "140"),
        (["kind;share", "GEMM;0,9"], "with commas"),
        (["kind,share", "matmul,0.9"], "convolution, GEMM, attention"),
    ],
)
def test_a_table_of_kernels_that_cannot_be_read_is_refused(tmp_path: Path, rows: list[str], names: str) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text("\n".join(rows))
    with pytest.raises(ProfileError, match=re.escape(names)):
        read_kernels(path)


def test_what_shares_leave_is_of_other_kernels(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text("kind,share\nGEMM,0.5\nconvolution,0.2\n")
    table = read_kernels(path).set_index("kind").share
    assert table.to_dict() == pytest.approx({"GEMM": 0.5, "convolution": 0.2, "other": 0.3})
