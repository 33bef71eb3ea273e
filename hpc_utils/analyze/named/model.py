"""The performance model as named values: `model.held-out.median-error`, `model.error.2.device-batch-8.1gbit`, `model.efficiency...`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from hpc_utils.analyze import misfit
from hpc_utils.analyze.perfmodel import POINT, Fitted
from hpc_utils.analyze.value import Value

from .naming import counted, rate, slug, values

UNITS = {"": "ratio", "s/step": "s", "s/byte": "s/B", "s/message": "s"}
EFFICIENT = 0.7  # the studies' target: where a curve falls below it is told


def fitted(model: Fitted, name: str, runs: Iterable[str]) -> list[Value]:
    """`model.of`, `model.configurations`, `model.scatter`, `model.gradients`, `model.buckets`, `model.cost.host`, ...; `name`: the
    family's label, `runs`: ids of those that it was fitted on."""
    runs, of = tuple(runs), f"the model of {name}"
    groups = model.measured.groupby(POINT).ngroups
    return [
        counted("model.of", name, "text", "What the performance model is of.", runs),
        counted("model.from", model.work.source, "text", f"Where {of} has its computing times from.", runs),
        counted("model.configurations", groups, "count", f"Configurations that {of} was fitted on.", runs),
        counted("model.runs", len(runs), "count", f"Runs that {of} was fitted on.", runs),
        counted("model.scatter", model.residual, "share", f"How far measured steps scatter around {of} (standard deviation of the log).", runs),
        counted("model.gradients", model.work.gradient_bytes, "B", f"Gradients of a step in {of}.", runs),
        counted("model.buckets", len(model.work.buckets(model.bucket_mb)), "count", f"Buckets that the gradients travel in, in {of}.", runs),
        *(
            counted(f"model.cost.{slug(row.cost)}", row.value, UNITS[row.unit], f"The fitted cost '{row.cost}' of {of}"
                    f"{'' if row.told else ' (hardly told by the data: mostly a first guess)'}.",
                    runs, low=row.low, high=row.high)
            for row in model.table().itertuples()
        ),
    ]  # fmt: skip


def held_out(errors: pd.DataFrame, measured: pd.DataFrame) -> list[Value]:
    """`model.measured.runs`, `.configurations`, `.repeats`; `model.held-out.count`, `.runs`, `.rates`, `.median-error`, `.worst-error`,
    `.inside`, `.inside-share`; `model.fitted.count`, `.median-error`, `.worst-error`; of every configuration `model.error.2...` (one
    rank: without a group), of those on several ranks `model.step-seconds.2...`, `model.measured-seconds.2...`, `model.bottleneck.2...`; `errors` as of
    `perfmodel.held_out`, of the runs `measured`."""
    many, away = errors[errors.world_size > 1], errors[errors.held_out]
    every = tuple(one for own in errors.runs for one in own)
    found: list[Value] = [
        counted("model.measured.configurations", len(errors), "count", "Configurations that the model is compared with.", every),
        counted("model.measured.runs", len(every), "count", "Runs that the model is compared with.", every),
        counted("model.measured.repeats", int(errors.repeats.min()), "count", "Fewest repeats of a configuration that the model is "
                "compared with.", every),
    ]  # fmt: skip
    if len(away):
        inside = away.measured.between(away.low, away.high)
        runs = tuple(one for own in away.runs for one in own)
        what = "configurations that the model had not seen"
        rates = sorted({*away.gbit} - {*errors.gbit[~errors.held_out]})
        found += [
            counted("model.held-out.count", len(away), "count", f"The number of {what}.", runs),
            counted("model.held-out.runs", len(runs), "count", f"Runs of the {what}.", runs),
            counted("model.held-out.rates", ", ".join(f"{gbit:g}" for gbit in rates), "text",
                    "Link rates (Gbit/s) that the model had to predict without having seen them.", runs),
            *_errors("held-out", away, measured, what, runs),
            counted("model.held-out.inside", int(inside.sum()), "count", f"How many of the {what} lie in the model's 95 % interval.", runs),
            counted("model.held-out.inside-share", inside.mean(), "share", f"Share of the {what} that lie in the model's 95 % interval.", runs),
        ]  # fmt: skip

    if len(seen := errors[~errors.held_out]):
        runs = tuple(one for own in seen.runs for one in own)
        what = "configurations that the model was fitted on, those of one rank too"
        found += [
            counted("model.fitted.count", len(seen), "count", f"The number of {what}.", runs),
            *_errors("fitted", seen, measured, what, runs),
        ]

    def of(row) -> str:
        seen = "had not seen" if row.held_out else "was fitted on"
        links = "over unlimited links" if row.gbit == float("inf") else f"over links of {row.gbit:g} Gbit/s"
        ranks = f"{row.world_size} ranks" if row.world_size > 1 else "1 rank"
        if row.world_size == 1:
            links = "without a process group"
        return f"{ranks}, {row.batch_per_device:g} samples a rank, {links}, which the model {seen}"

    ends = {"measured": ("measured_low", "measured_high"), "seconds": ("low", "high")}
    for name, column, says in (
        ("measured-seconds", "measured", "Measured time of a step"),
        ("step-seconds", "seconds", "Time of a step that the model predicts"),
    ):
        found += values(
            many, f"model.{name}", column, "s", lambda row, says=says: f"{says}, {of(row)}.", point=["world_size"],
            ends=ends[column], repeats="repeats" if column == "measured" else None,
        )  # fmt: skip
    ends_of_error = {
        "low": errors.seconds / errors.measured_high - 1,
        "high": errors.seconds / errors.measured_low - 1,
    }
    found += values(
        errors.assign(**ends_of_error)[(errors.world_size > 1) | ~errors.grouped], "model.error", "error", "share",
        lambda row: f"Predicted over measured time of a step, less one, {of(row)}; the interval is the measurement's, the fit held fixed.",
        point=["world_size"],
    )  # fmt: skip
    return found + values(
        many, "model.bottleneck", "bottleneck", "text", lambda row: f"What limits a step, by the model, {of(row)}.",
        point=["world_size"], ends=None, repeats=None,
    )  # fmt: skip


def efficiency(model: Fitted, measured: pd.DataFrame) -> list[Value]:
    """`model.efficiency.2.batch-8`: weak scaling by the model over links as they are, of every layout and batch that `measured` (as of
    `perfmodel.points`) has so; to lie beside what was measured."""
    own = measured[(measured.world_size > 1) & (measured.gbit == float("inf"))]
    rows = []
    for batch, nodes, each in sorted(set(zip(own.batch_per_device, own.nodes, own.ranks_per_node, strict=True))):
        row = model.scaling("weak", batch, [nodes * each], ranks_per_node=each).iloc[-1]
        rows.append(
            row.to_dict() | {"batch": batch, "layout": f"{nodes}x{each}", "runs": tuple(model.measured.run_id)}
        )
    if not rows:
        return []
    return values(
        pd.DataFrame(rows)[["world_size", "layout", "batch", "efficiency", "efficiency_low", "efficiency_high", "runs"]],
        "model.efficiency", "efficiency", "share",
        lambda row: f"Weak scaling efficiency that the model predicts on {row.world_size} ranks ({row.layout}), {row.batch:g} samples a "
        "step on each rank, over unlimited links.",
        point=["world_size"], ends=("efficiency_low", "efficiency_high"), repeats=None,
    )  # fmt: skip


def ahead(predicted: Mapping[tuple[str, float], pd.DataFrame], runs: Iterable[str]) -> list[Value]:
    """What the model says of more ranks: `model.strong.1gbit.efficiency.16`, `.bottleneck.16`, and of each curve `.batch`,
    `.efficient-up-to` (the most ranks asked about that are at least 70 % efficient, fewer ones too) and `.limited-by`, `.below-at`, `.below-from` and `.below-to` (the same of the interval's ends);
    `predicted`: (kind, Gbit/s) -> as of `Fitted.scaling`."""
    found, runs = [], tuple(runs)
    for (kind, gbit), frame in predicted.items():
        stem = f"model.{kind}.{rate(gbit)}"
        each = f"{frame.batch_per_device.iloc[0]:g} samples {'in all' if kind == 'strong' else 'a rank'}"
        curve = f"{kind} scaling, {each}, over links of {gbit:g} Gbit/s"
        many = frame[frame.world_size > 1].assign(runs=[runs] * (len(frame) - 1))
        for name, column, unit, says, ends in (
            ("efficiency", "efficiency", "share", "Efficiency that the model predicts", ("efficiency_low", "efficiency_high")),
            ("step-seconds", "seconds", "s", "Time of a step that the model predicts", ("low", "high")),
            ("limit", "bottleneck", "text", "What limits by the model", None),
        ):  # fmt: skip
            found += values(
                many[["world_size", column, "extrapolation", "runs", *(ends or ())]], f"{stem}.{name}", column, unit,
                lambda row, says=says, curve=curve: f"{says} on {row.world_size} ranks, {curve}"
                f"{', an extrapolation' if row.extrapolation else ''}.",
                point=["world_size"], ends=ends, repeats=None,
            )  # fmt: skip
        below = many[many.efficiency < EFFICIENT].head(1)
        good = many[many.world_size < (below.world_size.iloc[0] if len(below) else float("inf"))]
        most = int(good.world_size.max()) if len(good) else 1
        found += [
            counted(f"{stem}.batch", float(frame.batch_per_device.iloc[0]), "count", f"Samples of a step in the model's curve of {curve}.", runs),
            counted(f"{stem}.efficient-up-to", most, "count",
                    f"The most ranks, of those asked about, up to which the model predicts at least 70 % efficiency: {curve}.", runs),
        ]  # fmt: skip
        row = (below if len(below) else many.tail(1)).iloc[0]
        if len(below):
            at = int(row.world_size)
            for end, column, which in (("from", "efficiency_low", "lower"), ("to", "efficiency_high", "upper")):
                if len(ends_below := many[many[column] < EFFICIENT]):
                    says = f"The fewest ranks asked about where the {which} end of the model's interval is below 70 % efficiency: {curve}."
                    found.append(
                        counted(f"{stem}.below-{end}", int(ends_below.world_size.iloc[0]), "count", says, runs)
                    )
            found.append(counted(f"{stem}.below-at", at, "count", f"The fewest ranks asked about with less than 70 % efficiency by the model: {curve}.", runs))  # fmt: skip
        found.append(counted(f"{stem}.limited-by", row.bottleneck, "text", f"What limits by the model {'where efficiency falls below 70 %' if len(below) else 'on the most ranks asked about'}: {curve}.", runs))  # fmt: skip
    return found


def slow_rank(table: pd.DataFrame, replayed: pd.DataFrame, runs: Iterable[str]) -> list[Value]:
    """`model.slow-rank.1-1.16` (a step's time with one rank 1.1 times slower over that without) and `model.waiting.16`; `table` as of
    `simulate.one_slow_rank`, `replayed` of `simulate.replay`."""
    runs = tuple(runs)
    many = table[table.world_size > 1].assign(runs=[runs] * int((table.world_size > 1).sum()))
    alone = replayed[replayed.world_size > 1].assign(runs=[runs] * int((replayed.world_size > 1).sum()))
    return [
        *values(
            many[["slow", "world_size", "longer", "runs"]], "model.slow-rank", "longer", "ratio",
            lambda row: f"A step's time on {row.world_size} ranks of which one is {row.slow:g} times as slow, over that of equal "
            "ranks, replayed from measured steps.",
            point=["slow", "world_size"], ends=None, repeats=None,
        ),
        *values(
            alone[["world_size", "waiting", "runs"]], "model.waiting", "waiting", "share",
            lambda row: f"Share of a step that ranks wait for the slowest of {row.world_size}, replayed from measured steps.",
            point=["world_size"], ends=None, repeats=None,
        ),
    ]  # fmt: skip


def laws(compared: pd.DataFrame, measured: pd.DataFrame) -> list[Value]:
    """`model.law.gustafson.median-error`, `.worst-error`: how far each law and the model miss more ranks than they were fitted to;
    `.count`, the points; `compared`: as of `comparison.compare`, of the runs `measured`."""
    found = []
    for law, own in compared.groupby("law", sort=False):
        runs = tuple(dict.fromkeys(one for behind in own.runs for one in behind))
        what = f"{len(own)} configurations of more ranks than {law} was fitted to"
        found += _errors(f"law.{slug(law)}", own, measured, what, runs)
        found.append(counted(f"model.law.{slug(law)}.count", len(own), "count", f"The number of configurations of more ranks than {law} was fitted to.", runs))  # fmt: skip
    return found


def _errors(name: str, errors: pd.DataFrame, measured: pd.DataFrame, what: str, runs: tuple[str, ...]) -> list[Value]:
    """`model.<name>.median-error`, `.worst-error`."""
    return [
        Value(f"model.{name}.{which}-error", off.value, "share", f"{said} error of predicted step times, of {what}; interval over the "
              "repeats of the points, the fit held fixed.", off.low, off.high, off.repeats, runs)
        for which, said, off in zip(("median", "worst"), ("Median", "Largest"), misfit.of(errors, measured), strict=True)
    ]  # fmt: skip
