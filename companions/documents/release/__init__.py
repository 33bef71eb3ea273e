"""A release: one commit, its result sets and its documents as one archive, described as an RO-Crate (RELEASING.md).

`checklist` checks the requirements, `crate` describes the release for catalogues, `archive` packs it; `course` packs a course's repository.
"""

from __future__ import annotations
