"""The account of a run made again: nothing unknown is shown as a number, and JSON stays JSON."""

from __future__ import annotations

import json
import math

from companions.verification import account
from companions.verification.comparison import AGREE, DIFFER, UNKNOWN, Judgement
from hpc_utils.provenance.facts import Difference

NAN = math.nan
JUDGED = [
    Judgement("steps", "step", 80.0, 80.0, NAN, NAN, NAN, 1, 3, AGREE, "in each of 8 epochs"),
    Judgement("throughput", "sample/s", 10000.0, 10190.0, 1.019, 0.918, 1.13, 3, 3, UNKNOWN, "interval too wide"),
    Judgement("step_p50", "s", 0.05, NAN, NAN, NAN, NAN, 1, 1, UNKNOWN, ""),
    Judgement("peak resident memory", "B", 2**30, 2**30, 1.0, NAN, NAN, 1, 1, UNKNOWN, ""),
]


def test_a_line_a_quantity_with_its_interval_and_verdict() -> None:
    said = list(account.lines("head", JUDGED, [Difference("torch", "2.6", "2.7")], UNKNOWN))
    row = {
        name: next(line for line in said if line.startswith(name))
        for name in ("steps", "throughput", "step_p50", "peak")
    }
    assert row["throughput"].split("  ")[-1] == "inconclusive (interval too wide)"
    assert "throughput (sample/s)" in row["throughput"] and "1.019 [0.918, 1.130]" in row["throughput"]
    assert row["step_p50"].split()[1:4] == ["(ms)", "50", "–"] and "nan" not in "".join(said)
    assert row["peak"].split("  ")[0] == "peak resident memory (MiB)" and "1,024" in row["peak"]
    assert row["peak"].endswith("1.000                 inconclusive"), "no interval, no brackets"
    assert "  torch: 2.6 then, 2.7 now" in said
    assert said[-1].startswith("inconclusive: nothing differs, but not everything")
    same = list(account.lines("head", JUDGED, [], DIFFER))
    assert "Code, software and machine are the same as then, as far as they were recorded." in same


def test_the_record_states_what_is_not_known_as_null() -> None:
    told = account.record("r", JUDGED, [Difference("torch", "2.6", "2.7")], UNKNOWN, tolerance=0.1)
    again = json.loads(json.dumps(told, allow_nan=False))
    assert again["judgements"][2]["now"] is None and again["judgements"][1]["low"] == 0.918
    assert again["differences"] == [{"what": "torch", "then": "2.6", "now": "2.7"}]
    assert (again["run"], again["tolerance"], again["verdict"]) == ("r", 0.1, UNKNOWN)
