"""The first cause of a failure in logs of Slurm, torchrun and MPI, by the symptoms of `symptoms.toml`.

Many lines of such a log match: the cause, and what follows from it on other ranks, which is often written before. The
kind of a symptom therefore counts before its place. An error that is no known symptom is the cause if no consequence
stands before it.
Where the log goes on with finite losses, the job has not failed: what stands before them is a hint.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import BinaryIO

from hpc_utils import toml_config

_LONGEST = 1 << 16  # bytes of a line
_REMEMBERED = 100_000  # harmless lines
_KEPT = 1000  # lines of one symptom
# What launchers put before a rank's line: `[rank3]:`, `[default0]:`, `[1,3]<stderr>:`, `3: `, `(worker pid=7,
# ip=...)`
_TAG = r"(?:\[[a-z]*\d[\w, |]*\](?:<\w+>)?:?|\d+:|\(\w*\s?\w* ?pid=\d+[^)]*\))"
_START = rf"^(?:[\w.-]*[:/][\w./:-]* )?(?:{_TAG}\s*)*"
_RANK = re.compile(rf"\s*({_TAG})")
_EXCEPTION = re.compile(
    rf"{_START}(?:\w+\.)*(?:_?[A-Z]\w*(?:Error|Exception|Failure|Expired|Interrupt)|Exception|gaierror)(?::(?! *[-+]?\d*\.\d)|$)"
)
_FAILURE = re.compile(
    rf"{_START}(?:FATAL|Fatal|fatal|ERROR|Error|error)\]?: (?! *(?:[-+]?\d*\.\d|0\b|[Nn]one\b|null|false))"
    r"|(?:srun|slurmstepd|mpirun|mpiexec|prterun): error|tasks? [-\d, ]+: (?:Aborted|Terminated)|core dumped|can't open file"
    r"|Traceback \(most recent call last\)|HYD[UT]_|find the specified executable|forrtl: severe|Fortran runtime error|Execution halted|OMP: Error"
    r"|Failed to connect to GCS|Error executing job with overrides|terminate called|BAD TERMINATION|non-zero (?:exit code|status)|exitcode\s*: -?[1-9]|(?:on|by|received) signal \d|EXIT CODE: \d|(?:exit code:?|return code =) -?[1-9]|\*\*\* STEP \S+ ON \S+ CANCELLED"
)
# Exceptions that only pass on the failure of another process
_PASSED_ON = re.compile(
    r"(EOF|BrokenPipe|ConnectionReset|CalledProcess|ChildFailed|DistBackend|DistNetwork|DistStore)Error"
    r"|(Signal|ProcessExited|ProcessRaised)Exception|Caught \w+ in "
)
# Source lines of a traceback, traced commands, what Ray lists as possible, and what NCCL, pip and Slurm report
# although nothing failed
_NO_EVIDENCE = re.compile(
    rf"^\s*(?:{_TAG}\s*)*(?:[│+#]|>\s{3}|File \"|(?:raise|except|return|if|elif|assert|print)\b|logger\.)|NCCL INFO(?!.*no socket)"
    r"|\[W[^\]]*(?:socket|TCPStore)\.cpp(?!.*gai error)|pip's dependency resolver"
    r"|some potential root causes|SIGKILL by OOM killer due|due to SIGSEGV or|error: spank|error: x11|not a git repository|task/cgroup: unable to add"
)
# A line without any of these words, in lower case, shows no symptom: most lines are not searched further.
_WORDS = re.compile(
    "abort|access|address|alloc|ancdata|assert|bad interp|barrier|became|being run|binding|cancel|clients|code =|compatible|conda|connect"
    "|cuda|died|divide|does not know|denied|dest_addr|did not answer|does not exist|driver|due to|dump|duplicate|eaddr|err|exceed|exception|execv|exit|expect|expire|fail|fallen"
    "|fatal|fetch|find the spec|fork|found|free|global rank|grp|halted|hint:|hyd|illegal|inconsistent|initialized|invalid|ipc|is inf|is nan|kernel|key|kill"
    "|jupyterlab|launch|local.rank|lost|limit|maxsubmit|machine only|make(uv)?device|memlock|memory|mismatch|module|mpi|nan|nccl|neither|no such|not_ready|net/ib|no kernel"
    "|no jobs/|no locks|no space|non-?finite|non-zero|ofi|oom|open|output|peer|pipe|pmi|pml|preamble|quota|read-only|ready|receive grad|reduction"
    "|refuse|rendezvous|reset|root|rout|same param|scale|segm|severe|shm|shut|sig|slots|slurm|srun|ss_family|stale|step creation"
    "|straggler|submitted|symbol|term_|terminat|thread|time.?out|timed out|torch sees|traceback|transport|truncat|unable"
    "|uncorrectable|unhandled|unknown param|unreach|unexpected|used by|variable is not|weights|worker|world.?size|xid"
)
_DIGITS_MATTER = re.compile("signal|code|gai|world.?size")  # in lower case
_LOSS = re.compile(r"[Ll]oss\W{1,4}\d")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = "During handling of the above exception"
# What a program catches to go on; where another exception follows, that is the one that ended it.
_CONTROL_FLOW = re.compile(
    rf"{_START}(?:\w+\.)*_?(?:Key|Attribute|Index|Lookup|Import|ModuleNotFound)Error\b|.*\b(?:Empty|StopIteration)\b"
)
_RAISED = re.compile(rf"{_START}[\w.]*[A-Za-z_]\w*(?:: |$)")  # the line after a traceback's indented ones
_GZIP = b"\x1f\x8b"
_WATCHDOG = re.compile(r"\[Rank (\d+)\].*SeqNum=(\d+), OpType=(\w+)")


class SymptomError(ValueError):
    """The catalogue is invalid."""


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


_GOES_ON = (Kind.CAUSE, Kind.KILL, Kind.UNKNOWN)  # are hints if losses follow the last sign of a failure
_OPTIONAL = ("environment", "no-internet", "permission")  # are hints if losses follow them


class Symptom(toml_config.Strict):
    """A symptom of the catalogue; `symptoms.toml` explains its fields."""

    title: str
    patterns: tuple[str, ...]
    fix: str
    source: str
    kind: Kind = Kind.CAUSE
    here: str = ""
    state: str = ""
    report: str = ""
    example: str = ""


@dataclass
class Finding:
    """A symptom in a log.

    Attributes:
        name: in the catalogue. log, line: its first line there, whose text is `text`. rank: what stands before it,
            such as `[rank3]:`.
        kind: of the symptom, or for this place in the log. lines: the first of all that match. times: how many match.
            last: the last line.
    """

    name: str
    symptom: Symptom
    log: str
    line: int
    text: str
    rank: str
    kind: Kind
    lines: list[str] = field(default_factory=list)
    times: int = 0
    last: int = 0

    @property
    def is_known(self) -> bool:
        return self.name in catalogue()

    @property
    def fix(self) -> str:
        """What to do, with the rank that is behind where a collective timed out."""
        return "; ".join(filter(None, [_behind(self.lines), self.symptom.fix]))


@cache
def catalogue() -> Mapping[str, Symptom]:
    """The symptoms by name.

    Raises:
        SymptomError: an entry is invalid.
    """
    return toml_config.read_tables(Path(__file__).with_suffix(".toml"), Symptom, SymptomError)


def diagnose(logs: Iterable[tuple[str, BinaryIO]], *, failed: bool = False) -> list[Finding]:
    """What (name, file) of `logs` show, each symptom once: the first cause first, warnings last; empty if nothing
    failed.

    `failed`: the job is known to have failed, whatever losses other ranks report after the cause.
    """
    findings = [finding for name, file in logs for finding in _scan(name, _decoded(file), failed)]
    for finding in findings:
        before = {earlier.name for earlier in findings if _precedes(earlier, finding)}
        if finding.name == "exception" and finding.kind != Kind.HINT and not before - {"failure", "exit"}:
            finding.kind = Kind.END
        if finding.kind == Kind.KILL and before & {
            "collective-timeout",
            "exit",
            "cancelled",
        }:  # then the launcher ended it
            finding.kind = Kind.UNKNOWN
        if finding.name == "cancelled" and "exit" in before:  # then srun ended it, because another task had failed
            finding.kind = Kind.UNKNOWN
    order = list(Kind)
    merged = dict[str, Finding]()
    for finding in sorted(findings, key=lambda finding: (order.index(finding.kind), finding.line)):
        if (first := merged.setdefault(finding.name, finding)) is not finding:
            first.times += finding.times
            first.lines += finding.lines
    return list(merged.values())


def first_cause(text: str, *, failed: bool = False) -> Finding | None:
    """The first cause in the text of one log, as `diagnose` finds it; None if nothing failed."""
    return next(iter(diagnose([("log", io.BytesIO(text.encode()))], failed=failed)), None)


def _precedes(earlier: Finding, later: Finding) -> bool:
    """Whether `earlier` shows that something had failed before on the rank of `later`, or on all."""
    same_rank = earlier.log == later.log and (earlier.rank == later.rank or not (earlier.rank and later.rank))
    return (
        same_rank and earlier.line < later.line and earlier.kind in (Kind.KILL, Kind.EFFECT, Kind.VAGUE, Kind.UNKNOWN)
    )


def _decoded(file: BinaryIO) -> BinaryIO:
    """`file`, unpacked if it is gzip's, and as UTF-8 if it is UTF-16, as PowerShell writes."""
    buffered = file if hasattr(file, "peek") else io.BufferedReader(file)
    if buffered.peek(2)[:2] == _GZIP:
        buffered = io.BufferedReader(gzip.GzipFile(fileobj=buffered))
    head = buffered.peek(64)[:64]
    is_marked = head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    is_of_ascii = len(head) > 2 and not any(head[1::2]) and all(head[::2])
    if not is_marked and not is_of_ascii:
        return buffered
    text = buffered.read().decode("utf-16" if is_marked else "utf-16-le", errors="replace")
    return io.BytesIO(text.encode())


def _scan(log: str, file: BinaryIO, failed: bool) -> list[Finding]:
    findings: dict[tuple[str, str], Finding] = {}
    raising: set[str] = set()  # the ranks whose traceback's last line is still to come
    harmless: dict[bytes, bool] = {}  # lines without their digits, which a training log repeats: whether with a loss
    next_number = 1
    loss = 0
    while line := file.readline(_LONGEST):
        line_number = next_number
        next_number = next_number + line.endswith(b"\n")
        alike = line.translate(None, b"0123456789")
        if (with_loss := harmless.get(alike)) is not None:
            loss = line_number if with_loss else loss
            continue
        text = _COLOURS.sub("", line.decode(errors="replace"))
        tag = _RANK.match(text)
        rank = tag.group(1) if tag else ""
        name = _name(text)
        if _TRACEBACK in text:
            raising.add(rank)
        elif rank in raising and re.match(r" ?\S", text[tag.end() if tag else 0 :]):
            raising.discard(rank)
            name = name or ("exception" if _RAISED.match(text) else None)
        caught = findings.get(("exception", rank))
        if caught and _CHAINED in text and _CONTROL_FLOW.match(caught.text):
            del findings["exception", rank]
        if name is None:
            with_loss = _LOSS.search(text) is not None
            loss = line_number if with_loss else loss
            if len(harmless) < _REMEMBERED and not _DIGITS_MATTER.search(text.lower()):
                harmless[alike] = with_loss
            continue
        if (finding := findings.get((name, rank))) is None:
            symptom = catalogue().get(name, _UNKNOWN)
            visible_text = text.rstrip().rpartition("\r")[2].strip()
            finding = findings[name, rank] = Finding(
                name, symptom, log, line_number, visible_text, rank, symptom.kind
            )
        finding.times += 1
        finding.last = line_number
        if len(finding.lines) < _KEPT:
            finding.lines.append(text)
    last = max((finding.last for finding in findings.values() if finding.kind != Kind.HINT), default=0)
    for finding in () if failed else findings.values():
        if (finding.name in _OPTIONAL and finding.last < loss) or (finding.kind in _GOES_ON and last < loss):
            finding.kind = Kind.HINT
    return list(findings.values())


def _name(line: str) -> str | None:
    """The symptom that a line shows; for an unknown one `exception`, `exit` (of a task of srun) or `failure`; None
    for no failure."""
    if not _WORDS.search(line.lower()) or _NO_EVIDENCE.search(line):
        return None
    name = next((name for name, pattern in _patterns() if pattern.search(line)), None)
    if name is None and _EXCEPTION.match(line):
        return "failure" if _PASSED_ON.search(line) else "exception"
    if name is None and "Exited with exit code" in line:
        return "exit"
    return name or ("failure" if _FAILURE.search(line) else None)


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    return [(name, re.compile("|".join(symptom.patterns))) for name, symptom in catalogue().items()]


def _behind(lines: Iterable[str]) -> str:
    """Which rank waits in another collective than most, from the lines of NCCL's watchdog; "" if none does."""
    first: dict[str, str] = {}
    for rank, number, operation in (match.groups() for line in lines if (match := _WATCHDOG.search(line))):
        first.setdefault(rank, f"{operation} number {number}")
    most_common = Counter(first.values()).most_common(1)
    outliers = {rank: where for rank, where in first.items() if where != most_common[0][0]}
    if not outliers:
        return ""
    ranks = ", ".join(f"rank {rank} waits in {where}" for rank, where in sorted(outliers.items())[:4])
    return f"{ranks}, the others in {most_common[0][0]}: look there first"


_UNKNOWN = Symptom(
    title="Not recognised: an error of the program itself, or one that is not in the catalogue",
    patterns=(),
    fix="read the log from this line upwards",
    source="",
    kind=Kind.UNKNOWN,
)
