"""What must be true of every file that leaves the house: no secret, no machine's path, no size that git chokes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from . import places, secrets, texts
from .allowed import Allowed

SMALL = 2**20  # bytes: what is larger belongs to an archive, not to git
SHOWN = 3  # findings of one kind in one file


def faults(files: Mapping[str, bytes], allowed: Allowed, own: Sequence[str] | None = None) -> list[str]:
    """A sentence for each secret and each machine's path in `files` ({path: content}), and what to do about it.

    `own`: what of this machine must not appear; by default as `places.own` has it.
    """
    own = places.own() if own is None else own
    return [line for name, content in sorted(files.items()) for line in _file(name, content, allowed, own)]


def large(files: Mapping[str, bytes], allowed: Allowed) -> list[str]:
    """A sentence for each file above 1 MiB, or above what the list allows it."""
    found = []
    for name, content in sorted(files.items()):
        most = max(SMALL, allowed.size(name))
        if len(content) > most:
            found.append(
                f"{name} has {len(content) / 2**20:.1f} MiB, git holds at most {most / 2**20:g} MiB of it: leave it to the "
                "archive (results/README.md, 'What is kept where'), or list it with a reason in publish/release/allowed.toml"
            )
    return found


def _file(name: str, content: bytes, allowed: Allowed, own: Sequence[str]) -> Iterator[str]:
    if secrets.by_name(name):
        yield f"{name}: files of this kind hold keys, or a program's whole environment: take it out of git, and its history"
    seen: dict[str, int] = {}
    for where, text in texts.of(name, content):
        for offset, kind in secrets.find(text):
            if not allowed.is_secret(name, kind) and _counted(seen, kind):
                yield f"{_at(where, text, offset)}: {kind}: revoke it, and take it out of the file and of git's history"
        for offset, path, mine in places.find(text, own):
            if (mine or not allowed.is_place(name, path)) and _counted(seen, path):
                whose = "this machine" if mine else "some machine"
                yield (
                    f"{_at(where, text, offset)}: {path[:80]}, which {whose} alone has: write it relative, or, if it is right "
                    "there, list it with a reason in publish/release/allowed.toml"
                )


def _counted(seen: dict[str, int], what: str) -> bool:
    """Whether to tell of it: once each, and no more than a few in one file."""
    if what in seen or len(seen) >= SHOWN:
        return False
    seen[what] = 1
    return True


def _at(where: str, text: str, offset: int) -> str:
    return f"{where}:{text.count(chr(10), 0, offset) + 1}"
