"""The index of a study, `results/studies/<name>.json`: a launcher writes its plan there, and the analysis reads it."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, field_validator

from hpc_utils import paths, toml_config
from hpc_utils.toml_config import Strict

from . import atomic

VERSION = 1
CLUSTERS = "clusters"


class Targets(Strict):
    """The targets of a study.

    Attributes:
        strong_efficiency: lower bound of the efficiency of strong scaling on `strong_ranks` ranks (None, in a study file "none": no
            such target).
        weak_variation: upper bound of the variation of the step time in weak scaling up to `weak_ranks` ranks (likewise).
        sensitivity_gain: lower bound of the relative throughput gain of a full factorial's best point.
        accuracy_margin, loss_margin: largest differences of accuracy (a share) and final loss (relative) at which a
            faster run counts as equal to the plain run.
    """

    strong_efficiency: float = Field(0.7, gt=0)
    strong_ranks: int | None = Field(8, ge=2)
    weak_variation: float = Field(0.1, gt=0)
    weak_ranks: int | None = Field(8, ge=2)
    sensitivity_gain: float = Field(0.2, gt=0)
    accuracy_margin: float = Field(0.005, gt=0)
    loss_margin: float = Field(0.05, gt=0)

    @field_validator("strong_ranks", "weak_ranks", mode="before")
    @classmethod
    def _none(cls, value: object) -> object:
        return None if value == "none" else value  # TOML has no null


class Series(Strict):
    """Runs that differ in rank count and in the values of `matrix`, at most `ranks_per_node` on a node even where more fit."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    notebook: str
    ranks: list[int] = Field(min_length=1)
    ranks_per_node: int | None = Field(None, ge=1)
    parameters: dict[str, Any] = Field({})
    matrix: dict[str, list[Any]] = Field({})


class ReportChapter(Strict):
    """A chapter of the report; with `run`, the executed notebook of the first run that matches."""

    notebook: str
    run: dict[str, Any] | None = None


class Step(Strict):
    """One change of an ablation: the options that it sets, and why."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    parameters: dict[str, Any] = Field(min_length=1)
    about: str = Field(min_length=1)


class MeasuredStep(Step):
    """A step with its series: the change alone, and all changes `upto` it (None with the reason `why` if it cannot run)."""

    alone: str
    upto: str | None = None
    why: str = ""


class AblationIndex(Strict):
    """The series of an ablation: the plain loop, and each step's."""

    plain: str
    ranks: int = 1
    parameters: dict[str, Any] = Field({})
    steps: list[MeasuredStep]


class StudyRun(Strict):
    """One run of a study. A run may belong to several series."""

    run_id: str
    series: str = ""
    ranks: int = 1
    repeat: int = 1
    parameters: dict[str, Any] = Field({})


class NotApplicable(Strict):
    """A configuration that cannot run where the study runs, and why."""

    series: str
    ranks: int
    values: dict[str, Any]
    why: str


class StudyIndex(Strict):
    """The index of a study, and the command that runs it after those of `setup`. In the file, the ablation is called `ladder`,
    as in study files. `reference`: the run that others are compared with, if it states one."""

    model_config = ConfigDict(populate_by_name=True)

    version: int = Field(VERSION, ge=1, le=VERSION)
    name: str = ""
    command: str = ""
    setup: list[str] = Field([])
    title: str = ""
    about: str = ""
    chapters: list[ReportChapter] = Field([])
    targets: Targets = Field(Targets())
    precision: float | None = None
    reference: str = ""
    ablation: AblationIndex | None = Field(None, alias="ladder")
    not_applicable: list[NotApplicable] = Field([])
    runs: list[StudyRun]

    @property
    def run_ids(self) -> set[str]:
        return {run.run_id for run in self.runs}

    @property
    def file(self) -> Path | None:
        """The study file that its command names, if it is here."""
        shipped = paths.study_files()
        files = (shipped.get(word, Path(word)) for word in shlex.split(self.command))
        return next(filter(Path.is_file, files), None)

    @property
    def ranks(self) -> dict[str, set[int]]:
        """The planned rank counts of "strong" and "weak" scaling, by the batch that is fixed; those that cannot run here included."""
        unrunnable_ranks = {point.ranks for point in self.not_applicable}
        ranks_by_kind = {}
        for kind, fixed in (("strong", "global_batch"), ("weak", "batch_per_device")):
            kind_ranks = {run.ranks for run in self.runs if run.parameters.get(fixed)}
            ranks_by_kind[kind] = kind_ranks and kind_ranks | unrunnable_ranks
        return ranks_by_kind

    @property
    def scaling_targets(self) -> Targets:
        """The targets, without those at rank counts that the study's curves do not contain."""
        targets = self.targets
        strong, weak = self.ranks.values()
        without = {"strong_ranks": None} if targets.strong_ranks not in strong else {}
        without |= {"weak_ranks": None} if max(weak, default=0) < (targets.weak_ranks or math.inf) else {}
        return targets.model_copy(update=without)

    def write(self) -> None:
        atomic.write_json(study_index(self.name), self.model_dump(mode="json", by_alias=True))


class UnknownStudy(LookupError):
    """No study of that name has been run with these results."""

    exit_code = 2


def study_index(name: str, results: Path | None = None) -> Path:
    """The path of a study's index."""
    return Path(results or paths.results()) / "studies" / f"{name}.json"


def index_folder(name: str, results: Path | None = None) -> Path:
    """The folder of the files that a study was planned from: its own, own code, and in `CLUSTERS` that of the cluster."""
    return study_index(name, results).with_suffix("")


def read_study(name: str, results: Path | None = None) -> StudyIndex:
    """The index of a study, also by the path of its file.

    Raises:
        UnknownStudy: the study was never run with these results, or its index is damaged.
    """
    name = Path(name).stem if name.endswith(".toml") else name
    path = study_index(name, results)
    try:
        return StudyIndex.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        study_names = paths.study_files().keys()
        measured = {file.stem for file in path.parent.glob("*.json")}
        remedy = (
            f"`hpc study run {name}` makes it"
            if name in study_names
            else toml_config.hint(name, measured or study_names)
        )
        if submitted := sorted(index for index in measured if index.startswith(f"{name}-")):
            remedy = f"submitted to a cluster it is {' or '.join(submitted)}"
        raise UnknownStudy(f"no study {name!r} in {path.parent}: {remedy}") from None
    except (ValidationError, OSError):
        raise UnknownStudy(f"{path} is damaged: `hpc study run {name}` writes it again") from None


def studies(results: Path | None = None) -> list[StudyIndex]:
    """All studies of a result set, by name."""
    files = sorted(study_index("*", results).parent.glob("*.json"))
    return [read_study(path.stem, results) for path in files]
