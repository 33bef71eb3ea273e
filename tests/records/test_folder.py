from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
from pathlib import Path

import pytest

from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.records import AlreadyComplete, ClaimedElsewhere, RunFolder, claim
from hpc_utils.records.folder import profiled_files, require_same_request, state


@pytest.fixture
def run(results: Path) -> Path:
    return results / "runs" / "cnn"


def claimed_elsewhere(run: Path) -> None:
    number, _ = claim.current(run)
    content = claim.claimant() | {"host": "elsewhere", "job": ""}
    (run / "claims" / f"{number + 1:04d}.json").write_text(json.dumps(content))


def test_a_run_goes_from_absent_over_running_to_complete(run: Path) -> None:
    assert state(run) == "absent"
    folder = RunFolder.claimed(run)
    assert state(run) == "running"
    (run / "progress.json").write_text("{}")
    folder.close("complete")
    assert state(run) == "complete"
    assert not (run / "progress.json").exists()
    assert claim.current(run) == (1, None)


def test_a_complete_run_is_refused_unless_redone(run: Path) -> None:
    RunFolder.claimed(run).close("complete")
    (run / "checkpoints").mkdir()  # its process was killed before it removed them
    with pytest.raises(AlreadyComplete, match=r"^cnn is complete already") as caught:
        RunFolder.claimed(run)
    assert not (run / "checkpoints").exists()
    assert pickle.loads(pickle.dumps(caught.value)).path == run
    assert len(list((run / "claims").glob("*.json"))) == 1, "looking claims nothing"
    RunFolder.claimed(run, redo=True)
    assert state(run) == "running"
    path = run / "claims" / "0002.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"started": 0.0}))
    assert state(run) == "dead", "no living process claims it"


def test_a_run_that_completes_between_check_and_claim_is_kept(run: Path, monkeypatch) -> None:
    truly = claim.claim

    def slow(path: Path, *more) -> int:
        with monkeypatch.context() as patch:
            patch.setattr(claim, "claim", truly)
            RunFolder.claimed(path).close("complete")  # the other one
        return truly(path, *more)

    monkeypatch.setattr(claim, "claim", slow)
    with pytest.raises(AlreadyComplete):
        RunFolder.claimed(run)
    assert state(run) == "complete"
    assert claim.current(run)[1] is None


def test_files_of_former_attempts_are_kept(run: Path) -> None:
    for attempt in ("first", "second", "third"):
        folder = RunFolder.claimed(run)
        assert {path.name for path in run.iterdir()} - {"earlier"} == {"claims", "status.json"}
        folder.write_json("run.json", {"attempt": attempt})
        (run / "logs").mkdir()
        (run / "logs" / "rank0.log").write_text(attempt)
        folder.close("failed", "because")
    for number, attempt in enumerate(("first", "second"), 1):
        shelf = run / "earlier" / f"{number:04d}"
        assert json.loads((shelf / "run.json").read_text()) == {"attempt": attempt}
        assert (shelf / "logs" / "rank0.log").read_text() == attempt
        assert json.loads((shelf / "status.json").read_text())["reason"] == "because"


def test_deleting_the_claims_by_hand_loses_no_former_attempt(run: Path) -> None:
    for attempt in range(3):
        RunFolder.claimed(run).write_json("run.json", {"attempt": attempt})
        if attempt == 1:
            shutil.rmtree(run / "claims")
    assert len(list(run.glob("earlier/*/run.json"))) == 2


def test_a_living_claimants_files_are_not_moved(run: Path) -> None:
    RunFolder.claimed(run).write_json("run.json", {"mine": True})
    claimed_elsewhere(run)
    for redo in (False, True):
        with pytest.raises(ClaimedElsewhere):
            RunFolder.claimed(run, redo=redo)
    assert (run / "run.json").is_file() and not (run / "earlier").exists()


def test_a_configuration_other_than_the_requested_one_is_refused(run: Path) -> None:
    config, folder = RunConfig(workload="cnn", epochs=2).model_dump(), RunFolder(run)
    require_same_request(None, config)  # no launcher asked for anything
    require_same_request(folder, config)  # a launcher that left no request
    folder.write_json("request.json", {"config": {"workload": "cnn", "epochs": 2}})
    require_same_request(folder, config)
    with pytest.raises(ConfigError, match="started for other values of epochs than the notebook"):
        require_same_request(folder, config | {"epochs": 3})


def test_tables_write_missing_values_as_empty_and_refuse_unknown_columns(run: Path) -> None:
    RunFolder(run).write_table("ranks.csv", ["a", "b"], [{"a": 1}, {"a": None, "b": 0.5}])
    assert (run / "ranks.csv").read_text() == "a,b\n1,\n,0.5\n"
    with pytest.raises(ValueError, match="unknown"):
        RunFolder(run).write_table("x.csv", ["a"], [{"unknown": 1}])
    assert os.listdir(run) == ["ranks.csv"]


def test_a_growing_table_has_one_header_and_every_row_and_continues_a_former_attempt(run: Path) -> None:
    folder = RunFolder.claimed(run)
    sizes = []
    for number in range(3):
        folder.append_table("steps.csv.gz", ["a", "b"], [{"a": number}])
        sizes.append(folder.size("steps.csv.gz"))
    assert gzip.decompress((run / "steps.csv.gz").read_bytes()) == b"a,b\n0,\n1,\n2,\n"
    again, shelf = RunFolder.claimed(run), folder.next_shelf() - 1
    assert not again.restore("steps.csv.gz", sizes[-1] + 1, shelf), "none has as much"
    assert again.restore("steps.csv.gz", sizes[1], shelf)
    assert gzip.decompress((run / "steps.csv.gz").read_bytes()) == b"a,b\n0,\n1,\n"
    (run / "profile/more").mkdir(parents=True)
    (run / "profile/rank0.json").write_text("{}")
    assert profiled_files(run) == {"rank0.json": 2}
