"""A factorial's named values: effects, levels, the fastest point."""

from __future__ import annotations

import pytest

from hpc_utils.analyze import factorial
from hpc_utils.analyze.named import factorial as named

from .. import ladders

LEVELS = {"bucket_mb": [25.0, 0.25], "comm_hook": ["none", "fp16"]}


def speed(point, repeat):
    own = 100 * (0.5 if point["bucket_mb"] < 1 else 1) * (1.3 if point["comm_hook"] == "fp16" else 1)
    return own * (1 + 0.01 * ((len(point["comm_hook"]) * repeat + int(point["bucket_mb"])) % 3))


def test_effects_levels_and_the_fastest_point():
    study, runs = ladders.factorial(LEVELS, speed)
    design = factorial.complete(factorial.design(runs, study))
    values = named.whole(design, "made_up", 0.2)
    found = {value.name: value for value in values}
    assert len(found) == len(values)
    effects = factorial.effects(design).set_index("effect")
    assert found["factorial.made-up.share.bucket-mb"].value == effects.share["bucket_mb"]
    assert found["factorial.made-up.p.bucket-mb-x-comm-hook"].value == effects.p["bucket_mb x comm_hook"]
    main = factorial.main_effects(design)
    row = main[(main.factor == "comm_hook") & (main.level == "fp16")].iloc[0]
    level = found["factorial.made-up.main.comm-hook.fp16"]
    assert (level.value, level.low, level.high, level.repeats) == (row.gain, row.low, row.high, 3)
    assert "factorial.made-up.main.comm-hook.none" not in found, "a knob's first value is the reference"
    assert "factorial.made-up.interaction.bucket-mb-0-25.comm-hook-fp16" in found
    best = factorial.best(design, 0.2)
    assert found["factorial.made-up.best.gain"].value == best.gain == pytest.approx(1.3, rel=0.05)
    assert found["factorial.made-up.best.verdict"].value == best.verdict
    assert found["factorial.made-up.points"].value == 4 and set(level.runs) == set(runs.run_id)
