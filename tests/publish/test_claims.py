"""A judged claim in words, and the project's own claims."""

from __future__ import annotations

from hpc_utils import paths
from hpc_utils.analyze import claims
from hpc_utils.analyze.value import Value
from hpc_utils.publish import claims as words

TEXT = """
[speed]
sentence = "It is at least {at_least} times as fast"
tests = [{ value = "x.gain", at_least = 1.2 }]
[planned]
sentence = "It reaches {at_least}"
tests = [{ value = "x.later", at_least = 0.7, unit = "share" }]
planned = true
"""


def judged(tmp_path, low: float) -> list[claims.Judged]:
    path = tmp_path / "claims.toml"
    path.write_text(TEXT)
    found = Value("x.gain", 1.36, "ratio", "x", low, 1.48, 5)
    return claims.judge(claims.read(path), {"x.gain": found})


def test_a_statement_is_the_sentence_its_verdict_and_the_value_that_decides(tmp_path) -> None:
    speed, planned = judged(tmp_path, 1.25)
    assert words.statement(speed).replace("\u00a0", " ") == (
        "It is at least 1.2 times as fast (**the data support it**: 1.36 [1.25, 1.48], at least 1.2 claimed, 5 repeats)"
    )
    assert words.statement(planned).replace("\u00a0", " ") == "It reaches 70 % (**not measured yet**)"
    assert set(words.WORDS) == set(claims.VERDICTS)


def test_a_build_lists_what_fails_and_not_what_is_planned(tmp_path) -> None:
    assert words.failing(judged(tmp_path, 1.25)) == []
    assert words.failing(judged(tmp_path, 1.1))[0].startswith("speed: undecided: 1.36")


def test_our_own_claims_are_sound() -> None:
    found = claims.read(paths.root() / "paper/claims.toml")
    assert any(claim.planned for claim in found.values())
    names = {test.value.partition(":")[0] for claim in found.values() for test in claim.tests if not claim.planned}
    assert names == {"laptop", "rehearsal", "shares", "avx512"}, "the sets of paper.toml"
