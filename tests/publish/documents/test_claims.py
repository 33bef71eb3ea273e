"""Claims in a document: what may stand in their sentences, and how they are printed; and the project's own claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.analyze import claims
from hpc_utils.analyze.value import Value
from hpc_utils.publish import formatting
from hpc_utils.publish.documents.claims import WORDS, statement

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
    ],
)
def test_a_misspelt_name_in_a_planned_claim_is_a_fault(paper: Paper, cell: str, said: str) -> None:
    text = f'[later]\nsentence = "It holds"\nplanned = true\ntests = [{{ value = "{cell}", at_least = 0.5 }}]\n'
    paper.put(text, "claims.toml")
    paper.say("We say that {{claim:later}}.")
    found = paper.faults("paper")
    assert bool(found) == bool(said)
    assert all(one.startswith("paper/claims.toml:1: later: ") and said in one for one in found)


def test_a_statement_is_the_sentence_its_verdict_and_the_value_that_decides(tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    tests = 'tests = [{ value = "x.gain", at_least = 1.2 }]'
    path.write_text(f"""[speed]\nsentence = "It is at least {{at_least}} times as fast"\n{tests}
[planned]\nsentence = "It reaches {{at_least}}"\ntests = [{{ value = "x.later", at_least = 0.7, unit = "share" }}]
planned = true\n""")
    found = Value("x.gain", 1.36, "ratio", "x", 1.25, 1.48, 5)
    speed, planned = claims.judge(
        claims.read(path), {"x.gain": found}.__getitem__, lambda value: formatting.text(value, "interval")
    )
    assert statement(speed).replace("\u00a0", " ") == (
        "It is at least 1.2 times as fast (**the data support it**: 1.36 [1.25, 1.48], at least 1.2 claimed, 5 repeats)"
    )
    assert statement(planned).replace("\u00a0", " ") == "It reaches 70 % (**not measured yet**)"
    assert not planned.fails and set(WORDS) == set(claims.VERDICTS)


def test_our_own_claims_are_sound() -> None:
    found = claims.read(paths.root() / "paper/claims.toml")
    assert any(claim.planned for claim in found.values())
    sets = {test.value.partition(":")[0] for claim in found.values() for test in claim.tests if not claim.planned}
    assert sets == {"laptop", "rehearsal", "shares", "avx512", "mpi", "gpu"}, "the sets of paper.toml"
