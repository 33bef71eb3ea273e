"""Probes' records: kept under a name of their own, found again by what they answer."""

from __future__ import annotations

from hpc_utils import paths
from hpc_utils.records import probes


def _record(when: str, **more):
    return {"hardware_id": "here", "provenance": {"collected_at": when}, **more}


def test_the_newest_that_matches_is_found_and_an_older_one_stays(results):
    probes.keep("allreduce", "here-2x1", _record("2026-01-01T00:00:00", nodes=2, seconds=1.0))
    probes.keep("allreduce", "here-2x1", _record("2026-01-02T00:00:00", nodes=2, seconds=2.0))
    probes.keep("allreduce", "here-4x1", _record("2026-01-03T00:00:00", nodes=4, seconds=3.0))
    assert probes.newest("allreduce", nodes=2)["seconds"] == 2.0
    assert len(list(probes.read_probes("allreduce"))) == 3
    assert probes.newest("allreduce", nodes=8) is None and probes.newest("storage") is None


def test_a_truncated_record_is_skipped_and_names_stay_in_the_folder(results):
    path = probes.keep("allreduce", "../../evil name", _record("2026-01-01T00:00:00"))
    assert path.parent == results / "probes" / "allreduce"
    path.write_text(path.read_text()[:-20])
    assert probes.newest("allreduce") is None


def test_own_records_come_before_those_of_the_committed_sets(results, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "reference", lambda: tmp_path / "sets")
    with paths.results_at(tmp_path / "sets" / "there"):
        probes.keep("compute", "there", _record("2026-02-01T00:00:00", seconds=2.0))
    probes.keep("compute", "here", _record("2026-01-01T00:00:00", seconds=1.0))
    assert [record["seconds"] for record in probes.read_everywhere("compute")] == [1.0, 2.0]
