"""Errors of the file system that a user can mend, in words: no permission, no room, a file where a folder is to be."""

from __future__ import annotations

import errno

_FORBIDDEN = "it may not be read or written by you: choose another place, or mend its permissions"
_FULL = "make room there (`df -h`, `quota -s`), and give the command again"
_OTHER = "remove it or rename it, or choose another place"
REMEDIES = {
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: _FORBIDDEN,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EEXIST: _OTHER,
    errno.ENOTDIR: _OTHER,
    errno.EISDIR: _OTHER,
}


def said(error: OSError) -> str | None:
    """What happened to which file, and what to do; None for errors that are no user's fault (a file that we lost)."""
    if error.errno not in REMEDIES:
        return None
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror}: {REMEDIES[error.errno]}"
