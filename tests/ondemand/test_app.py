"""The app's files: well-formed, complete, and closed to values that the form would not allow."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from .conftest import APP, RefusedError, dashboard, program

NAMES = ("bc_queue", "bc_account", "reservation")
NUMBERS = ("gpus", "cores", "memory", "bc_num_hours")
LABELS = {
    "bc_queue": "Partition", "bc_account": "Account", "reservation": "Reservation",
    "gpus": "GPUs", "cores": "CPU cores", "memory": "Memory (GB)", "bc_num_hours": "Hours", "working_dir": "Working directory",
}  # fmt: skip


@pytest.fixture(scope="module")
def form() -> dict:
    return json.loads(dashboard("form", APP))


def test_the_manifest_makes_it_an_interactive_app() -> None:
    manifest = yaml.safe_load((APP / "manifest.yml").read_text())
    assert (manifest["role"], manifest["category"]) == ("batch_connect", "Interactive Apps")
    assert {"name", "description", "icon"} <= manifest.keys()


def test_every_field_states_what_it_wants(form: dict) -> None:
    assert set(form["form"]) == set(form["attributes"]) == {"working_dir", *NAMES, *NUMBERS}
    for name, field in form["attributes"].items():
        assert field["label"] and field["help"], name
        if name in NUMBERS:
            assert field["min"] <= field["value"] <= field["max"], name
            assert field["required"] is True
    assert form["attributes"]["working_dir"]["required"] is True


def test_a_linked_app_offers_its_own_clone(tmp_path: Path, form: dict) -> None:
    clone = APP.parents[1]
    expected = str(clone) if os.access(clone, os.W_OK) else ""
    (tmp_path / "compendium").symlink_to(APP)
    linked = json.loads(dashboard("form", tmp_path / "compendium"))
    assert linked["attributes"]["working_dir"]["value"] == expected == form["attributes"]["working_dir"]["value"]
    shutil.copytree(APP, tmp_path / "copy")
    assert json.loads(dashboard("form", tmp_path / "copy"))["attributes"]["working_dir"]["value"] == ""


def test_what_the_form_allows_is_asked_of_slurm(launch) -> None:
    _, arguments = launch(
        "/", bc_queue="gpu", bc_account="p-1", reservation="course.1", gpus="2", cores="8", memory="32"
    )
    asked = {
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=8",
        "--mem=32G",
        "--gpus-per-node=2",
        "--reservation=course.1",
    }
    assert asked <= set(arguments)
    assert [arguments[arguments.index(option) + 1] for option in ("-p", "-A", "-t")] == ["gpu", "p-1", "01:00:00"]
    _, arguments = launch("/", bc_queue="", gpus="0")
    assert not {"-p", "-A"} & set(arguments)
    assert not [argument for argument in arguments if "gpu" in argument or "reservation" in argument]


def test_the_ends_of_each_range_are_taken_and_not_more(form: dict, launch) -> None:
    fields = {name: form["attributes"][name] for name in NUMBERS}
    for end in ("min", "max"):
        launch("/", **{name: str(field[end]) for name, field in fields.items()})
    for name, field in fields.items():
        with pytest.raises(RefusedError, match=rf"^{re.escape(LABELS[name])}: .* is not a whole number from"):
            launch("/", **{name: str(field["max"] + 1)})
    with pytest.raises(RefusedError):
        launch("/", cores="0")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bc_queue", "gpu; rm -rf ~"), ("bc_queue", "--uid=0"), ("bc_queue", 'gpu"\nx: y'), ("bc_queue", "<%= 1 %>"),
        ("bc_account", "gpu\n    - --wrap=id"), ("reservation", "$(id)"), ("gpus", ""), ("gpus", "1; id"),
        ("cores", "1\n    - --wrap=id"), ("memory", "1e1"), ("bc_num_hours", "0x1"), ("working_dir", ""),
        ("working_dir", "../clone"), ("working_dir", "/clone\nid"), ("working_dir", "$HOME/clone"),
    ],
)  # fmt: skip
def test_a_hostile_value_is_refused_by_its_label(launch, name: str, value: str) -> None:
    with pytest.raises(RefusedError, match=rf"^{re.escape(LABELS[name])}: "):
        launch(**{"working_dir": "/", name: value})


def test_the_rendered_scripts_are_sound(launch) -> None:
    folder, _ = launch("/clone")
    scripts = [folder / name for name in ("before.sh", "script.sh", "after.sh")]
    for script in (*scripts, folder / "job_script_content.sh"):
        subprocess.run(["bash", "-n", script], check=True, timeout=60)
    checked = subprocess.run([program("shellcheck"), *scripts], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout
    assert (folder / "script.sh").stat().st_mode & stat.S_IXUSR  # it is executed, not sourced


@pytest.mark.parametrize("working_dir", ['/it\'s "a" $(touch run) `touch run`; touch run #', "~/no such clone"])
def test_a_folder_reaches_the_shell_as_one_word(launch, tmp_path: Path, working_dir: str) -> None:
    folder, _ = launch(working_dir)
    command = ["bash", folder / "before.sh"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"working directory {os.path.expanduser(working_dir)} does not exist" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_card_cannot_be_broken_by_what_a_job_writes(tmp_path: Path) -> None:
    connection = {"host": 'n"><script>', "port": "80/../x", "password": '"><script>'}
    (tmp_path / "connection.yml").write_text(yaml.safe_dump(connection))
    card = dashboard("view", APP, tmp_path)
    assert "<script>" not in card
    assert 'action="/node/n%22%3E%3Cscript%3E/80/login"' in card
