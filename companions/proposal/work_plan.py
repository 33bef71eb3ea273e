"""A proposal's work plan: packages and milestones by month, from `paper/plan.toml`, and their tables.

[[package]]
id = "WP1"
title = "Port and verify"
start = 1              # month, the first is 1
months = 2
effort_pm = 1.0        # person-months
deliverable = "..."
studies = ["baseline"] # of jobs/studies
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pydantic import Field, model_validator

from hpc_utils import toml_config
from hpc_utils.toml_config import Strict


class PlanError(ValueError):
    """The work plan cannot be read, or contradicts itself."""

    exit_code = 2


class Package(Strict):
    """A work package. `start`: its first month, the project's first is 1; `effort_pm`: person-months; `studies`: of jobs/studies."""

    id: str = Field(pattern=r"^WP[1-9][0-9]?$")
    title: str = Field(min_length=1)
    start: int = Field(ge=1)
    months: int = Field(ge=1)
    effort_pm: float = Field(gt=0, allow_inf_nan=False)
    deliverable: str = Field(min_length=1)
    studies: list[str] = Field([])

    @property
    def end(self) -> int:
        """Its last month."""
        return self.start + self.months - 1


class Milestone(Strict):
    """What is reached by the end of `month`."""

    id: str = Field(pattern=r"^M[1-9][0-9]?$")
    title: str = Field(min_length=1)
    month: int = Field(ge=1)


class WorkPlan(Strict):
    """`months`: of the whole; `contingency`: of the computing time, requested above the upper end of the prediction."""

    months: int = Field(ge=1)
    contingency: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    package: list[Package] = Field(min_length=1)
    milestone: list[Milestone] = Field([])

    @model_validator(mode="after")
    def _consistent(self) -> WorkPlan:
        ends = [(package.id, package.end) for package in self.package]
        ends += [(milestone.id, milestone.month) for milestone in self.milestone]
        if late := [name for name, month in ends if month > self.months]:
            raise ValueError(f"{', '.join(late)}: later than month {self.months}, the last")
        if repeated := {study for study in self.studies if self.studies.count(study) > 1}:
            raise ValueError(f"{', '.join(sorted(repeated))}: a study belongs to one package")
        return self

    @property
    def studies(self) -> list[str]:
        """What is computed, in the order of the packages."""
        return [study for package in self.package for study in package.studies]


def read_work_plan(path: Path) -> WorkPlan:
    """The work plan at `path`.

    Raises:
        FileNotFoundError: there is no such file.
        PlanError: it is wrong; one line per fault, with file and place.
    """
    return toml_config.read_toml(path, WorkPlan, PlanError)


def total_table(plan: WorkPlan) -> pd.DataFrame:
    """The whole plan in one row: months, packages, effort_pm (person-months)."""
    effort = sum(package.effort_pm for package in plan.package)
    return pd.DataFrame([{"months": plan.months, "packages": len(plan.package), "effort_pm": effort}])


def package_table(plan: WorkPlan) -> pd.DataFrame:
    """A row for each package, as a proposal prints it: Package, Months, Person-months, Studies, Deliverable."""
    return pd.DataFrame(
        {
            "Package": f"{package.id} {package.title}",
            "Months": f"{package.start}–{package.end}" if package.months > 1 else str(package.start),
            "Person-months": f"{package.effort_pm:g}",
            "Studies": ", ".join(package.studies) or "none",
            "Deliverable": package.deliverable,
        }
        for package in plan.package
    )


def month_table(plan: WorkPlan) -> pd.DataFrame:
    """The data of the Gantt chart: id, title, start, end (first and last month), kind, effort_pm."""
    packages = [
        (package.id, package.title, package.start, package.end, "package", package.effort_pm)
        for package in plan.package
    ]
    milestones = [
        (milestone.id, milestone.title, milestone.month, milestone.month, "milestone", None)
        for milestone in plan.milestone
    ]
    return pd.DataFrame(packages + milestones, columns=["id", "title", "start", "end", "kind", "effort_pm"])
