"""What the script looks up holds each value once, and all that was said."""

from __future__ import annotations

import json

from hpc_utils.publish.page.embedded import embedded
from hpc_utils.publish.page.runs import Run


def run(name: str, **facts: str) -> Run:
    return Run(name, "", "complete", [], {("parameters", key): value for key, value in facts.items()})


def test_values_stand_once_and_places_as_spans() -> None:
    runs = [
        run("a", seed="1", lr="0.1"),
        run("b", seed="2", lr="0.1"),
        run("c", lr="0.1"),
        run("d", seed="1", lr="0.1"),
    ]
    rests = {"tables": {"x-y": ["d", "a", "b", "elsewhere"], "x-z": []}, "figures": {"f": ["b"]}}
    told = json.loads(embedded(runs, rests))
    assert told["facts"] == [["parameters", "seed", ["1", "2"], [0, 1, -1, 0]], ["parameters", "lr", ["0.1"], []]]
    assert told["rests"] == {"tables": {"x-y": "0-1,3", "x-z": ""}, "figures": {"f": "1"}}


def test_a_value_that_some_runs_lack_is_not_everyone_s() -> None:
    told = json.loads(embedded([run("a", seed="1"), run("b")], {}))
    assert told["facts"] == [["parameters", "seed", ["1"], [0, -1]]]


def test_no_value_ends_the_script() -> None:
    text = embedded([run("a", note="</script><!--")], {})
    assert "<" not in text and json.loads(text)["facts"][0][2] == ["</script><!--"]
