"""How profilers are called, and when not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import profilers
from hpc_utils.config import ConfigError


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nsys and ncu that say their version."""
    for name in ("nsys", "ncu"):
        (tmp_path / name).write_text("#!/bin/sh\necho NVIDIA Nsight version 2024.5.1.113-245134619542v0\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


@pytest.mark.parametrize(
    ("profile", "source"), [("nsys", "env/nsight.sh"), ("ncu", "module"), ("cpu", "pip install")]
)
def test_a_program_that_is_not_here_is_named_and_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: str, source: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(profilers.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ConfigError, match=f"profile='{profile}': {profilers.PROGRAMS[profile]} is not on.*{source}"):
        profilers.require(profile)
    profilers.require("torch")
    profilers.require(None)


def test_a_version_is_found_in_what_a_program_says(programs: Path) -> None:
    assert profilers.version("nsys") == "2024.5.1.113"


def test_only_the_window_is_watched(programs: Path) -> None:
    on_gpu, on_cpu = (profilers.command("nsys", Path("r"), gpu=gpu) for gpu in (True, False))
    assert {"--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--cuda-graph-trace=node"} <= set(on_gpu)
    assert {"--capture-range=nvtx", "--nvtx-capture=window", "--capture-range-end=stop"} <= set(on_cpu)
    counted = profilers.command("ncu", Path("/a%h/50%"), gpu=True)
    assert counted[counted.index("--profile-from-start") + 1] == "off"
    assert counted[-1] == "/a%%h/50%%", "a folder's name is no pattern"
