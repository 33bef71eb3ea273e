"""Relative links between files, which work from disk."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote


def relative(target: Path, folder: Path) -> str:
    """The quoted URL of `target` relative to `folder`."""
    return quote(os.path.relpath(target, folder).replace(os.sep, "/"))
