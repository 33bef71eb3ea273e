"""A release: one commit, its result sets and its documents as one archive, described as an RO-Crate (RELEASING.md).

`checklist` says what a release needs, `crate` describes it for catalogues, `archive` packs it.
"""

from __future__ import annotations
