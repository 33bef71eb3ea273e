"""The first cause of a failure, in lines of public reports."""

from __future__ import annotations

import io
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpc_utils import cli
from hpc_utils.launch import symptoms

LOGS = tomllib.loads(Path(__file__).with_name("logs.toml").read_text())["log"]


def first(*texts: str | bytes) -> str:
    logs = [(str(n), io.BytesIO(text if isinstance(text, bytes) else text.encode())) for n, text in enumerate(texts)]
    found = symptoms.diagnose(logs)
    if not found:
        return ""
    return found[0].name if found[0].is_known else "unknown"


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log["source"].rpartition("//")[2])
def test_the_first_cause_is_named(log: dict[str, str]) -> None:
    assert first(log["text"]) == log["first"]
    if not log.get("ordered"):
        assert first(*log["text"].splitlines()[::-1]) == log["first"], "each line in a log of its own, the last first"


def test_each_symptom_is_reproduced_or_shown_by_a_report() -> None:
    from hpc_utils.doctor.reproductions import REPRODUCTIONS

    shown = {log["first"] for log in LOGS} - {"", "unknown"}
    assert shown | REPRODUCTIONS.keys() == symptoms.catalogue().keys()


def test_the_rank_that_waits_elsewhere_is_named() -> None:
    text = next(log["text"] for log in LOGS if log["source"].endswith("nccl/issues/1409"))
    found = symptoms.first_cause(text)
    assert found.times == 3 and found.fix.startswith("rank 7 waits in BROADCAST")


@pytest.mark.parametrize(
    ("text", "code", "shown"),
    [
        (b"\x00\xff" * 100_000 + b"\n\x1b[31mCUDA out of\x1b[0m memory\r\n", 1, ":2: "),
        (b"Traceback\nFooError: x\n", 4, "-:2: FooError"),
        (b"epoch 1\n" * 10, 0, ""),
    ],
)
def test_the_exit_code_tells_a_known_cause_from_another_failure_and_from_none(
    text: bytes, code: int, shown: str
) -> None:
    done = CliRunner().invoke(cli.main, ["diagnose", "-"], input=text)
    assert done.exit_code == code and shown in done.output


def test_a_folder_is_all_of_its_logs(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("gloo: Connection closed by peer\n")
    (tmp_path / "rank1.log").write_text("epoch 1\nepoch 2\nRuntimeError: CUDA error: invalid device ordinal\n")
    done = CliRunner().invoke(cli.main, ["diagnose", str(tmp_path)])
    assert done.exit_code == 1 and f"{tmp_path}/rank1.log:3: " in done.output.splitlines()[1]
