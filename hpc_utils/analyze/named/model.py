"""The performance model as named values: `model.held-out.median-error`, `model.error.2.device-batch-8.1gbit`, `model.efficiency...`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from hpc_utils.analyze.comparison import Comparison, Curve
from hpc_utils.analyze.perfmodel import POINT, Fitted
from hpc_utils.analyze.value import Value

from .naming import counted, names, rate, slug, values

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


def held_out(errors: pd.DataFrame) -> list[Value]:
    """`model.measured.runs`, `.configurations`, `.repeats`; `model.held-out.count`, `.runs`, `.rates`, `.median-error`, `.worst-error`, `.inside`, `.inside-share`; and of every configuration on
    several ranks `model.step-seconds.2...`, `model.measured-seconds.2...`, `model.error.2...`, `model.bottleneck.2...`; `errors` as of
    `perfmodel.held_out`."""
    many, away = errors[errors.world_size > 1], errors[errors.held_out]
    every = tuple(one for own in errors.runs for one in own)
    found: list[Value] = [
        counted("model.measured.configurations", len(errors), "count", "Configurations that the model is compared with.", every),
        counted("model.measured.runs", len(every), "count", "Runs that the model is compared with.", every),
        counted("model.measured.repeats", int(errors.repeats.min()), "count", "Fewest repeats of a configuration that the model is "
                "compared with.", every),
    ]  # fmt: skip
    if len(away):
        off, inside = away.error.abs(), away.measured.between(away.low, away.high)
        runs = tuple(one for own in away.runs for one in own)
        what = "configurations on links that the model had not seen"
        fewest = {"repeats": int(away.repeats.min())}
        found += [
            counted("model.held-out.count", len(away), "count", f"The number of {what}.", runs),
            counted("model.held-out.runs", len(runs), "count", f"Runs of the {what}.", runs),
            counted("model.held-out.rates", ", ".join(f"{gbit:g}" for gbit in sorted(set(away.gbit))), "text",
                    "Link rates (Gbit/s) that the model had to predict without having seen them.", runs),
            counted("model.held-out.median-error", off.median(), "share", f"Median error of predicted step times, of {what}.", runs, **fewest),
            counted("model.held-out.worst-error", off.max(), "share", f"Largest error of predicted step times, of {what}.", runs, **fewest),
            counted("model.held-out.inside", int(inside.sum()), "count", f"How many of the {what} lie in the model's 95 % interval.", runs),
            counted("model.held-out.inside-share", inside.mean(), "share", f"Share of the {what} that lie in the model's 95 % interval.", runs),
        ]  # fmt: skip

    def of(row) -> str:
        seen = "had not seen" if row.held_out else "was fitted on"
        links = "unlimited links" if row.gbit == float("inf") else f"links of {row.gbit:g} Gbit/s"
        return (
            f"{row.world_size} ranks, {row.batch_per_device:g} samples a rank, over {links}, which the model {seen}"
        )

    ends = {"measured": ("measured_low", "measured_high"), "seconds": ("low", "high")}
    for name, column, says in (
        ("measured-seconds", "measured", "Measured time of a step"),
        ("step-seconds", "seconds", "Time of a step that the model predicts"),
    ):
        found += values(
            many, f"model.{name}", column, "s", lambda row, says=says: f"{says}, {of(row)}.", point=["world_size"],
            ends=ends[column], repeats="repeats" if column == "measured" else None,
        )  # fmt: skip
    found += values(
        many, "model.error", "error", "share", lambda row: f"Predicted over measured time of a step, less one, {of(row)}.",
        point=["world_size"], ends=None,
    )  # fmt: skip
    return found + values(
        many, "model.bottleneck", "bottleneck", "text", lambda row: f"What limits a step, by the model, {of(row)}.",
        point=["world_size"], ends=None, repeats=None,
    )  # fmt: skip


def ahead(predicted: Mapping[tuple[str, float], pd.DataFrame], runs: Iterable[str]) -> list[Value]:
    """What the model says of more ranks: `model.strong.1gbit.efficiency.16`, `.bottleneck.16`, and of each curve `.batch`,
    `.efficient-up-to` (the most ranks asked about that are at least 70 % efficient, fewer ones too) and `.limited-by`, `.below-at`;
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


def laws(compared: Iterable[tuple[str, Curve, Comparison]]) -> list[Value]:
    """`model.law.weak.1gbit.gustafson`: how far each law misses a curve's largest number of ranks; over all curves, without the sign,
    `model.laws.gustafson.worst` and `.least`; `compared`: (family's label, curve, its comparison) of each."""
    found, compared, errors = [], list(compared), {}
    frame = pd.DataFrame([(curve.kind, float(curve.size), curve.gbit, own) for own, curve, _ in compared],
                         columns=["kind", "batch", "gbit", "workload"])  # fmt: skip
    every: list[str] = []
    for stem, (_, curve, beside) in zip(names(frame, "model.law", ["kind"]), compared, strict=True):
        runs = tuple(curve.runs.run_id)
        every += runs
        for law, row in beside.table.iterrows():
            errors.setdefault(law, []).append(abs(row.error))
            says = f"Predicted over measured time of a step on {row.ranks} ranks, less one, by {law}, fitted to fewer ranks."
            found.append(counted(f"{stem}.{slug(law)}", row.error, "share", says, runs))
    for law, own in errors.items():
        for end, value in (("worst", max(own)), ("least", min(own))):
            says = f"The {end} error of {law} over all curves, each predicting its largest number of ranks from the smaller ones."
            found.append(counted(f"model.laws.{slug(law)}.{end}", value, "share", says, dict.fromkeys(every)))
    return found
