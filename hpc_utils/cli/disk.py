"""Errors of the file system that a user can mend, in words: no permission, no room, a file where a folder is to be."""

from __future__ import annotations

import errno

_FORBIDDEN = (
    "it, or the folder it lies in, may not be read or written by you: choose another place, or mend its permissions"
)
_FULL = "make room there (`df -h`, `quota -s`), and give the command again"
_TAKEN = "remove it or rename it, or choose another place"
REMEDIES = {
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EEXIST: _TAKEN,
    errno.EISDIR: _TAKEN,
    errno.ENOTDIR: "something above it is a file: remove or rename that, or choose another place",
}


def said(error: OSError) -> str | None:
    """What happened to which file, and what to do; None for errors that are no user's fault (a file that we lost)."""
    remedy = REMEDIES.get(error.errno)
    file = error.filename if error.filename2 is None else error.filename2  # of a copy, where it was to go
    if file is None and remedy is not _FULL:  # it may be about a process or a socket
        return None
    where = "" if file is None else f"{file}: "
    return remedy and f"{where}{error.strerror}: {remedy}"
