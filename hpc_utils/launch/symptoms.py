"""The first cause of a failure in logs of Slurm, torchrun and MPI, by the symptoms of `symptoms.toml`.

Many lines of such a log match: the cause, and what follows from it on other ranks, which is often written before. The
kind of a symptom therefore counts before its place. An error that is no known symptom is the cause if no consequence
stands before it. Of a chain of exceptions it is the first one, unless a program catches such to go on.
Where the log shows progress after an error, the job survived it: it is a hint, unless only consequences end the log. Nothing
that follows after Slurm ended the job is a cause, and nothing before if the log shows that the job continued and made progress.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import BinaryIO

from hpc_utils import toml_config

_LONGEST = 1 << 13  # bytes of a line that are searched at once: patterns take the square of it
_REMEMBERED = 100_000  # harmless lines
_KEPT = 1000  # lines of one symptom, or of a traceback
# What launchers put before a rank's line: `[rank3]:`, `[default0]:`, `[1,3]<stderr>:`, `3: `, `node3: `, `(worker pid=7,
# ip=...)`
_TAG = r"(?:\[[a-z]*\d[\w, |]*\](?:<\w+>)?:?|\d+:|[a-z][\w-]*\d: |\(\w*\s?\w* ?pid=\d+[^)]*\))"
_START = rf"^(?:\s*\| )?(?:[\w.-]*[:/][\w./:-]* )?(?:{_TAG}\s*)*"
_RANK = re.compile(rf"\s*({_TAG})")
_EXCEPTION = re.compile(
    rf"{_START}(?:\w+\.)*(?:_?[A-Z]\w*(?:Error|Exception|Failure|Expired|Interrupt)|Exception|gaierror)(?::(?! *[-+]?\d*\.\d)|$)"
)
_FAILURE = re.compile(
    rf"{_START}(?:FATAL|Fatal|fatal|ERROR|Error|error)\]?: (?! *(?:[-+]?\d*\.\d|0\b|[Nn]one\b|null|false))"
    rf"|{_START}(?:[\w+()]+ ){{1,3}}(?:FATAL|Fatal|fatal|ERROR|Error|error)\s*: (?!\W*(?:[\d.]|[Nn]one\b|null|nan|false))"
    r"|(?:srun|slurmstepd|mpirun|mpiexec|prterun): error|tasks? [-\d, ]+: Terminated|core dumped|can't open file"
    r"|HYD[UT]_|find the specified executable|forrtl: severe|Fortran runtime error|Execution halted|OMP: Error"
    r"|panicked at|^panic: |^make\S*: \*\*\*|^\w+: (?:unrecognized|invalid) option|Fatal Python error|java\.lang\.\w+Error|Failed to connect to GCS|Error executing job with overrides|terminate called|BAD TERMINATION|non-zero (?:exit code|status)|exitcode\s*: -?[1-9]|(?:on|by|received) signal \d|EXIT CODE: \d|(?:exit code:?|return code =) -?[1-9]"
    # what a shell says of a line of its script, in any language; not that a locale is missing
    r"|^(?:\S*/)?(?:-?(?:ba|da|z|k)?sh|slurm_script|\S+\.(?:sh|bash|sbatch|slurm))\s?[:：]\D{0,12}\d+\D{0,8}[:：](?!.*(?:LC_|[Ww]arn|avert|advert))"
)
# Exceptions that only pass on the failure of another process
_PASSED_ON = re.compile(
    r"(EOF|BrokenPipe|ConnectionReset|CalledProcess|ChildFailed|DistBackend|DistNetwork|DistStore|CellExecution|PapermillExecution)Error"
    r"|(Signal|ProcessExited|ProcessRaised|Checkpoint)Exception|Caught \w+ in "
)
# Source lines of a traceback, traced commands, what Ray lists as possible, and what NCCL, pip and Slurm report
# although nothing failed
_NO_EVIDENCE = re.compile(
    rf"^\s*(?:{_TAG}\s*)*(?:[│+#]|>\s{3}|File \"|(?:raise|except|return|if|elif|assert|print)\b|logger\.)|NCCL INFO(?!.*no socket)"
    r"|\[W[^\]]*(?:socket|TCPStore)\.cpp(?!.*gai error)|pip's dependency resolver"
    r"|some potential root causes|SIGKILL by OOM killer due|due to SIGSEGV or|error: spank(?!.*required)|error: x11|setlocale: |fatal: (?:not a git|detected dubious)|ld\.so: .*ignored|\(ignored\)|PMIX ERROR: ERROR in file"
    r"|slurmstepd: error: (?:task/cgroup|acct_gather|_get_joules|common_file_write|xcgroup|cpu_?freq)"
)
_TASK_ENDED = re.compile(r"Exited with exit code|: tasks? [-\d, ]+: Aborted")
_DIGITS_MATTER = re.compile("signal|code|gai|err|world.?size")  # in lower case
# Lines of a job that goes on. What a bar shows once, when it is closed, or wandb at the end, is none.
_PROGRESS = re.compile(
    r"^(?!.*wandb:)(?:(?!.*%\|)|.*100%\||.*%\|.*%\|).*(?:[Ll]oss\W{1,4}\d|\b(?:[Ee]poch|[Ss]tep|[Ii]ter(?:ation)?)\b\W{0,3}\d|\bit/s)"
)
# What a job shows that goes on after it had been ended: both, in any order
_SIGNS = {
    "progress": _PROGRESS,
    "restart": re.compile(
        r"\b[Rr]e(?:sum|stor)(?:ing|ed)\b|[Ll]oad(?:ing|ed) .*checkpoint|^\W*(?:[Aa]ll )?[Dd]one\W*$"
        r"|[Tt]raining (?:is |has )?(?:finished|completed?|done)|[Ff]inished [Tt]raining|max_\w+=\d+. reached"
    ),
}
# What a log without any other sign ends with: of a failure, though no wording of its own, or of success
_ENDING = {
    "trouble": re.compile(
        r"^(?!wandb:).*(?<![\"'=])\b(?:ERROR|FATAL|CRITICAL|ABORT|FAILED)\b(?!\W*(?:\d|=|[Nn]one|false|level))|^[EF]\d{4} |Bad config encountered|^(?:\w+ )?[Ee]rror (?:in|at|code) "
        r"|^Abort(?:ed|ing)?\b|Assertion .*failed|^(?:[Ff]ailed to|[Cc]ould not|[Cc]annot|[Uu]nable to|[Oo]ut of memory|STOP [1-9]|Usage:)|\bsubcommand failed"
        r"|\b[Ee]xiting (?:with|because|due)|\b(?:exit(?:ed)?|exiting) (?:with )?(?:code|status) -?[1-9]|received signal SIG|unsuccessful"
        r"|(?:required|needed) to run|\b(?:cuda|hip)Error\w+|\b(?:CUDA|HIP) error|GPUassert|\bfatal error|^\w+NotFound: |^SystemExit: [1-9]"
    ),
    "success": re.compile(
        r"\b(?:[Dd]one|DONE|[Ff]inished|[Cc]omplete[d]?|[Ss]uccess\w*|SUCCESS|[Ss]aved|[Aa]ccuracy|passed)\b"
    ),
}
# How Slurm, PBS and LSF end a job, with all of its processes
_VERDICT = re.compile(r"JOB \S+( ON \S+)? CANCELLED|CANCELLED AT \S+ DUE TO|TERM_\w+LIMIT|exceeded limit")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TRACEBACK = "Traceback (most recent call last)"
_CONTEXT = re.compile("(During handling of the above exception)|(Exception ignored in)|Traceback")
# What a program catches to go on; where another exception follows, that is the one that ended it.
_CONTROL_FLOW = re.compile(
    rf"{_START}(?:\w+\.)*_?(?:(?:Key|Attribute|Index|Lookup|Import|ModuleNotFound|FileNotFound)Error|Empty|StopIteration)\b"
)
_RAISED = re.compile(rf"{_START}[\w.]*[A-Za-z_]\w*(?:: |$)")  # the line after a traceback's indented ones
_UNPACK = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
_PACKED = (b"\x28\xb5\x2f\xfd", b"PK\x03\x04")  # zstd, zip
_WATCHDOG = re.compile(r"\[Rank (\d+)\].*SeqNum=(\d+), OpType=(\w+)")


class SymptomError(ValueError):
    """The catalogue is invalid, or a log is packed in a way that is not read."""

    exit_code = 2


class Kind(StrEnum):
    """From cause to consequence, as `symptoms.toml` explains; UNKNOWN: a failure that no symptom describes."""

    ORIGIN = "origin"
    CAUSE = "cause"
    END = "end"
    KILL = "kill"
    EFFECT = "effect"
    VAGUE = "vague"
    UNKNOWN = "unknown"
    HINT = "hint"


_GOES_ON = (
    Kind.CAUSE,
    Kind.KILL,
    Kind.EFFECT,
    Kind.UNKNOWN,
)  # are hints if progress follows the last sign of a failure
_CAUSES = (Kind.ORIGIN, Kind.CAUSE, Kind.END)
_YIELDING = ("exception", "environment", "package-version")  # if of control flow, to the last of a chain
_OPTIONAL = ("environment", "no-internet", "package-version", "permission")  # are hints if progress follows them


class Symptom(toml_config.Strict):
    """A symptom of the catalogue; `symptoms.toml` explains its fields."""

    title: str
    patterns: tuple[str, ...]
    fix: str
    source: str
    kind: Kind = Kind.CAUSE
    here: str = ""
    state: str = ""
    within: re.Pattern[str] | None = None
    report: str = ""
    example: str = ""

    @property
    def remedy(self) -> str:
        """The fix in a run of this project."""
        return self.here or self.fix


class Catalogue(toml_config.Strict):
    """The content of `symptoms.toml`."""

    english: dict[str, re.Pattern[str]]
    symptoms: dict[str, Symptom]


@dataclass
class Finding:
    """A symptom in a log.

    Attributes:
        name: in the catalogue. log, line: its first line there, whose text is `text`. rank: what stands before it,
            such as `[rank3]:`.
        kind: of the symptom, or for this place in the log. lines: the first of all that match, in English. times: how many
            match. last: the last line. progress: the last line before the first that shows progress.
    """

    name: str
    symptom: Symptom
    log: str
    line: int
    text: str
    rank: str
    kind: Kind
    progress: int = 0
    lines: list[str] = field(default_factory=list)
    times: int = 0
    last: int = 0

    @property
    def is_known(self) -> bool:
        return self.name in catalogue()

    @property
    def fix(self) -> str:
        """What to do, with what the lines say of a collective that timed out."""
        return "; ".join(filter(None, [_behind(self.lines), self.symptom.fix]))

    @property
    def is_consequence(self) -> bool:
        """Whether it says no more than that something failed."""
        return self.name in ("traceback", "exit")


@dataclass
class _Course:
    """The last lines so far of a log in which the job goes on; 0: none.

    progress: that shows progress. output: without a symptom. verdict: that ends the job. continued: that shows that a job
    which had been ended went on.
    """

    progress: int = 0
    output: int = 0
    verdict: int = 0
    continued: int = 0
    after_verdict: frozenset[str] = frozenset()

    def add(self, line: int, signs: frozenset[str]) -> None:
        """Count a line without a symptom, which shows `signs` of `_SIGNS`."""
        if self.verdict:
            self.after_verdict |= signs & _SIGNS.keys()
            if len(self.after_verdict) < len(_SIGNS):
                return
            self.continued = line
            self.verdict = 0
        self.output = line
        if "progress" in signs or self.continued == line:
            self.progress = line

    def end(self, line: int) -> None:
        if not self.verdict:
            self.verdict = line
            self.after_verdict = frozenset()


@dataclass
class _Traceback:
    """The lines of a traceback whose last one, with the exception, is still to come.

    `exception`: its name, where the first line says it, as IPython's does. `is_ignored`: by Python, such as one when it exits.
    """

    exception: str
    is_ignored: bool
    lines: list[str] = field(default_factory=list)

    def ends_with(self, line: str) -> bool:
        """Whether `line`, without its rank, is the last one."""
        if len(self.lines) > _KEPT:
            return True
        return line.startswith(self.exception) if self.exception else re.match(r" ?[^\s│╭╰]", line) is not None


@cache
def catalogue() -> Mapping[str, Symptom]:
    """The symptoms by name.

    Raises:
        SymptomError: an entry is invalid.
    """
    return _catalogue().symptoms


@cache
def _catalogue() -> Catalogue:
    return toml_config.read_toml(Path(__file__).with_suffix(".toml"), Catalogue, SymptomError)


def diagnose(logs: Iterable[tuple[str, BinaryIO]], *, failed: bool = False) -> list[Finding]:
    """What (name, file) of `logs` show, each symptom once: the first cause first, warnings last; empty if nothing
    failed.

    `failed`: the job is known to have failed, whatever losses other ranks report after the cause.

    Raises:
        SymptomError: a log cannot be unpacked.
    """
    findings = []
    for name, file in logs:
        try:
            findings += _scan(name, _decoded(name, file), failed)
        except (EOFError, lzma.LZMAError, zlib.error) as error:
            raise SymptomError(f"{name}: cannot be unpacked: {error}") from None
    for finding in findings:
        earlier_findings = [earlier for earlier in findings if _precedes(earlier, finding)]
        before = {earlier.name for earlier in earlier_findings}
        if (
            finding.name == "exception"
            and finding.kind != Kind.HINT
            and not before - {"failure", "exit", "traceback"}
        ):
            finding.kind = Kind.END
        launcher_ended_it = finding.kind == Kind.KILL and before & {"collective-timeout", "exit", "cancelled"}
        was_cancelled = finding.kind == Kind.EFFECT and any(
            "CANCELLED" in earlier.text for earlier in earlier_findings
        )
        srun_ended_it = finding.name == "cancelled" and "exit" in before  # because another task had failed
        if launcher_ended_it or was_cancelled or srun_ended_it:
            finding.kind = Kind.UNKNOWN
    merged = dict[str, Finding]()
    for finding in sorted(
        findings, key=lambda finding: (list(Kind).index(finding.kind), finding.name == "traceback", finding.line)
    ):
        if (first := merged.setdefault(finding.name, finding)) is not finding:
            first.times += finding.times
            first.lines += finding.lines
    return list(merged.values())


def first_cause(text: str, *, failed: bool = False) -> Finding | None:
    """The first cause in the text of one log, as `diagnose` finds it; None if nothing failed."""
    return next(iter(diagnose([("log", io.BytesIO(text.encode()))], failed=failed)), None)


def _precedes(earlier: Finding, later: Finding) -> bool:
    """Whether `earlier` shows that something had failed before on the rank of `later`, or on all."""
    is_before = _share_rank(earlier, later) and earlier.line < later.line
    return is_before and earlier.kind in (Kind.KILL, Kind.EFFECT, Kind.VAGUE, Kind.UNKNOWN)


def _decoded(name: str, file: BinaryIO) -> BinaryIO:
    """`file`, unpacked if it is of gzip, bzip2 or xz, and as UTF-8 if it is UTF-16 with its mark, as PowerShell writes."""
    buffered = file if hasattr(file, "peek") else io.BufferedReader(file)
    head = buffered.peek(64)[:64]
    if head.startswith(_PACKED):
        raise SymptomError(f"{name}: packed in a way that is not read: unpack it first")
    for start, unpack in _UNPACK.items():
        if head.startswith(start):
            buffered = unpack(buffered)
            head = buffered.peek(64)[:64]
    if head[:2] not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return buffered
    return io.BytesIO(buffered.read().decode("utf-16", errors="replace").encode())


def _scan(log: str, file: BinaryIO, failed: bool) -> list[Finding]:
    findings: dict[tuple[str, str], Finding] = {}
    tracebacks: dict[str, _Traceback] = {}  # by rank
    ignored = -1  # the last line that says that Python ignores an exception, whose traceback follows
    raised: dict[str, tuple[str, str]] = {}  # by rank: the key of the finding that its last traceback added
    harmless: dict[bytes, frozenset[str]] = {}  # lines without digits, which a training log repeats: their signs
    course = _Course()
    trouble = None  # since the last progress
    next_number = 1
    while line := file.readline(_LONGEST):
        line_number = next_number
        next_number = next_number + line.endswith(b"\n")
        line = line.replace(b"\0", b"")  # of UTF-16 without its mark, such as lines that PowerShell appends
        alike = line.translate(None, b"0123456789")
        if not tracebacks and (signs := harmless.get(alike)) is not None:
            course.add(line_number, signs)
            trouble = None if signs else trouble
            continue
        original = _COLOURS.sub("", line.decode(errors="replace"))
        visible_text = original.rstrip().rpartition("\r")[2].strip()
        text = _in_english(original)
        tag = _RANK.match(text)
        rank = tag.group(1) if tag else ""
        body = text[tag.end() if tag else 0 :]
        traceback = tracebacks.get(rank)
        name = _name(text, traceback.lines if traceback else [])
        is_last = False
        context = _CONTEXT.search(text)
        if context and context[2]:
            ignored = line_number
        if _TRACEBACK in text:
            before = body.partition(_TRACEBACK)[0].strip()
            traceback = tracebacks[rank] = _Traceback(
                before if before.isidentifier() else "", ignored == line_number - 1
            )
        elif traceback and traceback.ends_with(body):
            del tracebacks[rank]
            is_last = True
            name = name or ("exception" if _RAISED.match(text) else None)
        elif traceback:
            traceback.lines.append(text)
        if traceback and traceback.is_ignored:
            name = None
        if context and context[1] and rank in raised:
            findings.pop(raised.pop(rank), None)
        if is_last:
            raised.pop(rank, None)
        if name is None:
            signs = frozenset(sign for sign, pattern in (_SIGNS | _ENDING).items() if pattern.search(text))
            is_trouble = "trouble" in signs and "progress" not in signs and not _NO_EVIDENCE.search(text)
            if text.strip():
                course.add(line_number, signs)
            if is_trouble:
                trouble = trouble or Finding(
                    "failure", _UNKNOWN, log, line_number, visible_text, rank, Kind.UNKNOWN, times=1
                )
            elif signs - {"trouble"}:
                trouble = None
            if (
                not is_trouble
                and len(harmless) < _REMEMBERED
                and not _DIGITS_MATTER.search(text.lower())
                and not (context or is_last)
            ):
                harmless[alike] = signs
            continue
        finding = findings.get((name, rank))
        if finding is None or (name == "exception" and finding.last < course.progress):
            symptom = catalogue().get(name, _UNKNOWN)
            finding = findings[name, rank] = Finding(
                name, symptom, log, line_number, visible_text, rank, symptom.kind, course.progress
            )
            if is_last and name in _YIELDING and _CONTROL_FLOW.match(text):
                raised[rank] = (name, rank)
        if _VERDICT.search(text):
            course.end(line_number)
        finding.times += 1
        finding.last = line_number
        if len(finding.lines) < _KEPT:
            finding.lines.append(text)
    if course.verdict or not failed:
        _demote_survived(list(findings.values()), course)
    is_without_failure = all(finding.kind == Kind.HINT for finding in findings.values())
    return [*findings.values(), *([trouble] if trouble and is_without_failure else [])]


def _demote_survived(findings: list[Finding], course: _Course) -> None:
    """Make hints of what the job survived: the log goes on after it, until the job ends, is ended, or has another cause to end."""
    verdict = course.verdict
    findings = [finding for finding in findings if finding.kind != Kind.HINT]
    if verdict:
        findings = [finding for finding in findings if finding.line < verdict]
    ends = [min(finding.last, verdict or finding.last) for finding in findings]
    last = max(ends, default=0)
    causes = [finding for finding in findings if finding.kind in _CAUSES or finding.name == "exception"]
    for finding, end in zip(findings, ends, strict=True):
        is_of_shell = verdict and not _EXCEPTION.match(finding.text)
        is_optional = finding.name in _OPTIONAL and end < (course.output if is_of_shell else course.progress)
        is_outlived = last < course.progress or any(
            end < cause.progress and _share_rank(finding, cause) for cause in causes
        )
        if is_optional or end < course.continued or (finding.kind in _GOES_ON and is_outlived):
            finding.kind = Kind.HINT


def _share_rank(finding: Finding, other: Finding) -> bool:
    """Whether both are of one rank, or of one log if a launcher did not name the rank."""
    return finding.log == other.log and (finding.rank == other.rank or not (finding.rank and other.rank))


def _in_english(line: str) -> str:
    for english, pattern in _catalogue().english.items():
        line = pattern.sub(english, line)
    return line


def _name(line: str, traceback: list[str]) -> str | None:
    """The symptom that a line after the lines of a `traceback` shows; for an unknown one `exception`, `exit` (of a task of srun),
    `traceback` (its first line) or `failure`; None for no failure."""
    if _NO_EVIDENCE.search(line):
        return None
    for name, pattern, within in _patterns():
        if pattern.search(line) and (within is None or any(map(within.search, traceback))):
            return name
    if _EXCEPTION.match(line):
        return "failure" if _PASSED_ON.search(line) else "exception"
    if _TASK_ENDED.search(line):
        return "exit"
    if _TRACEBACK in line:
        return "traceback"
    return "failure" if _FAILURE.search(line) else None


@cache
def _patterns() -> list[tuple[str, re.Pattern[str], re.Pattern[str] | None]]:
    return [(name, re.compile("|".join(symptom.patterns)), symptom.within) for name, symptom in catalogue().items()]


def _behind(lines: Iterable[str]) -> str:
    """Which rank waits in another collective than most, or that all wait in the first one, from the lines of NCCL's watchdog."""
    first: dict[str, str] = {}
    for rank, number, operation in (match.groups() for line in lines if (match := _WATCHDOG.search(line))):
        first.setdefault(rank, f"{operation} number {number}")
    most_common = Counter(first.values()).most_common(1)
    outliers = {rank: where for rank, where in first.items() if where != most_common[0][0]}
    if not outliers:
        return _FIRST_COLLECTIVE if most_common and re.search(" number [01]$", most_common[0][0]) else ""
    ranks = ", ".join(f"rank {rank} waits in {where}" for rank, where in sorted(outliers.items())[:4])
    return f"{ranks}, the others in {most_common[0][0]}: look there first"


_FIRST_COLLECTIVE = (
    "the very first collective never completed: NCCL_P2P_DISABLE=1 tells whether the links between GPUs are at fault, "
    "`sbatch --exclude=NODE` whether the node is"
)
_UNKNOWN = Symptom(
    title="Not recognised: an error of the program itself, or one that is not in the catalogue",
    patterns=(),
    fix="read the log from this line upwards",
    source="",
    kind=Kind.UNKNOWN,
)
