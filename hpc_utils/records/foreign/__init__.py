"""Other people's results: a CSV of theirs read through a small mapping file, checked as our own records are, and kept.

    found = foreign.read(Path("theirs.csv"), Path("theirs.toml"), "thesis-2024")
    foreign.keep(found, provenance)        # results/foreign/thesis-2024/
    runs = foreign.load()                  # one frame, `foreign` names the set

`mapping` says what a mapping file holds, `table` reads cells, `judge` checks a row, `runs` joins rows to runs, `kept`
is the folder; `draft` writes a first mapping from a header by what `guess` thinks of it.
"""

from .errors import ForeignError
from .kept import keep, load
from .runs import Foreign, read

__all__ = ["Foreign", "ForeignError", "keep", "load", "read"]
