"""Claims in a document: what may stand in their sentences, and how they are printed; and the project's own claims."""

from __future__ import annotations

import pytest

from .conftest import Paper

CLAIM = """
[two-ranks]
sentence = "{sentence}"
tests = [{{ value = "laptop:efficiency[world_size=2]", at_least = 0.5{more} }}]
"""


@pytest.mark.parametrize(
    ("sentence", "more"),
    [
        ("bf16 is twice as fast", ""), ("It is as [@amdahl1967] says", ""), ("It is {{{{link.bandwidth}}}}", ""), ("- It holds", ""),
        ("It is at least {at_least}", ', called = "twice as fast"'),
    ],
)  # fmt: skip
def test_what_a_sentence_and_the_name_of_a_condition_may_not_hold(paper: Paper, sentence: str, more: str) -> None:
    paper.put(CLAIM.format(sentence=sentence, more=more), "claims.toml")
    paper.say("As [@amdahl1967] says, {{claim:two-ranks}}.")
    assert any(fault.startswith("paper/claims.toml:2: two-ranks") for fault in paper.faults())


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("gpu:eficiency[world_size=8]", "did you mean efficiency?"),
        ("gpu:efficiency[world_sise=8]", "has no column 'world_sise': did you mean world_size?"),
        ("gpu:efficiency[world_size=8]", ""),
        ("gpu:another[x=1]", ""),
    ],
)
def test_a_misspelt_name_in_a_planned_claim_is_a_fault(paper: Paper, cell: str, said: str) -> None:
    text = f'[later]\nsentence = "It holds"\nplanned = true\ntests = [{{ value = "{cell}", at_least = 0.5 }}]\n'
    paper.put(text, "claims.toml")
    paper.say("We say that {{claim:later}}.")
    found = paper.faults("paper")
    assert bool(found) == bool(said)
    assert all(one.startswith("paper/claims.toml:1: later: ") and said in one for one in found)
