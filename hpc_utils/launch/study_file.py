"""Study files (`jobs/studies/<name>.toml`), which say what a study measures.

`[parameters]` are shared by all runs. Each of `[[series]]` has a notebook, a list of `ranks`, its own `parameters` and a
`matrix` of values to combine; `[ladder]` is an ablation (`launch.ablation`), `ladder_of` the study whose ablation it uses;
`[targets]` are its targets. With `precision`, the half-width of its headline ratios' intervals, it makes further repeats: up
to `at_most`, and until `minutes` are over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from hpc_utils import paths, toml_config
from hpc_utils.records.study import ReportChapter, Series, Targets
from hpc_utils.toml_config import Strict

from .ablation import Ablation


class StudyError(ValueError):
    """A study file is missing or wrong; the message has the file, the key and the allowed values."""

    exit_code = 2


class Study(Strict):
    """A study file's content."""

    title: str
    about: str = ""
    repeats: PositiveInt = 1
    precision: PositiveFloat | None = None
    at_most: PositiveInt = 8
    minutes: PositiveFloat | None = None
    parameters: dict[str, Any] = Field({})
    series: list[Series] = Field([])
    ablation: Ablation | None = Field(None, alias="ladder")
    ladder_of: str = ""
    chapters: list[ReportChapter] = Field([])
    targets: Targets = Targets()

    @model_validator(mode="after")
    def _runs_something(self) -> Study:
        if self.ablation and self.ladder_of:
            raise ValueError("a study has a [ladder] or a `ladder_of`, not both")
        if not (self.series or self.ablation or self.ladder_of):
            raise ValueError("nothing to run: a study has [[series]], a [ladder] or a `ladder_of`")
        return self


def read_study_file(name: str) -> Study:
    """The study `name`, of `paths.study_files`, or the study file at that path.

    Raises:
        StudyError: no such study, or a wrong file.
    """
    study = _read(name)
    if not study.ladder_of:
        return study
    if not (ablation := _read(study.ladder_of).ablation):
        raise StudyError(f"{name}: ladder_of: the study {study.ladder_of!r} has no [ladder]")
    return study.model_copy(update={"ablation": ablation})


def study_path(name: str) -> Path:
    """Where the study file `name` is."""
    return paths.study_files().get(name, Path(name))


def _read(name: str) -> Study:
    known_studies = paths.study_files()
    if not name.endswith(".toml") and name not in known_studies:
        raise StudyError(f"no study {name!r}: {toml_config.hint(name, known_studies)} (or give a path to a .toml)")
    try:
        return toml_config.read_toml(study_path(name), Study, StudyError)
    except FileNotFoundError:
        raise StudyError(f"no file {name}") from None
