"""The numbers of the model and of shares of a core, pinned as those of `tests.pins`; executed as a module, this file writes them anew."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pandas as pd

from companions.limits import bench_tables, laws, predictions, shares, validation
from hpc_utils.analyze import stats
from hpc_utils.analyze.model import fit
from hpc_utils.analyze.model.step import Work
from hpc_utils.launch import cluster
from hpc_utils.records import probes
from tests.pins import Pins, differences, read, write
from tests.pins.numbers import ResultSet
from tests.pins.rows import known, rows

PINS = str(Path(__file__).with_name("pins"))


def model() -> Pins:
    """As chapter 03b fits and asks it."""
    own = ResultSet("rehearsal")
    held, most_ranks, worlds = [3.0, 0.3], 4, [2**n for n in range(1, 11)]
    family = max(fit.families(own.runs), key=lambda runs: runs.link_gbit.nunique())
    hardware = family.hardware_id.iloc[0]
    measured = fit.points(family, gbit=cluster.link_gbits(family.hardware_id).get(hardware, math.inf))
    alone = Work.of(family, own.found.epochs, list(probes.read_probes("compute", own.folder)))
    fitted = fit.fit(measured[~validation.held_out(measured, held, most_ranks)], alone)
    errors = validation.errors(fitted, measured)
    errors["held_out"] = validation.held_out(errors, held, most_ranks)

    def missed(frame: pd.DataFrame, by: str) -> dict:
        names = ("median_error", "worst_error")
        return {
            row[by]: known({"count": row["count"], "repeats": row["repeats"]}
                           | ({"inside": row["inside"]} if row[by] == "held out" else {})
                           | {name: [row[one] for one in stats.columns(name)] for name in names})
            for row in validation.accuracy(frame, by).to_dict("records")
        }  # fmt: skip

    which = errors.assign(points=errors.held_out.map({True: "held out", False: "fitted"}))
    beside = laws.against_laws(errors, most_ranks)
    whole = fit.fit(measured, alone)
    batch, many = measured.batch_per_device.max(), measured[measured.nodes > 1]
    each = int((many if len(many) else measured).ranks_per_node.max())
    ahead = pd.concat(
        predictions.scaling(whole, kind, size, worlds, ranks_per_node=each, gbit=gbit)
        for kind, size in (("strong", 8 * batch), ("weak", batch))
        for gbit in (100.0, 10.0, 1.0)
    )
    linked = bench_tables.link_table(list(probes.read_probes("allreduce", own.folder)))
    grid = "grouped nodes ranks_per_node batch_per_device gbit"
    return {
        "links": rows(linked, "nodes ranks_per_node group link_gbit", "latency+ bandwidth+ misfit=residual worst"),
        "model: costs": rows(validation.costs(fitted), "cost", "value+"),
        "model: steps": rows(errors, grid, "measured+ seconds+ error bottleneck held_out"),
        "model: errors": missed(which, "points") | missed(beside, "law"),
        "model: fit": {
            "all": known({"scatter": fitted.residual, "gradient_bytes": sum(bucket.size for bucket in alone.buckets)})
        },
        "model: more ranks": rows(
            ahead[ahead.world_size > 1], "kind gbit world_size", "efficiency+ seconds limit=bottleneck"
        ),
    }


def core_shares() -> Pins:
    own = ResultSet("shares")
    fair = shares.against_whole_cores(own.usual, own.found.epochs)
    keys = "workload precision parallel nodes world_size batch_per_device cores period"
    return {"shares of a core": rows(fair, keys, "deviation+ step_seconds+ spread repeats")}


def test_the_numbers_of_the_committed_sets_are_unchanged() -> None:
    assert differences(read(PINS), model() | core_shares()) == []


def test_the_model_is_compared_as_exactly_as_its_fit_ends():
    pinned = read(PINS)
    for change, count in ((1e-4, 1), (1e-7, 0)):
        changed = copy.deepcopy(pinned)
        changed["model: errors"]["held out"]["median_error"][0] *= 1 + change
        assert len(differences(pinned, changed)) == count


if __name__ == "__main__":
    write(PINS, model() | core_shares())
