"""Every command of every page of the site: executed, or tried without being executed.

Fences of `docs/*.md`: `sh` is executed in CI, `sh long` in `make soak`; a command that needs a cluster or a GPU says so behind `#`, and is
tried as a dry run. A fence without a language below such a block shows the output of its last command. All other commands are parsed.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hpc_utils import cli, datasets, paths, rehearsal
from hpc_utils.config import RunConfig
from hpc_utils.launch import request
from hpc_utils.paths import NoResultSet

from . import pages
from .analyze.profiles import torch_traces
from .pages import ROOT
from .support import soak

SHOWN = sorted(
    {*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("companions/*/README.md"), *ROOT.glob("docs/*.md")}
    - {ROOT / "CHANGELOG.md"}
)
TEXT = "\n".join(
    page.read_text() for page in sorted({*ROOT.glob("docs/*.md")} - {ROOT / page for page in pages.GUIDES})
)
EVERYWHERE = "\n".join(page.read_text() for page in SHOWN)
SITE = "leonardo"  # stands for NAME in a dry run
COMPANIONS = re.findall(r"\]\((\w+)/README\.md\)", (ROOT / "companions/README.md").read_text())
# Pages still mention their commands.
DELETED = {name for name in COMPANIONS if not (ROOT / "companions" / name).is_dir()}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
OUTPUTS = pages.outputs(TEXT)
ALL = pages.commands(TEXT, "sh") | pages.commands(TEXT, "sh long")
NEEDY = [
    command
    for kind in ("sh", "sh long")
    for command, about in pages.commands(EVERYWHERE, kind).items()
    if pages.NEEDS.match(about)
]


def executed(fence: str) -> list[str]:
    apart = ("make ", "source ")
    return [
        command for command in pages.commands(TEXT, fence) if command not in NEEDY and not command.startswith(apart)
    ]


@pytest.mark.timeout(1860)
@pytest.mark.parametrize("command", [*executed("sh"), *map(soak, executed("sh long"))])
def test_the_command_works(command: str, execute: Callable) -> None:
    code = re.search(r"exit code (\d+)", ALL[command])
    done = execute(command, codes=(int(code[1] if code else 0),))
    pages.require_shown(OUTPUTS.get(command, ""), done.stdout)


@pytest.mark.parametrize("command", NEEDY)
def test_what_needs_a_cluster_or_a_gpu_is_tried_as_a_dry_run(
    command: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "load", lambda *_: None)
    monkeypatch.setattr(
        request, "require_workload", lambda *_: None
    )  # tests/launch/test_shipped.py plans all studies
    monkeypatch.chdir(ROOT)
    words = shlex.split(re.sub(r" --nodes-of \w+", "", re.sub(r"\b(NAME|SITE)\b", SITE, command)))
    parse(words)
    study = next(iter(words[2:]), "")
    if words[1] == "submit" and "rehearsal" not in words and study in paths.study_files():
        words = [*(word for word in words if word not in ("--wait", "--dry-run")), "--dry-run"]
    elif words[1:3] != ["cluster", "show"] and words[1] != "plan":
        return
    done = CliRunner().invoke(cli.main, words[1:])
    assert done.exit_code == 0, done.output
    pages.require_shown(OUTPUTS.get(command, ""), done.stdout)


def test_the_diagnosis_is_the_one_that_is_shown() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    log, shown = (block for kind, block in pages.FENCE.findall(page) if kind == "text")
    done = CliRunner().invoke(cli.main, ["diagnose", "-"], input=log)
    assert done.exit_code == 1 and done.stdout == shown


def test_the_verdict_on_eight_gpus_is_the_one_that_is_shown() -> None:
    page = (ROOT / "docs/read-a-profile.md").read_text()
    (shown,) = (block for _, block in pages.FENCE.findall(page) if "straggler-bound" in block)
    done = CliRunner().invoke(cli.main, ["explain", str(torch_traces.real("8xH100-compiled"))])
    printed = [" ".join(line.split()) for line in done.stdout.splitlines()]
    verdict = re.search(r"^straggler-bound.*?\)$", shown, re.M | re.S)[0]
    for line in shown.replace(verdict, " ".join(verdict.split())).splitlines():
        assert line.strip() == "..." or " ".join(line.split()) in printed, line


def test_no_page_lets_a_chapter_write_into_a_committed_set() -> None:
    written = re.findall(r"hpc chapter [^`\n]*--results ([^\s`]+)", EVERYWHERE)
    assert written and not [name for name in written if (paths.reference() / name).is_dir()]


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_can_be_parsed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = page.read_text()
    for kind, block in pages.FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines() if kind in ("", "sh", "sh long") else ():
            command = re.split(r"\s+# |\s{2,}(?=[^-\s])|\s+[;|] ", line.strip())[0]
            if re.match(r"(\w+=\S+ )?(hpc|make|sbatch|mpiexec|python) ", command):
                parse(shlex.split(command))
    for span in re.findall(r"`((?:hpc|make|sbatch) [^`\n]+)`", pages.FENCE.sub("", text)):
        parse(shlex.split(span.partition(" > ")[0]), complete=False)


def parse(words: list[str], *, complete: bool = True) -> None:
    """Whether there are such commands, options, targets, scripts and modules. Of a mention, arguments may be missing."""
    program, *rest = [word for number, word in enumerate(words) if number or "=" not in word]
    if program == "make":
        wanted = [word for word in rest if "=" not in word and not word.startswith("-")]
        assert {*wanted} <= TARGETS, words
    elif program in ("sbatch", "mpiexec", "python", "srun"):
        script = next((number for number, word in enumerate(rest) if word.startswith(("jobs/", "companions/"))), None)
        if script is not None:
            if Path(rest[script]).parts[1] in DELETED:
                return
            assert (ROOT / rest[script]).is_file(), words
            after = [word for word in rest[script + 1 :] if word != "hello" and not word.endswith(".ipynb")]
            if rest[script].endswith(("train.sbatch", "mpi.sbatch", "trees.sbatch")):
                parse(["hpc", "run", "notebooks/02_ddp.ipynb", *after])
        elif "-m" in rest:
            module = rest[rest.index("-m") + 1]
            if module.startswith("companions.") and module.split(".")[1] in DELETED:
                return
            assert importlib.util.find_spec(module), words
    elif program == "hpc":
        _parse(rest, complete)


def _parse(words: list[str], complete: bool) -> None:
    """By click, which also calls what checks the values of options."""
    command, made = cli.main, None
    try:
        while not made or isinstance(command, click.Group):
            if made:
                _, command, words = command.resolve_command(made, [*made._protected_args, *made.args])
            if not complete and not (words and words[0].islower()) and isinstance(command, click.Group):
                return  # a group is mentioned, or COMMAND
            made = command.make_context(command.name, words, parent=made)
    except click.UsageError as error:
        text = error.format_message()
        lacks = not complete and ("Missing" in text or "requires an argument" in text)
        deleted = bool(DELETED) and ("No such option" in text or "No such command" in text)
        assert deleted or lacks or "does not exist" in text, f"hpc {words}: {text}"
        return
    except click.exceptions.Exit:  # --help
        return
    except (rehearsal.ClusterError, NoResultSet):  # it is not up; it is the reader's
        return
    is_script = str(made.params.get("notebook")).endswith(".py")  # whose other parameters are its own
    if command.name in ("run", "compute") and not is_script:
        unknown = (made.params.get("parameters") or {}).keys() - RunConfig.model_fields.keys()
        assert not unknown, words
