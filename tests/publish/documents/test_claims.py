"""Claims in a document: what may stand in their sentences, and how they are printed among other text."""

from __future__ import annotations

import pytest

from .conftest import Paper
from .test_build import text

CLAIM = """
[two-ranks]
sentence = "{sentence}"
tests = [{{ value = "laptop:efficiency[world_size=2]", at_least = 0.5{more} }}]
"""


def claim(paper: Paper, sentence: str = "The efficiency is at least {at_least}", more: str = "") -> list[str]:
    paper.put(CLAIM.format(sentence=sentence, more=more), "claims.toml")
    paper.say("As @li2020ddp and [@amdahl1967] say, {{claim:two-ranks}}, and so does @li2020ddp.\n\n{{claims}}")
    return paper.faults("paper")


def test_a_claim_stands_among_citations(paper: Paper) -> None:
    assert claim(paper) == []
    paper.build("paper")
    assert (
        text(paper.folder / "build/paper.pdf").count("The efficiency is at least 50 % (the data support it: 72.3 %")
        == 2
    )


@pytest.mark.parametrize(
    "sentence",
    [
        "bf16 is twice as fast", "An efficiency of 0.72 holds", "There is a factor of two", "It is seventy percent",
        "It is as [@amdahl1967] says", "It is as @amdahl1967 says", "It is {{{{link.bandwidth}}}}", "# It holds", "- It holds",
        "1. It holds", "    It holds", "It\\n\\nholds", "(i) It holds", "It <b>holds</b>", "It holds [^1]", "![x](figure:efficiency)",
    ],
)  # fmt: skip
def test_what_a_sentence_may_not_hold(paper: Paper, sentence: str) -> None:
    found = claim(paper, sentence)
    assert found
    assert all(fault.startswith(("paper/claims.toml", "paper/paper.md")) for fault in found), found
    assert any(fault.startswith("paper/claims.toml:2: two-ranks") for fault in found) or "<b>" in sentence


@pytest.mark.parametrize("called", ["gain 72 percent", "twice as fast", "@amdahl1967"])
def test_what_a_condition_may_not_be_called(paper: Paper, called: str) -> None:
    assert claim(paper, more=f', called = "{called}"')[0].startswith("paper/claims.toml:2: two-ranks")


def test_claims_that_are_not_utf8(paper: Paper) -> None:
    claim(paper)
    (paper.folder / "claims.toml").write_bytes(b"\xff")
    assert "paper/claims.toml: not TOML" in paper.faults()[0]
