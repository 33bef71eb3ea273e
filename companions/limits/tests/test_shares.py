"""Shares of a core beside whole ones: deviation from 1/share, cost of a sample, and what is compared with what."""

from __future__ import annotations

import pandas as pd
import pytest

from companions.limits import shares
from tests.analyze.runs import repeated

LONGER = 1.1  # how much longer than 1/share says


def measured(world: int, seconds: float, cores: float, period: float | None = None, **other) -> list[dict]:
    rows = repeated(world, seconds, threads_per_rank=cores, share_period=period, **other)
    return [row | {"run_id": f"{row['run_id']}-{cores}-{period}"} for row in rows]


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    rows = []
    for batch in (64, 512):
        for parallel, world in (("none", 1), ("ddp", 2)):
            same = {"batch": batch * world, "parallel": parallel}
            rows += measured(world, 1.0, 1, **same)
            rows += measured(world, LONGER / 0.2, 0.2, 0.01, **same) + measured(
                world, LONGER / 0.5, 0.5, 0.01, **same
            )
    rows += measured(1, 7.0, 0.1, 0.02, batch=128, parallel="none")  # without a whole core of that batch
    rows += measured(1, 1.0, 2, batch=512, parallel="none")  # two cores are no share
    rows += measured(1, 99.0, 0.2, 0.01, batch=64, parallel="none", oversubscribed=True)
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def epochs(runs: pd.DataFrame) -> pd.DataFrame:
    """The last of two counts: the first had no warm-up."""
    last = pd.DataFrame(
        {"run_id": runs.run_id, "epoch": 2, "steps": 10, "seconds": runs.seconds, "step_p50": 1.0, "step_p95": 1.2}
    )
    return pd.concat([last, last.assign(epoch=1, seconds=1000.0, step_p95=9.0)])


def test_deviation_is_against_the_whole_core_of_the_same_work(runs: pd.DataFrame, epochs: pd.DataFrame) -> None:
    table = shares.against_whole_cores(runs, epochs)
    assert set(zip(table.parallel, table.batch_per_device, table.cores, strict=True)) == {
        (parallel, batch, cores) for parallel in ("none", "ddp") for batch in (64, 512) for cores in (0.2, 0.5, 1.0)
    }
    share = table[table.cores < 1]
    assert share.deviation.to_list() == pytest.approx([LONGER - 1] * 8)
    assert (share.deviation_low < LONGER - 1).all() and (share.deviation_high > LONGER - 1).all()
    assert table[table.cores == 1].deviation.to_list() == pytest.approx([0.0] * 4)
    one = share[(share.parallel == "none") & (share.batch_per_device == 512) & (share.cores == 0.2)].iloc[0]
    assert one.step_seconds == pytest.approx(0.55) and one.periods == pytest.approx(55)
    assert one.sample_seconds == pytest.approx(0.55 * 0.2 / 512)
    assert (one.spread, one.repeats, len(one.runs)) == (1.2, 3, 3)


def test_without_shares_or_without_whole_cores_there_is_nothing(runs: pd.DataFrame, epochs: pd.DataFrame) -> None:
    for own in (runs[runs.threads_per_rank == 1], runs[runs.threads_per_rank < 1], runs[:0]):
        assert shares.against_whole_cores(own, epochs).empty
