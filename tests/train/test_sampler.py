from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpc_utils.config import ConfigError
from hpc_utils.train.sampler import Sampler, evaluation_indices

SIZES = st.integers(1, 120)
WORLDS = st.integers(1, 8)
SEEDS = st.integers(0, 2**31 - 1)


@given(
    data=st.data(), size=SIZES, world=WORLDS, seed=SEEDS, epoch=st.integers(1, 5), steps=st.none() | st.integers(1, 9)
)
def test_the_ranks_slices_joined_are_the_global_batch(data, size, world, seed, epoch, steps) -> None:
    per_rank = data.draw(st.integers(1, 40 if steps else max(1, size // world)))
    batch = per_rank * world
    if steps is None and size < batch:
        with pytest.raises(ConfigError):
            Sampler(size, batch, seed=seed)
        return
    alone = list(Sampler(size, batch, seed=seed, steps=steps).epoch(epoch))
    ranks = [
        list(Sampler(size, batch, rank=rank, world_size=world, seed=seed, steps=steps).epoch(epoch))
        for rank in range(world)
    ]
    assert len(alone) == (steps or size // batch)
    for whole, *slices in zip(alone, *ranks, strict=True):
        assert all(len(one) == per_rank for one in slices)
        assert torch.equal(torch.cat(slices), whole)


@given(data=st.data(), size=SIZES, seed=SEEDS, epoch=st.integers(1, 5))
def test_one_pass_repeats_nothing_and_counts_what_it_drops(data, size, seed, epoch) -> None:
    sampler = Sampler(size, data.draw(st.integers(1, size)), seed=seed)
    batches = list(sampler.epoch(epoch))
    seen = torch.cat(batches).tolist()
    assert len(set(seen)) == len(seen) == size - sampler.dropped
    assert set(seen) <= set(range(size))
    assert 0 <= sampler.dropped < sampler.global_batch
    assert len(batches) == len(sampler)


@given(size=SIZES, batch=st.integers(1, 200), steps=st.integers(1, 12), seed=SEEDS, epochs=st.integers(1, 4))
def test_fixed_steps_reshuffle_and_favour_nobody(size, batch, steps, seed, epochs) -> None:
    sampler = Sampler(size, batch, seed=seed, steps=steps)
    drawn = torch.cat([one for epoch in range(1, epochs + 1) for one in sampler.epoch(epoch)])
    assert len(drawn) == epochs * steps * batch and sampler.dropped == 0
    times = drawn.bincount(minlength=size)
    assert len(times) == size and times.max() - times.min() <= 1
    passes = [samples for samples in drawn.split(size) if len(samples) == size]
    assert all(samples.unique().numel() == size for samples in passes)
    if size > 20 and len(passes) > 1:
        assert not torch.equal(passes[0], passes[1])


def test_epochs_and_seeds_have_orders_of_their_own_and_drop_other_samples() -> None:
    def order(epoch: int, seed: int = 0) -> list[int]:
        return torch.cat(list(Sampler(100, 30, seed=seed).epoch(epoch))).tolist()

    orders = [order(1), order(2), order(1, seed=1), list(range(90))]
    assert all(first != second for first, second in itertools.combinations(orders, 2)) and order(1) == orders[0]
    assert {*order(1)} != {*order(2)}


def test_a_data_set_smaller_than_the_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has 10 samples, fewer than one global batch of 16: .*steps_per_epoch"):
        Sampler(10, 16)
    assert len(torch.cat(list(Sampler(10, 16, steps=2).epoch(1)))) == 32


@given(size=st.integers(0, 100), batch=st.integers(1, 30), world=st.integers(1, 12))
def test_evaluation_takes_each_sample_once(size: int, batch: int, world: int) -> None:
    batches = [list(evaluation_indices(size, batch, rank=rank, world_size=world)) for rank in range(world)]
    assert all(0 < len(one) <= batch for own in batches for one in own), "an empty batch has no mean loss"
    assert sorted(int(i) for own in batches for one in own for i in one) == list(range(size))
    shares = [sum(map(len, own)) for own in batches]
    assert max(shares) - min(shares) <= 1
