"""Paths that only one machine has, and its name."""

from __future__ import annotations

import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpc_utils import paths

# Where people's and jobs' files lie on machines that we know.
GENERIC = re.compile(
    r"/(?:home|Users|root|work|tmp|var/tmp|scratch\w*|lustre|gpfs|project|projappl|p/project\w*|private/var)"
    r"(?:/[^\s\"'`<>|,;:()\[\]\\*?#&!]+)+"
)
WINDOWS = re.compile(r"[A-Z]:\\{1,2}Users(?:\\{1,2}[^\s\"'\\]+)+")
INSIDE = re.compile(r"[\w.~$}\]-]")  # stands before what is but a part of a longer path or an address


def own() -> tuple[str, ...]:
    """What of this machine must stand in no file: the clone's, the results', the home and the environment's folder,
    the folder for temporary files where it is not /tmp, and the host's name where it says a domain."""
    places = {paths.root(), paths.results(), Path.home(), Path(sys.prefix)}
    places |= {Path(tempfile.gettempdir())} - {Path("/tmp")}
    kept = {str(place) for place in places if len(place.parts) > 2} | {
        f"{place}/" for place in places if len(place.parts) == 2
    }
    host = socket.getfqdn()
    return tuple(sorted(kept | ({host} if "." in host.strip(".") and not host.startswith("localhost") else set())))


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
