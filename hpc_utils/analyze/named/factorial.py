"""A full factorial as named values: `factorial.sensitivity-cpu.share.comm-hook`, `.main.comm-hook.bf16`, `.best.gain`."""

from __future__ import annotations

from hpc_utils.analyze import factorial
from hpc_utils.analyze.value import Value

from .naming import counted, slug, values


def whole(design: factorial.Design, study: str, target: float) -> list[Value]:
    """Effects, levels and the fastest point of a complete design; `target`: as of `factorial.best`."""
    runs, repeats = tuple(design.values.run_id), int(design.values.repeat.nunique())
    stem, of = f"factorial.{slug(study)}", f"in the factorial {study}"
    shape = [len(levels) for levels in design.levels.values()]
    points = 1
    for many in shape:
        points *= many
    return [
        counted(f"{stem}.points", points, "count", f"Points of the design {of}.", runs),
        counted(f"{stem}.runs", len(runs), "count", f"Runs of the design {of}.", runs),
        counted(f"{stem}.repeats", repeats, "count", f"Repeats of each point {of}.", runs),
        *_effects(design, stem, of, runs),
        *_levels(design, stem, of, runs, repeats),
        *_best(design, stem, of, target, runs, repeats),
    ]


def _effects(design: factorial.Design, stem: str, of: str, runs: tuple[str, ...]) -> list[Value]:
    table = factorial.effects(design)
    table = table.assign(
        runs=[runs] * len(table), verdict=["beyond noise" if one else "not told from noise" for one in table.beyond]
    )
    tested = table[table.kind != "rest"]
    return [
        *values(table, f"{stem}.share", "share", "share", lambda row: f"Share of the variance of log throughput that is due to "
                f"{row.effect} {of}.", point=["effect"], ends=None, repeats=None),
        *values(tested, f"{stem}.p", "p", "ratio", lambda row: f"p of the F test of {row.effect} against noise, by Holm's correction, "
                f"{of}.", point=["effect"], ends=None, repeats=None),
        *values(tested, f"{stem}.verdict", "verdict", "text", lambda row: f"Whether {row.effect} is told from noise {of}.",
                point=["effect"], ends=None, repeats=None),
    ]  # fmt: skip


def _levels(design: factorial.Design, stem: str, of: str, runs: tuple[str, ...], repeats: int) -> list[Value]:
    main = factorial.main_effects(design)
    main = main[main.low.notna()] if repeats > 1 else main
    main = main.assign(runs=[runs] * len(main), repeats=repeats)
    found = values(
        main, f"{stem}.main", "gain", "ratio",
        lambda row: f"Throughput with {row.factor}={row.level} over that with its first value, all other knobs averaged, {of}.",
        point=["factor", "level"],
    )  # fmt: skip
    if len(design.levels) < 2:
        return found
    both = factorial.interactions(design)
    both = both[both.low.notna()]
    one, other = (
        [
            f"{knob}={level:g}" if isinstance(level, float) else f"{knob}={level}"
            for knob, level in zip(*sides, strict=True)
        ]
        for sides in ((both["first"], both.first_level), (both.second, both.second_level))
    )
    both = both.assign(one=one, other=other, runs=[runs] * len(both), repeats=repeats)
    return found + values(
        both, f"{stem}.interaction", "beyond", "ratio",
        lambda row: f"What {row.one} and {row.other} give together over the product of what each gives alone {of}.", point=["one", "other"],
    )  # fmt: skip


def _best(
    design: factorial.Design, stem: str, of: str, target: float, runs: tuple[str, ...], repeats: int
) -> list[Value]:
    best = factorial.best(design, target)
    point, reference = (
        ", ".join(f"{name}={value}" for name, value in own.items()) for own in (best.point, best.reference)
    )
    return [
        Value(f"{stem}.best.gain", best.gain, "ratio", f"Throughput of the fastest point over the reference's {of}; the interval holds "
              "for all points at once.", best.low, best.high, repeats, runs),
        counted(f"{stem}.best.point", point, "text", f"The fastest point {of}.", runs),
        counted(f"{stem}.best.reference", reference, "text", f"The reference point {of}.", runs),
        counted(f"{stem}.best.verdict", best.verdict, "text", f"Verdict on the target gain {of}.", runs),
        counted(f"{stem}.best.why", best.why, "text", f"Why the verdict on the target gain is so {of}.", runs),
        counted(f"{stem}.best.target", 1 + target, "ratio", f"The gain that the target asks for {of}.", runs),
    ]  # fmt: skip
