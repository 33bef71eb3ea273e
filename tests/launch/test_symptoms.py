"""The first cause of a failure, in lines of public reports."""

from __future__ import annotations

import gzip
import io
import re._parser
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpc_utils import cli, paths
from hpc_utils.launch import symptoms

LOGS = [
    *tomllib.loads(Path(__file__).with_name("logs.toml").read_text())["log"],
    *(
        {"source": symptom.report or symptom.source, "first": name, "text": symptom.example}
        for name, symptom in symptoms.catalogue().items()
        if symptom.example
    ),
]


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


def test_each_symptom_is_shown_by_a_report() -> None:
    assert {log["first"] for log in LOGS} - {"", "unknown"} == symptoms.catalogue().keys()


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
        (gzip.compress(b"epoch 1\nCUDA out of memory\n", mtime=0), 1, ":2: "),
        ("epoch 1\nCUDA out of memory\n".encode("utf-16"), 1, ":2: "),
        ("epoch 1\nCUDA out of memory\n".encode("utf-16-le"), 1, ":2: "),
    ],
)
def test_the_exit_code_tells_a_known_cause_from_another_failure_and_from_none(
    text: bytes, code: int, shown: str
) -> None:
    done = CliRunner().invoke(cli.main, ["diagnose", "-"], input=text)
    assert done.exit_code == code and shown in done.output


TRACEBACK = "Traceback (most recent call last)"
CHAINED = f"{TRACEBACK}:\n  File\nKeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n{TRACEBACK}:\n  File\n"
CANCELLED = "slurmstepd: error: *** JOB 45 ON n1 CANCELLED AT 2026-06-21T10:00:00 ***\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{TRACEBACK}:\n  File x\njob.UnknownThing: no\n", "job.UnknownThing: no"),
        (
            f"[rank1]: {TRACEBACK}:\n[rank1]:   File x\n[rank1]: job.UnknownThing: no\n",
            "[rank1]: job.UnknownThing: no",
        ),
        (f"{CHAINED}ValueError: y\n", "ValueError: y"),
        (f"{CHAINED.replace('KeyError', 'ValueError')}RuntimeError: y\n", "ValueError: 'x'"),
        (f"loss 0.51\n{CANCELLED}srun: error: n1: task 0: Killed\n", CANCELLED.strip()),
        (f"srun: error: n1: task 0: Killed\n{CANCELLED}", "srun: error: n1: task 0: Killed"),
    ],
)
def test_the_line_is_that_of_the_exception_and_of_what_came_first(text: str, shown: str) -> None:
    assert symptoms.first_cause(text).text == shown


def test_the_job_scripts_own_messages_are_recognised() -> None:
    scripts = [paths.jobs() / "launch.sh", *(paths.root() / "env/ondemand/template").glob("*.erb")]
    said = [text for script in scripts for text in re.findall(r'echo "([^"]+)" >&2', script.read_text())]
    assert len(said) > 4
    assert {symptoms.first_cause(text).name for text in said} == {"clone", "jupyter-timeout"}


def test_a_folder_is_all_of_its_logs(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("gloo: Connection closed by peer\n")
    (tmp_path / "rank1.log").write_text("epoch 1\nepoch 2\nRuntimeError: CUDA error: invalid device ordinal\n")
    done = CliRunner().invoke(cli.main, ["diagnose", str(tmp_path)])
    assert done.exit_code == 1 and f"{tmp_path}/rank1.log:3: " in done.output.splitlines()[1]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("bash: nvidia-smi: command not found", 1),
        ("WARNING: could not import apex: No module named 'apex'", 1),
        ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", 1),
        ("batch size 512: CUDA out of memory, halving", 1),
        ("srun: step creation still disabled, retrying (Requested nodes are busy)", 1),
        ('Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n_queue.Empty', 4),
    ],
)
def test_what_losses_follow_is_a_hint(text: str, code: int) -> None:
    def exit_code(log: str) -> int:
        return CliRunner().invoke(cli.main, ["diagnose", "-"], input=log).exit_code

    loss = "epoch 1 loss: 0.51\n"
    assert exit_code(f"{loss}{text}\n") == code
    assert exit_code(f"{loss}{text}\n{loss}") == 0
    assert exit_code(f"{loss}{text}\nepoch 2 loss: nan\n") == 1
    ended = f"{text}\n{loss}srun: error: n1: task 1: Exited with exit code 1\n"
    assert exit_code(ended) == (4 if "command not found" in text or "No module" in text else code)
    assert exit_code(f"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 9:00 DUE TO TIME LIMIT ***\n{loss}") == 1


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: 0",
        "error: none",
        "srun: error: x11: no local DISPLAY defined, skipping",
        "Epoch 0: 100%|###| 9/9 [00:10, train_loss=0.31, val_loss=nan.0]",
        '{"train_loss": 1.92, "test_loss": NaN}',
        "EarlyStopping: best loss: nan -> 0.812",
    ],
)
def test_a_line_of_a_healthy_log_shows_nothing(line: str) -> None:
    assert not first(line)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11)", "file-system"),
        ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "threads"),
        ("ValueError: unknown parameter group 'lora'", "unknown"),
        ("hpc_utils.config.ConfigError: unknown parameter 'sed': did you mean seed?", "configuration"),
        ("RuntimeError: Caught RuntimeError in pin memory thread for device 0.\nOSError: [Errno 5] x", "file-system"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 47.7 GiB for an array", "host-memory"),
        ("torch.OutOfMemoryError: CUDA out of memory", "gpu-memory"),
        ("Traceback (most recent call last):\nsocket.error: [Errno 104] Connection reset by peer", "unknown"),
        ("socket.gaierror: [Errno -2] Name or service not known", "unknown"),
        ("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 4.9e-05}", "loss-nan"),
    ],
)
def test_a_line_shows_its_own_cause(line: str, name: str) -> None:
    assert first(line) == name


def examples(parsed: Iterable) -> list[str]:
    """A string for each alternative of a parsed regular expression, without what lookarounds add."""
    texts = [""]
    for operation, value in parsed:
        match str(operation):
            case "LITERAL":
                parts = [chr(value)]
            case "IN":
                codes = [code[0] if str(kind) == "RANGE" else code for kind, code in value]
                parts = [chr(code) for code in codes[:2] if isinstance(code, int)] or ["1"]
            case "SUBPATTERN":
                parts = examples(value[3])
            case "BRANCH":
                parts = [text for branch in value[1] for text in examples(branch)]
            case "MAX_REPEAT" | "MIN_REPEAT":
                parts = [""] if value[0] == 0 else [text * value[0] for text in examples(value[2])]
            case _:
                parts = [" "] if str(operation) in ("ANY", "NOT_LITERAL") else [""]
        texts = [text + part for text in texts for part in parts]
    return texts


PATTERNS = {name: one.patterns for name, one in symptoms.catalogue().items()}


FAILURES = [[symptoms._FAILURE.pattern], [symptoms._EXCEPTION.pattern]]


@pytest.mark.parametrize("patterns", [*PATTERNS.values(), *FAILURES], ids=[*PATTERNS, "failure", "exception"])
def test_no_line_that_a_pattern_matches_is_dismissed_by_its_words(patterns: Iterable[str]) -> None:
    for pattern in patterns:
        texts = examples(re._parser.parse(pattern))
        assert texts and not [text for text in texts if not symptoms._WORDS.search(text.lower())]
