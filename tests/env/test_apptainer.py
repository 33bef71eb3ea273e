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


def test_both_variants_are_whole_and_do_the_same() -> None:
    cuda, rocm = VARIANTS.values()
    for name in ("files", "post", "environment", "runscript", "test"):
        assert cuda.sections[name] == rocm.sections[name], name
    for variant in (cuda, rocm):
        everything = "\n".join([*variant.header.values(), *variant.sections.values()])
        assert set(VARIABLE.findall(everything)) == variant.arguments.keys(), "each is used, each has a default"
        assert variant.filled(variant.header["Bootstrap"]) == "docker"


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_versions_are_in_step(variant: Definition) -> None:
    wanted = {requirement.name: requirement for requirement in map(Requirement, PROJECT["dependencies"])}
    for name in ("torch", "torchvision"):
        assert wanted[name].specifier.contains(variant.arguments[name])
    python = re.fullmatch(r"python:(\d+\.\d+)-slim-\w+", variant.arguments["base"])[1]
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(f"{python}.99"), (
        "the image has the newest of it"
    )
    assert f"image.version {PROJECT['version']}\n" in variant.sections["labels"]


def test_the_pins_are_those_of_laptop_and_ci_where_the_build_allows() -> None:
    pins = (ROOT / "env/constraints.txt").read_text().splitlines()
    assert {f"{name}=={VARIANTS['cuda'].arguments[name]}" for name in ("torch", "torchvision")} <= set(pins)
    lumi = tomllib.loads((ROOT / "jobs/clusters/lumi-g.toml").read_text())
    assert VARIANTS["rocm"].arguments["build"] == lumi["software"]["torch"]


@pytest.mark.parametrize("section", ["post", "environment", "runscript", "test"])
def test_its_scripts_are_shell(section: str) -> None:
    script = VARIANTS["cuda"].filled(VARIANTS["cuda"].sections[section])
    done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_image_has_the_command_and_the_engine_but_no_code(tmp_path: Path) -> None:
    """What `pip install .` makes of the files that are copied: an import finds the mounted clone or nothing."""
    for name in re.findall(r"^ +([^#\s]+) ", VARIANTS["cuda"].sections["files"], re.M):
        shutil.copy(ROOT / name, tmp_path)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path]
    command = [sys.executable, "-m", "pip", "wheel", *options, tmp_path]
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
    ],
)
def test_what_cannot_work_is_refused(
    clone: Path, path: str, command: list[str], environment: dict, says: str
) -> None:
    done = run(clone, path, *command, **environment)
    assert done.returncode == 2 and says in done.stderr


def test_without_apptainer_it_is_refused(clone: Path) -> None:
    if shutil.which("apptainer") or shutil.which("singularity"):
        pytest.skip("there is one here")
    done = run(clone, "/usr/bin:/bin", "true")
    assert done.returncode == 2 and "neither apptainer nor singularity" in done.stderr


@pytest.mark.parametrize("script", [RUN, ROOT / "env/nsight.sh"], ids=["run.sh", "nsight.sh"])
def test_scripts_pass_shellcheck(script: Path) -> None:
    if not shutil.which("shellcheck"):
        if os.environ.get("CI") and sys.platform == "linux":
            pytest.fail("CI installs shellcheck")
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
