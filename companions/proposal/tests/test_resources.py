"""The resources of several studies, and what is requested for them."""

from __future__ import annotations

import pytest

from companions.proposal import resources
from hpc_utils.analyze import budget
from hpc_utils.launch.cluster import NodeType
from tests.analyze.test_budget import LIMIT, NOTHING, PRICES, point
from tests.analyze.test_cost import records

STATED = {"limit": LIMIT, "throughput": 25.6}


def estimates(**studies: list[dict]):
    return {name: budget.estimate(own, *NOTHING, **STATED) for name, own in resources.once(studies).items()}


def test_the_total_is_of_all_studies_and_its_interval_of_their_common_basis() -> None:
    parts = estimates(strong=[point(1), point(8)], weak=[point(4, series="weak", global_batch=2048)])
    table = resources.by_study(parts, PRICES)
    assert table.study.tolist() == ["strong", "weak", "Total"] and table.runs.tolist() == [2, 1, 3]
    assert table[["nodes", "devices"]].values.tolist() == [[2, 8], [1, 4], [2, 8]]
    assert table.node_hours[2] == pytest.approx(table.node_hours[:2].sum())
    assert table.node_hours_high[2] < table.node_hours_high[:2].sum(), "starts err apart from steps"
    again = resources.once({"strong": [point(1)], "weak": [point(1), point(2)]})
    assert [[one["world_size"] for one in points] for points in again.values()] == [[1], [2]], "counted once"


def test_what_is_asked_for_is_the_upper_end_and_the_contingency_on_it() -> None:
    table = resources.by_study(estimates(strong=[point(8)], weak=[point(4, series="weak")]), PRICES)
    (asked,) = resources.request(table, "Machine", contingency=0.25, like="X1").to_dict("records")
    for column, predicted in (("request_node_hours", "node_hours_high"), ("cost", "cost_high")):
        needed = table[predicted].iloc[-1] * 1.25
        assert needed <= asked[column] <= 1.1 * needed
    free = resources.by_study(estimates(strong=[point(8)]), {})
    assert "cost" not in resources.request(free, "Machine", contingency=0, like="X1")


def test_the_evidence_is_the_runs_that_counted_operations() -> None:
    runs, _ = records({"world": 1, "seconds": 9.0}, {"world": 2, "seconds": 9.0})
    counted = runs.assign(flops_per_sample=[1e9, 1e9], workload=["cnn", "vit"])
    assert resources.counted(counted, ["cnn"]) == [runs.run_id[0]]


def test_a_gpu_stands_only_for_one_of_its_kind() -> None:
    node = NodeType(partition="gpu", gpus=4, gpu="h100", precisions=["bf16"])
    assert resources.similar_gpu("Atlas", node, "H100 SXM").name == "H100 SXM"
    for wrong in ("A100 40GB", "H100"):
        with pytest.raises(LookupError, match="H100 PCIe"):
            resources.similar_gpu("Atlas", node, wrong)
    with pytest.raises(LookupError, match="no GPUs"):
        resources.similar_gpu("Atlas", NodeType(partition="cpu", precisions=["fp32"]), "H100 SXM")
