"""Paths that only one machine has, and its name."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpc_utils import paths

# Where people's and jobs' files lie on machines that we know.
GENERIC = re.compile(
    r"/(?:home|Users|root|work|tmp|var/tmp|scratch\w*|lustre|gpfs|project|projappl|p/project\w*|private/var|var/folders)"
    r"(?:/[^\s\"'`<>|,;:()\[\]\\*?#&!]+)+"
)
WINDOWS = re.compile(r"[A-Z]:\\{1,2}Users(?:\\{1,2}[^\s\"'\\]+)+")
INSIDE = re.compile(r"[\w.~$}\]-]")  # stands before what is but a part of a longer path or an address


def own() -> tuple[str, ...]:
    """What of this machine must stand in no file: the clone's, the results', the home and a virtual environment's folder,
    and the host's name where it says a domain. Folders right below / count only as a home: others' names are everybody's."""
    places = {paths.root(), paths.results(), *([Path(sys.prefix)] if sys.prefix != sys.base_prefix else ())}
    kept = {str(place) for place in {*places, Path.home()} if len(place.parts) > 2}
    if len(Path.home().parts) == 2:
        kept.add(f"{Path.home()}/")
    host = socket.getfqdn()
    if "." in host.strip(".") and not host.startswith("localhost"):
        kept.add(host)
    return tuple(sorted(kept))


def find(text: str, own: Sequence[str] = ()) -> Iterator[tuple[int, str, bool]]:
    """(offset, the path, whether it is one of `own`) of each path of a machine in `text`."""
    taken: set[int] = set()
    for place in own:
        end = "" if place.endswith("/") else r"(?![\w.-])"
        for found in re.finditer(re.escape(place) + end, text) if place in text else ():
            if not _inside(text, found.start()):
                taken.add(found.start())
                yield found.start(), place, True
    for form in (GENERIC, WINDOWS):
        for found in form.finditer(text):
            if found.start() not in taken and not _inside(text, found.start()):
                yield found.start(), found[0].rstrip(".…"), False


def _inside(text: str, start: int) -> bool:
    return start > 0 and INSIDE.match(text[start - 1]) is not None
