"""Front matter is read strictly, and held to the rules for numbers wherever it is printed."""

from __future__ import annotations

import pytest

from .conftest import PAPER, Paper


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("affiliation: University of Examples", "affiliation: 72.3 percent efficient"),
        ("name: Ada Example", "name: We measured 72 %"),
        ("short: Small", "version: speed 1.36x"),
        ("short: Small", "date: a speedup of 1.36x"),
        ("short: Small", 'note: "gain {{no.such}}"'),
        ("short: Small", 'short: "{{no.such}}"'),
        ("keywords: [scaling, values]", 'keywords: ["{{no.such}}"]'),
        ("keywords: [scaling, values]", "keywords: [72 % efficient]"),
        ("keywords: [scaling, values]", "keywords: [1, 2]"),
        ("short: Small", "subtitle: 72.3"),
        ("short: Small", "subtitle: {a: b}"),
        ("short: Small", "note: [1, 2]"),
        ("title: A small study", 'title: ""'),
        ("title: A small study", 'title: "# A study"'),
        ("title: A small study", "title: 3"),
        ("  - name: Ada Example", "  - nam: Ada Example"),
        ("affiliation: University of Examples", "affiliatio: University"),
        ("affiliation: University of Examples", "affiliation: [University]"),
    ],
)
def test_refused_with_its_line(paper: Paper, old: str, new: str) -> None:
    key = new.partition(":")[0] if old.partition(":")[0] in ("short", "title", "keywords") else "author"
    changed = PAPER.replace(old, new, 1)
    line = next(number for number, text in enumerate(changed.split("\n"), 1) if text.startswith(f"{key}:"))
    paper.put(changed)
    assert paper.faults()[0].startswith(f"paper/paper.md:{line}: ") or "title" in new
    assert paper.faults()


@pytest.mark.parametrize(
    "front",
    [
        "author: 3",
        "author: Bob",
        "author: [Bob]",
        'abstract: ""',
        "abstract: [1, 2]",
        "abstract: 72.3",
        "date: 2026-02-31",
        "short:",
    ],
)
def test_wrong_kinds_are_faults(paper: Paper, front: str) -> None:
    paper.put(f"---\ntitle: A study\n{front}\n---\n\n# A head\n\nText.\n")
    assert paper.faults()[0].startswith("paper/paper.md:")


def test_versions_and_dates_may_stand(paper: Paper) -> None:
    paper.put(
        "---\ntitle: A study\nversion: 1.2.0\ndate: 2026-11-22\nnote: Draft of November 2026\n---\n\n# A head\n\nText.\n"
    )
    assert paper.faults() == []


@pytest.mark.parametrize("body", ["", "::: x\n:::"])
def test_an_empty_text_is_no_traceback(paper: Paper, body: str) -> None:
    paper.put(f"---\ntitle: A study\n---\n{body}\n")
    assert bool(paper.faults()) == (body == "")
