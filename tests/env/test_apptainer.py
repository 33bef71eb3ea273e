"""Apptainer definitions and run.sh, as far as a machine without Apptainer can tell."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "env/apptainer"
RUN = FOLDER / "run.sh"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Of Apptainer's grammar (pkg/build/types/parser in its source).
SECTIONS = {"arguments", "environment", "files", "help", "labels", "post", "pre", "runscript", "setup", "startscript"}
SECTIONS |= {"test"}
VARIABLE = re.compile(r"{{\s*(\w+)\s*}}")


class Definition:
    """A definition file: `header`, `sections` by name, each a text, and the defaults of its `arguments`."""

    def __init__(self, path: Path) -> None:
        head, *rest = re.split(r"^\s*%", path.read_text(), flags=re.M)
        lines = [line.partition("#")[0] for line in head.splitlines()]
        self.header = dict(re.split(r":\s*", line, maxsplit=1) for line in lines if line.strip())
        self.sections = {name: body for name, _, body in (part.partition("\n") for part in rest)}
        assert len(self.sections) == len(rest), "no section twice"
        stated = [line.strip() for line in self.sections["arguments"].splitlines() if line.strip()]
        self.arguments = dict(line.split("=", 1) for line in stated)

    def filled(self, text: str) -> str:
        return VARIABLE.sub(lambda match: self.arguments[match[1]], text)


VARIANTS = {name: Definition(FOLDER / f"{name}.def") for name in ("cuda", "rocm")}


def pins() -> dict[str, str]:
    lines = (ROOT / "env/constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


@pytest.mark.parametrize("one", VARIANTS.values(), ids=VARIANTS)
def test_a_definition_is_whole(one: Definition) -> None:
    assert one.sections.keys() <= SECTIONS
    assert {"labels", "help", "files", "post", "environment", "runscript", "test"} <= one.sections.keys()
    assert one.header.keys() == {"Bootstrap", "From"}
    assert one.filled(one.header["Bootstrap"]) == "docker"
    everything = "\n".join([*one.header.values(), *one.sections.values()])
    assert set(VARIABLE.findall(everything)) == one.arguments.keys(), "each is used, each has a default"


@pytest.mark.parametrize("one", VARIANTS.values(), ids=VARIANTS)
def test_versions_are_in_step(one: Definition) -> None:
    wanted = {requirement.name: requirement for requirement in map(Requirement, PROJECT["dependencies"])}
    for name in ("torch", "torchvision"):
        assert wanted[name].specifier.contains(one.arguments[name])
    python = re.fullmatch(r"python:(\d+\.\d+)-slim-\w+", one.arguments["base"])[1]
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python)
    assert f"image.version {PROJECT['version']}\n" in one.sections["labels"]


def test_the_pins_are_those_of_laptop_and_ci_where_the_build_allows() -> None:
    pinned = pins()
    assert {name: VARIANTS["cuda"].arguments[name] for name in ("torch", "torchvision")} == {
        name: pinned[name] for name in ("torch", "torchvision")
    }
    lumi = tomllib.loads((ROOT / "jobs/clusters/lumi-g.toml").read_text())
    assert VARIANTS["rocm"].arguments["build"] == lumi["software"]["torch"]


def test_both_variants_do_the_same() -> None:
    cuda, rocm = (one.sections for one in VARIANTS.values())
    for name in ("files", "post", "environment", "runscript", "test"):
        assert cuda[name] == rocm[name], name


@pytest.mark.parametrize("one", VARIANTS.values(), ids=VARIANTS)
def test_what_is_copied_into_the_image_exists_and_is_no_code(one: Definition) -> None:
    lines = [line.split() for line in one.sections["files"].splitlines() if line.strip() and "#" not in line]
    assert {source for source, _ in lines} == {"pyproject.toml", "README.md", "LICENSE", "env/constraints.txt"}
    for source, _ in lines:
        assert (ROOT / source).is_file()


@pytest.mark.parametrize("section", ["post", "environment", "runscript", "test"])
@pytest.mark.parametrize("one", VARIANTS.values(), ids=VARIANTS)
def test_its_scripts_are_shell(one: Definition, section: str) -> None:
    script = one.filled(one.sections[section])
    done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_image_has_the_command_and_the_engine_but_no_code(tmp_path: Path) -> None:
    """What `pip install .` makes of the files that are copied: an import finds the mounted clone or nothing."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, tmp_path]
    subprocess.run(command, check=True, capture_output=True, timeout=200)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if ".dist-info/" not in name]
        (entry_points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        said = archive.read(entry_points).decode()
    assert "hpc = hpc_utils.cli:main" in said
    assert "[papermill.engine]\nhpc = " in said


# --- run.sh: what it would have Apptainer do ---

RECORDER = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([sys.argv[1:], {{k: v for k, v in os.environ.items() if "PYTHONPATH" in k or k.startswith("HPC_")}}]))
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone, in a folder whose name a shell would stumble over, with both images built."""
    folder = tmp_path / "my clone $(x)" / "env/apptainer"
    folder.mkdir(parents=True)
    shutil.copy(RUN, folder)
    for name in VARIANTS:
        (folder / f"{name}.sif").touch()
    return folder.parents[1]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose `apptainer` says what it is asked for."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "apptainer").write_text(RECORDER)
    (programs / "apptainer").chmod(0o755)
    return f"{programs}:/usr/bin:/bin"


def run(clone: Path, path: str, *command: str, before: tuple[str, ...] = (), **environment: str):
    script = str(clone / "env/apptainer/run.sh")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HPC_", "PYTHON"))}
    env = clean | {"PATH": path} | environment
    return subprocess.run([*before, script, *command], env=env, capture_output=True, text=True, timeout=60)


def test_the_command_runs_on_the_mounted_clone(clone: Path, path: str, tmp_path: Path) -> None:
    done = run(
        clone, path, "hpc", "run", "a b.ipynb", "-p", "x=$(y)", HPC_DATA=str(tmp_path / "d"), PYTHONPATH="/theirs"
    )
    assert done.returncode == 0, done.stderr
    arguments, environment = json.loads(done.stdout)
    assert arguments[0] == "exec"
    image = arguments.index(str(clone / "env/apptainer/cuda.sif"))
    assert arguments[image + 1 :] == ["hpc", "run", "a b.ipynb", "-p", "x=$(y)"]
    mounted = [after for before, after in itertools.pairwise(arguments) if before == "--bind"]
    assert mounted == [str(clone), str(clone / "results"), str(tmp_path / "d")]
    assert all(Path(folder).is_dir() for folder in mounted)
    assert environment["APPTAINERENV_PYTHONPATH"] == environment["SINGULARITYENV_PYTHONPATH"] == str(clone)
    assert environment["HPC_RESULTS"] == str(clone / "results")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a process another /dev")
@pytest.mark.parametrize(
    ("device", "flag", "image"),
    [("nvidiactl", "--nv", "cuda.sif"), ("kfd", "--rocm", "rocm.sif"), (None, None, "cuda.sif")],
)
def test_the_gpu_decides(clone: Path, path: str, device: str | None, flag: str | None, image: str) -> None:
    other = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3"
    other += f" && touch /dev/{device}" if device else ""
    done = run(clone, path, "true", before=("unshare", "--mount", "sh", "-c", f'{other}; exec "$@"', "sh"))
    assert done.returncode == 0, done.stderr
    arguments, _ = json.loads(done.stdout)
    assert [one for one in arguments if one in ("--nv", "--rocm")] == ([flag] if flag else [])
    assert str(clone / "env/apptainer" / image) in arguments


@pytest.mark.parametrize(
    ("command", "environment", "says"),
    [
        ([], {}, "nothing to run"),
        (["true"], {"HPC_IMAGE": "/no/such.sif"}, "no image /no/such.sif"),
        (["true"], {"HPC_RESULTS": "here"}, "not an absolute path"),
        (["true"], {"HPC_DATA": "/tmp/a:b"}, "colon"),
        (["true"], {"PATH": "/usr/bin:/bin"}, "neither apptainer nor singularity"),
    ],
    ids=["nothing", "no image", "relative", "colon", "no apptainer"],
)
def test_what_cannot_work_is_refused(
    clone: Path, path: str, tmp_path: Path, monkeypatch, command: list[str], environment: dict[str, str], says: str
) -> None:
    if "PATH" in environment and (shutil.which("apptainer") or shutil.which("singularity")):
        pytest.skip("there is one here")
    monkeypatch.chdir(tmp_path)
    done = run(clone, path, *command, **environment)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and says in done.stderr
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("script", [RUN, ROOT / "env/nsight.sh"], ids=["run.sh", "nsight.sh"])
def test_scripts_pass_shellcheck(script: Path) -> None:
    if not shutil.which("shellcheck"):
        if os.environ.get("CI") and sys.platform == "linux":
            pytest.fail("CI installs shellcheck")
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
