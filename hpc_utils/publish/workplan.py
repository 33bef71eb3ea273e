"""A proposal's work plan: packages and milestones by month, from `paper/plan.toml`; as tables, and as a Gantt chart.

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
from matplotlib import pyplot as plt
from pydantic import Field, model_validator

from hpc_utils import toml_config
from hpc_utils.toml_config import Strict

from .plots import drawing, style
from .plots.chart import Chart


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


class Plan(Strict):
    """`months`: of the whole; `contingency`: of the computing time, requested above the upper end of the prediction."""

    months: int = Field(ge=1)
    contingency: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    package: list[Package] = Field(min_length=1)
    milestone: list[Milestone] = Field([])

    @model_validator(mode="after")
    def _consistent(self) -> Plan:
        ends = [(one.id, one.end) for one in self.package] + [(one.id, one.month) for one in self.milestone]
        if late := [name for name, month in ends if month > self.months]:
            raise ValueError(f"{', '.join(late)}: later than month {self.months}, the last")
        if twice := {name for name in self.studies if self.studies.count(name) > 1}:
            raise ValueError(f"{', '.join(sorted(twice))}: a study belongs to one package")
        return self

    @property
    def studies(self) -> list[str]:
        """What is computed, in the order of the packages."""
        return [study for one in self.package for study in one.studies]


def read(path: Path) -> Plan:
    """The work plan at `path`.

    Raises:
        FileNotFoundError: there is no such file.
        PlanError: it is wrong; one line per fault, with file and place.
    """
    return toml_config.read(path, Plan, PlanError)


def total(plan: Plan) -> pd.DataFrame:
    """The whole plan in one row: months, packages, effort_pm (person-months)."""
    effort = sum(one.effort_pm for one in plan.package)
    return pd.DataFrame([{"months": plan.months, "packages": len(plan.package), "effort_pm": effort}])


def table(plan: Plan) -> pd.DataFrame:
    """A row for each package, as a proposal prints it: Package, Months, Person-months, Studies, Deliverable."""
    return pd.DataFrame(
        {
            "Package": f"{one.id} {one.title}",
            "Months": f"{one.start}–{one.end}" if one.months > 1 else str(one.start),
            "Person-months": f"{one.effort_pm:g}",
            "Studies": ", ".join(one.studies) or "none",
            "Deliverable": one.deliverable,
        }
        for one in plan.package
    )


def frame(plan: Plan) -> pd.DataFrame:
    """The data of the Gantt chart: id, title, start, end (first and last month), kind, effort_pm."""
    bars = [(one.id, one.title, one.start, one.end, "package", one.effort_pm) for one in plan.package]
    marks = [(one.id, one.title, one.month, one.month, "milestone", None) for one in plan.milestone]
    return pd.DataFrame(bars + marks, columns=["id", "title", "start", "end", "kind", "effort_pm"])


def gantt(plan: Plan) -> Chart:
    """A bar for each package over its months; milestones as diamonds at the end of their month, in a row below."""
    data, months, colour = frame(plan), range(1, plan.months + 1), style.ROLES["milestone"]
    bars, marks = data[data.kind == "package"], data[data.kind == "milestone"]
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.6 + 0.24 * (len(bars) + 1)))
    width = bars.end - bars.start + 1
    drawn = axes.barh(bars.id + "  " + bars.title, width, left=bars.start - 1, height=0.55, color=style.ROLES["main"])
    axes.bar_label(drawn, bars.effort_pm.map("{:g} pm".format), label_type="center", color="white", fontsize=7)
    axes.plot(marks.end, ["Milestones"] * len(marks), "D", color=colour, markersize=6, clip_on=False)
    for mark in marks.itertuples():
        axes.axvline(mark.end, color=colour, linewidth=0.6, linestyle=":", zorder=0)
        drawing.near(axes, mark.id, (mark.end, len(bars)), (-5, 0), ha="right")
    axes.set_xticks([month - 0.5 for month in months], months)
    axes.set(xlim=(0, plan.months), xlabel="Month")
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.grid(False)
    caption = "The work plan: packages over months, with their effort in person-months (pm), and milestones."
    return Chart(figure, data, "gantt", caption)
