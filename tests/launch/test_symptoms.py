"""The first cause of a failure, in lines of public reports."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpc_utils import cli, paths
from hpc_utils.launch import symptoms


def read_logs(name: str) -> list[dict]:
    return tomllib.loads(Path(__file__).with_name(name).read_text())["log"]


LOGS = [
    *read_logs("logs.toml"),
    *(
        {
            "source": symptom.report or symptom.source,
            "first": name,
            "text": symptom.example,
            "ordered": bool(symptom.within),
        }
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


@pytest.mark.parametrize("log", read_logs("log_variants.toml"), ids=lambda log: log["text"].splitlines()[-1][:60])
def test_the_first_cause_of_a_variant_is_named(log: dict) -> None:
    assert first(log["text"]) == log["first"]
    finding = symptoms.first_cause(log["text"])
    assert log.get("line", "") in finding.text
    advice = f"{finding.symptom.title} {finding.fix}"
    assert re.search(".*".join(map(re.escape, log.get("words", []))), advice), "in this order"


@pytest.mark.parametrize("log", read_logs("healthy_logs.toml"), ids=lambda log: log["name"])
def test_a_healthy_log_shows_hints_at_most(log: dict) -> None:
    findings = symptoms.diagnose([("log", io.BytesIO(log["text"].encode()))])
    assert [finding.text for finding in findings if finding.kind != symptoms.Kind.HINT] == []


CASES = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared") / "cases"
CAUSES = {
    "log_chained_exception": "permission", "log_checkpoint_write": "checkpoint-write", "log_dead_kernel": "dead-kernel",
    "log_fabric_manager": "fabric-manager", "log_job_cancelled": "cancelled", "log_nccl_warn_reason": "nccl-peer-access",
    "log_no_such_kernel": "no-kernel", "log_ondemand_timeout": "jupyter-timeout", "log_own_job_script": "clone",
    "log_own_ondemand_1": "clone", "log_own_ondemand_2": "jupyter-timeout", "log_pam_slurm_adopt": "ssh-refused",
    "log_read_only_home": "permission", "log_slurmd_spool": "slurm-spool", "log_ucx_docker_bridge": "ucx-interface",
    "log_utf16": "gpu-memory", "sbatch_refusal": "submit-limit",
}  # fmt: skip


@pytest.mark.parametrize("path", [*CASES.glob("log_*.log"), *CASES.glob("sbatch_*.txt")], ids=lambda path: path.stem)
def test_the_shared_cases(path: Path) -> None:
    assert first(path.read_bytes()) == CAUSES[path.stem]


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
        ("epoch 1\nCUDA out of memory\n".encode("utf-16-be"), 1, ":2: "),
        (b"epoch 1\n" + "CUDA out of memory\n".encode("utf-16"), 1, ":2: "),
        (bz2.compress(b"epoch 1\nCUDA out of memory\n"), 1, ":2: "),
        (lzma.compress("epoch 1\nCUDA out of memory\n".encode("utf-16")), 1, ":2: "),
        (gzip.compress(b"epoch 1\nCUDA out of memory\n" * 99, mtime=0)[:-30], 2, "unpack"),
        (b"\x28\xb5\x2f\xfd packed by zstd", 2, "unpack"),
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


SCRIPTS = [
    paths.jobs() / "launch.sh",
    *paths.jobs().glob("*.sbatch"),
    *(paths.root() / "companions").glob("*/*.sbatch"),
    *(paths.root() / "env/ondemand/template").glob("*.erb"),
    paths.root() / "hpc_utils/launch/job_environment.sh.j2",
]


def own_messages(script: Path) -> list[str]:
    """What `script` says when it stops: `echo "..." >&2`, `hpc_stop "..."` or that of Jinja, `${name:?...}`."""
    text = script.read_text()
    told = re.findall(r'echo "([^"]+)" >&2', text.replace('"error: $1"', "")) + re.findall(
        r'hpc_stop "([^"]+)"', text
    )
    rendered = re.findall(r"hpc_stop {{ \((.+)\) \| quote }}", text)
    joined = ["".join(re.findall(r'"([^"]*)"', parts)) for parts in rendered]
    needed = [
        f"{script.name.removesuffix('.erb')}: line 9: {name}: {why}"
        for name, why in re.findall(r"\$\{(\w+):\?([^}]+)}", text)
    ]
    return [*told, *joined, *needed]


def test_each_message_with_which_a_job_of_this_project_stops_is_recognised() -> None:
    messages = {script.name: own_messages(script) for script in SCRIPTS}
    assert len(messages["launch.sh"]) == 2 and len(messages["after.sh.erb"]) == 2
    assert len(messages["job_environment.sh.j2"]) == 5
    silent = [message for texts in messages.values() for message in texts if first(message) in ("", "unknown")]
    assert silent == []


def test_a_folder_is_all_of_its_logs(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("gloo: Connection closed by peer\n")
    (tmp_path / "rank1.log").write_text("epoch 1\nepoch 2\nRuntimeError: CUDA error: invalid device ordinal\n")
    done = CliRunner().invoke(cli.main, ["diagnose", str(tmp_path)])
    assert done.exit_code == 1 and f"{tmp_path}/rank1.log:3: " in done.output.splitlines()[1]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("bash: apptainer: command not found", 1),
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


OOM = "torch.OutOfMemoryError: CUDA out of memory"
STEPS = "".join(f"step {step} loss 0.{step}\n" for step in range(100, 105))


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("OSError: [Errno 28] No space left on device", "OSError: [Errno 28] No space left on device"),
        (f"{TRACEBACK}:\n  File x\njob.UnknownThing: no", "job.UnknownThing: no"),
        ("gloo: Connection closed by peer", OOM),
        ("srun: error: n1: task 1: Exited with exit code 1", OOM),
    ],
)
def test_what_was_survived_is_a_hint_beside_what_ends_the_run(end: str, text: str) -> None:
    findings = symptoms.diagnose([("log", io.BytesIO(f"{OOM}\n{STEPS}{end}\nfailed (exitcode: 1)\n".encode()))])
    assert findings[0].text == text
    assert (findings[-1].kind == symptoms.Kind.HINT) == (text != OOM)


def test_a_rank_that_failed_while_another_went_on_is_the_cause() -> None:
    cause = symptoms.first_cause(f"[rank1]: {OOM}\n{STEPS}[rank0]: OSError: [Errno 28] No space left on device\n")
    assert cause.rank == "[rank1]:"


def test_the_last_of_two_exceptions_between_which_a_run_goes_on_is_the_cause() -> None:
    assert symptoms.first_cause(f"ValueError: x\n{STEPS}TypeError: y\n").text == "TypeError: y"


ENDED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-21T09:00:00 DUE TO {} ***\n"


@pytest.mark.parametrize("why", ["PREEMPTION", "JOB REQUEUE", "TIME LIMIT"])
def test_a_job_that_was_ended_and_then_finished_in_the_same_log_did_not_fail(why: str) -> None:
    ended = f"Resuming from a checkpoint\n{STEPS}{ENDED.format(why)}srun: error: n1: task 0: Killed\n"

    def first_kind(log: str) -> symptoms.Kind:
        return symptoms.diagnose([("log", io.BytesIO(log.encode()))])[0].kind

    assert first_kind(ended + STEPS) == symptoms.Kind.END
    assert first_kind(f"{ended}Training finished\n") == symptoms.Kind.END
    assert first_kind(f"{ended}{STEPS}Training finished\n") == symptoms.Kind.HINT
    assert first_kind(f"{ended}Resuming from a checkpoint\n{STEPS}") == symptoms.Kind.HINT
    again = f"{ended}Resuming from a checkpoint\n{STEPS}"
    assert first_kind(again + ENDED.format(why)) == symptoms.Kind.END
    assert first(f"{again}{OOM}\n") == "gpu-memory"


def test_a_line_is_quoted_in_its_own_language() -> None:
    line = "bash: Zeile 3: foo: Kommando nicht gefunden."
    assert symptoms.first_cause(line).text == line and first(line) == "environment"


def test_consequences_of_a_known_cause_are_not_listed() -> None:
    log = f"{TRACEBACK}:\n  File x\n{OOM}\nsrun: error: n1: task 1: Exited with exit code 1\n"
    done = CliRunner().invoke(cli.main, ["diagnose", "-"], input=log)
    assert done.exit_code == 1 and "beside it" not in done.output


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
        ("socket.gaierror: [Errno -2] Name or service not known", "host-not-found"),
        ("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 4.9e-05}", "loss-nan"),
    ],
)
def test_a_line_shows_its_own_cause(line: str, name: str) -> None:
    assert first(line) == name
