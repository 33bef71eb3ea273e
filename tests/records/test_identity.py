from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_utils.config import RunConfig
from hpc_utils.records import identity, run_id, schema

CONFIG = RunConfig(workload="cnn", precision="bf16", global_batch=128)


def name(config: RunConfig = CONFIG, world_size: int = 2, **layout) -> str:
    layout = {"ranks_per_node": world_size, "hardware": "0123abcd"} | layout
    return run_id(identity.measured(config, world_size), **layout)


def test_an_id_is_readable_and_repeats() -> None:
    assert re.fullmatch(r"cnn-digits-ddp2-bf16-b128-r1-[0-9a-f]{8}", name())
    assert name() == name()
    profiled = CONFIG.model_copy(update={"profile": "torch"})
    assert name(profiled).startswith("cnn-digits-ddp2-bf16-b128-r1-profile-torch-")
    assert name(world_size=4, nodes=2, ranks_per_node=2).startswith("cnn-digits-ddp2x2-bf16-b128-r1-")


def test_an_id_stays_the_same_from_version_to_version() -> None:
    """Change it knowingly: results measured before would all be measured again."""
    parameters = {"workload": "cnn", "parallel": "ddp", "precision": "fp32", "global_batch": 64, "repeat": 1}
    assert run_id(parameters, hardware="0123abcd") == "cnn-ddp1-fp32-b64-r1-7e9333e9"


def test_a_new_option_with_its_default_changes_no_id() -> None:
    recorded = identity.measured(CONFIG, 2)
    before = {name: value for name, value in recorded.items() if name not in ("compile", "cutout", "workload_args")}
    assert identity.settings(before) == identity.settings(recorded)
    assert run_id(before, hardware="x") == run_id(recorded, hardware="x")
    changed = [{"compile": "default"}, {"cutout": 8}, {"workload_args": {"width": 2}}]
    assert len({identity.settings(recorded | change) for change in (*changed, {})}) == 4


def test_every_parameter_is_in_the_settings_or_a_column_of_its_own() -> None:
    columns = {
        *identity.SAME,
        *identity.POINT,
        "seed",
        "repeat",
        "cores_per_rank",
    }  # the last is threads_per_rank < 1
    assert columns >= identity.APART and set(identity.SAME) | set(identity.POINT) <= set(schema.names(schema.RUNS))


def test_another_measurement_layout_or_machine_has_another_id() -> None:
    changes = [{"repeat": 2}, {"precision": "fp32"}, {"seed": 1}, {"lr": 0.2}, {"threads_per_rank": 2}, {"global_batch": 64},
               {"parallel": "none"}, {"epochs": 4}]  # fmt: skip
    ids = [name(CONFIG.model_copy(update=change)) for change in changes]
    ids += [name(), name(world_size=4), name(world_size=4, nodes=2, ranks_per_node=2), name(hardware="a-cluster")]
    assert len({one.rpartition("-")[2] for one in ids}) == len(ids)


def test_requests_of_one_measurement_share_an_id() -> None:
    assert name(CONFIG.model_copy(update={"collective_timeout": 5.0})) == name(), "it cannot change a measurement"
    weak = RunConfig(workload="cnn", precision="bf16", batch_per_device=64)
    assert name(weak) == name()
    assert name(weak, world_size=1) != name(world_size=1)


def test_the_data_set_does_not_identify_a_users_own_workload() -> None:
    own = [RunConfig(workload="gpt:make", dataset=dataset) for dataset in ("digits", "")]
    assert name(own[0]) == name(own[1])
    assert name(own[0]).startswith("gpt.make-ddp2-")
    tasks = [identity.task({"workload": "cnn", "dataset": dataset}) for dataset in ("digits", "", None)]
    assert tasks == ["cnn on digits", "cnn", "cnn"]


TEXT = st.text(max_size=80) | st.sampled_from(
    ["..", "../../etc:x", "-rf", "a;rm -rf ~", "$(x):y", "a/b", ".", "x" * 999]
)


@given(workload=TEXT, dataset=TEXT, precision=TEXT)
def test_any_name_makes_a_safe_folder_name(workload: str, dataset: str, precision: str) -> None:
    parameters = {"workload": workload, "dataset": dataset, "parallel": "ddp", "precision": precision,
                  "global_batch": 64, "repeat": 1}  # fmt: skip
    made = run_id(parameters, hardware="x")
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*-[0-9a-f]{8}", made)
    assert ".." not in made.split("-") and len(made) < 250


def test_settings_distinguish_runs_that_are_never_pooled() -> None:
    base = identity.measured(RunConfig(workload="cnn"), 1)
    same = [{"repeat": 2}, {"seed": 5}, {"global_batch": 64}, {"parallel": "none"}, {"precision": "bf16"}]
    other = [{"bucket_mb": 50.0}, {"channels_last": False}, {"optimizer": "adamw"}, {"epochs": 9}, {"lr": 0.2}]
    assert {identity.settings(base | change) for change in same} == {identity.settings(base)}
    assert len({identity.settings(base | change) for change in other} | {identity.settings(base)}) == 1 + len(other)


def test_an_edited_workload_is_another_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig(workload="mine.models:mlp")
    assert identity.measured(config, 1)["source"] == "", "not there yet: the trainer says so"
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine/models.py"
    file.write_text("raise RuntimeError('never imported by the launching side')\n")
    before = identity.measured(config, 1)
    assert before["source"]
    file.write_text("""'''The model.'''\nraise RuntimeError('never imported by the launching side')  # so\n""")
    assert identity.measured(config, 1) == before, "comments and docstrings"
    file.write_text("# edited\n")
    assert identity.measured(config, 1)["source"] != before["source"]
