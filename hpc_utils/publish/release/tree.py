"""The compendium's files as git has them."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hpc_utils.provenance.git import ELSEWHERE

SHOWN = 5  # names of files in a message


class ReleaseRefused(ValueError):
    """A release cannot be made of this tree; the message says why and what to do."""

    exit_code = 2


@dataclass(frozen=True)
class Tree:
    """All files of one commit: {path: content}, and of these the executable ones."""

    commit: str
    when: datetime  # UTC, the commit's
    files: dict[str, bytes]
    executable: frozenset[str]


def head(root: Path) -> Tree:
    """What HEAD holds, however the folder looks now.

    Raises:
        ReleaseRefused: `root` is not the top of a git repository with a commit.
    """
    answer = _git(root, "log", "-1", "--format=%H %ct").decode().split()
    files, executable = {}, set()
    # Attributes such as export-subst must not make of a file what it is not in the commit.
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", "--format=tar", "HEAD"))) as archive:
        for member in archive:
            if member.issym() or member.islnk():
                raise ReleaseRefused(
                    f"{member.name} is a link, which archives unpack differently: commit the file itself"
                )
            if member.isfile():
                files[member.name] = archive.extractfile(member).read()
                if member.mode & 0o100:
                    executable.add(member.name)
    return Tree(answer[0], datetime.fromtimestamp(int(answer[1]), UTC), files, frozenset(executable))


def tracked(root: Path) -> dict[str, bytes]:
    """The tracked files as they lie in the folder now; deleted ones are left out.

    Raises:
        ReleaseRefused: as `head`.
    """
    names = _git(root, "ls-files", "-z").decode().split("\0")
    return {name: (root / name).read_bytes() for name in names if name and (root / name).is_file()}


def changed(root: Path) -> list[str]:
    """What differs from HEAD or is not in git, ignored files aside; as git names it.

    Raises:
        ReleaseRefused: as `head`.
    """
    lines = _git(root, "status", "--porcelain", "-z", "--untracked-files=normal", "--no-renames").decode().split("\0")
    return [line[3:] for line in lines if line]


def named(names: list[str]) -> str:
    """The first few of `names`, for a message."""
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _git(root: Path, *arguments: str) -> bytes:
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    if not (root / ".git").exists():
        raise ReleaseRefused(f"{root} is no git clone: a release is made of a commit")
    try:
        return subprocess.run(
            ["git", "-C", str(root), "-c", "core.fsmonitor=false", *arguments],
            capture_output=True, check=True, env=environment, timeout=120,
        ).stdout  # fmt: skip
    except FileNotFoundError:
        raise ReleaseRefused("git is not installed: a release is made of a commit") from None
    except subprocess.CalledProcessError as error:
        raise ReleaseRefused(f"git {arguments[0]}: {error.stderr.decode(errors='replace').strip()}") from None
