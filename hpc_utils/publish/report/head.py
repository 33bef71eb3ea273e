"""The head of a report: how fast, how well it scales, whether the targets are met, and what looks wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpc_utils import provenance
from hpc_utils.analyze import anomalies, scaling, targets
from hpc_utils.publish.tables import Row
from hpc_utils.records import Records
from hpc_utils.records.study import StudyIndex


class Head(NamedTuple):
    """What a study reached.

    Attributes:
        facts: where the numbers come from. outcome: as of `scaling.outcome`. targets: as of `targets.judge`, of its
            curves.
            findings: as of `anomalies.find_anomalies`.
    """

    index: StudyIndex
    facts: Mapping[str, str]
    outcome: Sequence[Row]
    targets: Sequence[Row]
    findings: Sequence[Row]


def head(record_set: Records, index: StudyIndex) -> Head:
    """The head of the report on the study `index`, of whose runs `record_set` has all."""
    study_records = record_set.only(index.run_ids)
    runs = study_records.runs
    judged = targets.judge(scaling.efficiency(runs), index.scaling_targets)
    tables = (
        scaling.outcome(runs, study_records.epochs),
        judged[judged.runs.map(len) > 0],
        anomalies.find_anomalies(runs),
    )
    commits = runs.commit.str[: provenance.SHORT] + runs.dirty.map({True: " (modified)"}).fillna("")
    columns = {"device": runs.device_name, "commit": commits, "code digest": runs.digest, "torch": runs.torch}
    ends = sorted(runs.started)[:: max(len(runs) - 1, 1)]
    facts = {
        f"runs{index.name and ' of the study'}": f"{len(runs)} of {len(index.run_ids)} complete",
        "measured (UTC)": " to ".join(time[:16].replace("T", " ") for time in ends),
        **{name: ", ".join(sorted(set(column.dropna()))) for name, column in columns.items()},
    }
    return Head(index, facts, *(table.to_dict("records") for table in tables))
