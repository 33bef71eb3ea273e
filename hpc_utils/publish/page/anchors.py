"""Names of places in a page, each given once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


def slug(text: str) -> str:
    """`text` as an anchor: lower case, dashes between words."""
    return re.sub(r"[\W_]+", "-", text.lower()).strip("-") or "section"


def unique(slugs: Iterable[str], taken: set[str]) -> Iterator[str]:
    """The same slugs, told apart by a number where they are in `taken`, which they join."""
    for slug in slugs:
        name, number = slug, 1
        while name in taken:
            number += 1
            name = f"{slug}-{number}"
        taken.add(name)
        yield name
