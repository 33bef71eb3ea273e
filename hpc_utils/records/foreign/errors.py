"""What can be wrong with somebody else's results."""

from __future__ import annotations


class ForeignError(ValueError):
    """A file of foreign results, or its mapping, cannot be used; names the file, the key or line, and what to do."""

    exit_code = 2


class RowFault(ValueError):
    """One row cannot be used; the message says why."""
