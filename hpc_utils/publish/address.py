"""The way from one file of this project to another, as a link that works from disk."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote


def relative(target: Path, folder: Path) -> str:
    """Address of `target` in a page or PDF that lies in `folder`: quoted, so that no name ends or breaks it."""
    return quote(os.path.relpath(target, folder).replace(os.sep, "/"))
