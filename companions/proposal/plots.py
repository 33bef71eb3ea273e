"""The work plan as a Gantt chart; what a batch allows; and published sizes of networks over time, for a pitch."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from hpc_utils.publish.plots import drawing, style
from hpc_utils.publish.plots.chart import Chart, charted

from .work_plan import WorkPlan, month_table


def gantt(plan: WorkPlan) -> Chart:
    """A bar for each package over its months; milestones as diamonds at the end of their month, in a row below."""
    data = month_table(plan)
    bars = data[data.kind == "package"]
    marks = data[data.kind == "milestone"]
    months = range(1, plan.months + 1)
    colour = style.ROLES["milestone"]
    figure, axes = plt.subplots(figsize=(style.SLIDE, 0.5 + 0.2 * (len(bars) + 1)))
    width = bars.end - bars.start + 1
    drawn = axes.barh(bars.id + "  " + bars.title, width, left=bars.start - 1, height=0.75, color=style.ROLES["main"])
    axes.bar_label(drawn, bars.effort_pm.map("{:g} pm".format), label_type="center", color="white")
    axes.plot(marks.end, ["Milestones"] * len(marks), "D", color=colour, markersize=6, clip_on=False)
    for mark in marks.itertuples():
        axes.axvline(mark.end, color=colour, linewidth=0.6, linestyle=":", zorder=0)
        drawing.near(axes, mark.id, (mark.end, len(bars)), (-5, 0), ha="right")
    axes.set_xticks([month - 0.5 for month in months], months)
    axes.set(xlim=(0, plan.months), xlabel="month")
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.grid(False)
    caption = "The work plan: packages over months, with their effort in person-months (pm), and milestones."
    return Chart(figure, data, "gantt", caption)


@charted("batch", "The efficiency of strong scaling that computing alone allows, by global batch.", intervals=False)
def batch(table: pd.DataFrame, target: float) -> Figure:
    """A panel for each workload, precision and kind of step, a line for each number of GPUs. `table`: `batches.ceilings`; target: an
    efficiency."""
    groups = table.groupby(["workload", "precision", "step"], sort=False)
    figure, panels = drawing.panel_of_each(groups, height=1.7, sharey=True)
    for axes, (workload, precision, step), rows in panels:
        drawing.lines(axes, rows, "global_batch", "ceiling", "world_size", label="{} GPUs".format)
        axes.axhline(100 * target, **style.IDEAL, label=f"target: {100 * target:g} %")
        drawing.log_axis(axes.xaxis, sorted(set(table.global_batch))[-1::-2])
        axes.set(title=f"{workload}, {precision}\n{step} steps", xlabel="samples a step, all GPUs", ylim=(0, 100))
    return figure


def models() -> Chart:
    """The parameters of published networks against the year, each with its name; the data has their sources."""
    data = pd.DataFrame(tomllib.loads(Path(__file__).with_name("models.toml").read_text())["model"])
    data["parameters"] = 1e6 * data.pop("million_parameters")
    figure, axes = plt.subplots(figsize=(style.COLUMN, 2.4))
    axes.plot(data.year, data.parameters / 1e9, "o", color=style.ROLES["main"])
    for model in data.itertuples():
        place = {"ha": "left", "xytext": (5, -3)} if model.year < 2018 else {"ha": "right", "xytext": (-5, -3)}
        if model.year == data.year.max():
            place = {"ha": "center", "xytext": (0, -12)}
        axes.annotate(model.name, (model.year, model.parameters / 1e9), textcoords="offset points", **place)
    drawing.log_axis(axes.yaxis)
    axes.set(
        xlabel="year of publication", ylabel="parameters (billions)", xlim=(data.year.min() - 1, data.year.max() + 1)
    )
    return Chart(figure, data, "models", "Parameters of published networks, as their authors state them.")
