"""A bundle for a machine without network: this commit, missing packages and data sets, in pieces, with a start script.

    python benchmarks/gpu_day/bundle.py gpu-day --have packages.txt --python 3.12 --extra mpi --extra cuda
    bash gpu-day/start.sh --minutes 25                         there: docs/gpu-day.md

It contains HEAD without the committed results. torch and torchvision are expected on the machine.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import click
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from companions.documents.release.archive import checksums
from companions.documents.release.checklist import git, uncommitted
from companions.documents.release.crate import ReleaseRefused
from hpc_utils import datasets, paths
from hpc_utils.provenance.git import EXPORTED

PROJECT = "scaling-compendium"
# Packages that need not be sent: torch is expected there, and no run needs the others.
THERE = ("torch", "torchvision", "jupyterlab", "ipyparallel", "nbconvert", "beautifulsoup4")
TESTS = ("pytest", "pytest-timeout", "hypothesis")


class BundleError(RuntimeError):
    """A bundle cannot be made; the message states the reason."""


@dataclass(frozen=True)
class Machine:
    """Where a bundle goes: Python's and the C library's versions, as "3.12" and "2.28", and the processor, as "x86_64".

    `packages`: {name: version} of what is installed there, "" for any version.
    """

    python: str
    glibc: str
    processor: str
    packages: Mapping[str, str]

    @property
    def tags(self) -> list[str]:
        """Platforms whose wheels work there; pip compares them as text."""
        major, minor = self.glibc.split(".")
        names = [f"manylinux_{major}_{number}" for number in range(int(minor), 4, -1)]
        return [f"{name}_{self.processor}" for name in (*names, "manylinux2014", "manylinux2010", "manylinux1")]

    def needs(self, requirement: Requirement, extra: str = "") -> bool:
        """Whether the requirement, of the optional part `extra` of a package, applies there, and is not met."""
        environment = default_environment() | {
            "python_version": self.python, "python_full_version": f"{self.python}.0", "sys_platform": "linux",
            "platform_system": "Linux", "platform_machine": self.processor, "extra": extra,
        }  # fmt: skip
        if requirement.marker and not requirement.marker.evaluate(environment):
            return False
        packages = {canonicalize_name(name): version for name, version in self.packages.items()}
        version = (packages | dict.fromkeys(THERE, "")).get(canonicalize_name(requirement.name))
        return version is None or (version != "" and not requirement.specifier.contains(version, prereleases=True))


def make(
    out: Path,
    names: Sequence[str],
    there: Machine,
    piece: int,
    say: Callable[[str], None],
    extras: Sequence[str] = (),
) -> None:
    """Write the bundle into the new folder `out`.

    Args:
        names: data sets, decoded here. piece: size of a file at most, bytes. extras: see `missing`.

    Raises:
        BundleError: `out` is not empty, or pip finds no wheel.
        ReleaseRefused: this is no clone.
        DataError: a data set is not here.
    """
    if out.exists() and any(out.iterdir()):
        raise BundleError(f"{out} is not empty: name a new folder")
    for name in names:
        datasets.verify(name)
    root = paths.root()
    commit = git(root, "rev-parse", "HEAD").decode().strip()
    if changed := uncommitted(root):
        say(f"packing {commit[:12]}, without what is not committed: {changed}")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        code, wheels = Path(scratch, "code"), Path(scratch, "wheels")
        wheels.mkdir()
        lacking = missing(there, extras)
        say(f"wheels: {', '.join(lacking) or 'none is missing'}")
        download(lacking, wheels, there)
        _write_code(code, root, commit)
        archive = out / "bundle.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=3) as packed:
            packed.add(code, "code")
            packed.add(wheels, "wheels")
            for name in names:
                if (folder := paths.data() / name).is_dir():  # digits come with the code
                    packed.add(folder, f"data/{name}")
    pieces = _cut(archive, piece)
    (out / "SHA256SUMS").write_text(checksums({path.name: path for path in pieces}))
    (out / "start.sh").write_bytes(git(root, "show", "HEAD:benchmarks/gpu_day/start.sh"))


def missing(there: Machine, extras: Sequence[str] = ()) -> list[str]:
    """NAME==VERSION, as installed here, of packages that runs and their tests need and that machine lacks; `extras`: optional parts of the project."""
    found: dict[str, str] = {}
    lines = (*TESTS, *(metadata.requires(PROJECT) or ()))
    todo = [(Requirement(line), extra) for line in lines for extra in ("", *extras)]
    while todo:
        requirement, extra = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in found or not there.needs(requirement, extra):
            continue
        try:
            found[name] = f"=={metadata.version(name).partition('+')[0]}"
        except metadata.PackageNotFoundError:  # needed by that Python only
            found[name] = str(requirement.specifier)
            continue
        own = [Requirement(line) for line in metadata.requires(name) or ()]
        todo += [(line, wanted) for line in own for wanted in ("", *requirement.extras)]
    return sorted(f"{name}{version}" for name, version in found.items())


def download(requirements: list[str], folder: Path, there: Machine) -> None:
    """Fetch a wheel of each into `folder`."""
    if not requirements:
        return
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--implementation=cp",
    ]
    command += [f"--python-version={there.python}", *(f"--platform={tag}" for tag in there.tags)]
    done = subprocess.run([*command, f"--dest={folder}", *requirements], capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"pip finds no wheels for Python {there.python} and {there.tags[0]}:\n{done.stderr}")


def _write_code(code: Path, root: Path, commit: str) -> None:
    """HEAD's files without the committed results, the name of the commit, and papermill's entry point of our engine."""
    archive = code.with_suffix(".tar")
    git(root, "archive", f"--output={archive}", "HEAD", ".", ":(exclude)results/reference")
    with tarfile.open(archive) as packed:
        packed.extractall(code, filter="data")
    (code / EXPORTED).write_text(commit)
    installed = metadata.distribution(PROJECT)
    described = code / f"{PROJECT.replace('-', '_')}-{installed.version}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PROJECT}\nVersion: {installed.version}\n")
    (described / "entry_points.txt").write_text(installed.read_text("entry_points.txt"))


def _cut(archive: Path, size: int) -> list[Path]:
    """Cut the archive into <archive>.00, .01, ... and remove it."""
    pieces = []
    with archive.open("rb") as whole:
        while part := whole.read(size):
            pieces.append(archive.with_name(f"{archive.name}.{len(pieces):02}"))
            pieces[-1].write_bytes(part)
    archive.unlink()
    return pieces


def _version(text: str) -> str:
    if not re.fullmatch(r"\d+\.\d+", text):
        raise ValueError(f"{text!r}: give two numbers, such as 3.11")
    return text


@click.command(context_settings={"show_default": True})
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--data", "names", multiple=True, default=["cifar10", "mnist"], metavar="NAME", help="A data set to include."
)
@click.option(
    "--extra", "extras", multiple=True, metavar="NAME", help="An optional part whose packages to include: mpi, cuda."
)
@click.option(
    "--have", type=click.File(), help="The output of `pip list --format=freeze` there. Default: nothing but torch."
)
@click.option("--python", default="{}.{}".format(*sys.version_info), type=_version, help="The Python there.")
@click.option("--glibc", default="2.28", type=_version, help="The C library there, `ldd --version`.")
@click.option("--machine", default=platform.machine(), help="The processor there, `uname -m`.")
@click.option("--piece", default=30, type=click.IntRange(1), help="Maximum size of a file, MiB.")
def main(out, names, extras, have, python, glibc, machine, piece):
    """Pack code, wheels and data into OUT for a machine without network."""
    lines = [line.partition("==") for line in have or ()]
    packages = {name.partition(" @ ")[0].strip(): version.strip() for name, _, version in lines if name.strip()}
    try:
        make(
            out,
            names,
            Machine(python, glibc, machine, packages),
            piece * 2**20,
            lambda line: click.echo(line, err=True),
            extras,
        )
    except (BundleError, ReleaseRefused, datasets.DataError) as error:
        raise click.ClickException(str(error)) from None
    for path in sorted(out.iterdir()):
        click.echo(f"{path.stat().st_size / 2**20:7.1f} MiB  {path}")


if __name__ == "__main__":
    main()
