"""Claims judged against hand-made values: every verdict, and everything that is refused, with file and place."""

from __future__ import annotations

from pathlib import Path

import pytest

from companions.documents import claims
from companions.documents.claims import ClaimError
from hpc_utils import paths
from hpc_utils.analyze.value import Value
from tests import pins

GAIN = "avx512:speed-gains[step=bf16]"
EQUAL = "avx512:speed-learnt.verdict[step=bf16]"
STRONG = "workload=cnn precision={} kind=strong fixed_batch=512 scheme=ddp baseline=none layout=1x2"
ALONE = "workload=cnn precision=bf16 parallel=none layout=1x1 device_batch=512 batch=512"
LIMITS = paths.root() / "companions/limits/tests/pins.json"


def of_limits(*condition: str) -> object:
    """A condition on what the companion `limits` pins, if that is there."""
    absent = pytest.mark.skipif(not LIMITS.exists(), reason="the companion limits was deleted")
    return pytest.param(str(LIMITS.with_suffix("")), "model: errors", "held out", *condition, marks=absent)


def value(number: float | str, low: float = float("nan"), high: float = float("nan"), **more) -> Value:
    unit = "text" if isinstance(number, str) else "ratio"
    return Value(GAIN, number, **{"unit": unit, "caption": "x", "low": low, "high": high, "repeats": 5} | more)


def say(found: Value) -> str:
    return f"<{found.value}>"


def read(tmp_path: Path, text: str) -> claims.Claims:
    path = tmp_path / "claims.toml"
    path.write_text(text)
    return claims.read_claims(path)


@pytest.fixture
def judge(tmp_path: Path):
    """The verdict on one condition of `GAIN`, and why."""

    def judge(condition: str, found: Value | None, more: str = "") -> claims.Judged:
        text = f'[one]\nsentence = "It is so"\ntests = [{{ value = "{GAIN}", {condition} }}]\n{more}'
        (judged,) = claims.judge(read(tmp_path, text), ({GAIN: found} if found else {}).__getitem__, say)
        return judged

    return judge


@pytest.mark.parametrize(
    ("condition", "found", "verdict"),
    [
        ("at_least = 1.2", value(1.36, 1.25, 1.48), "supported"),
        ("at_least = 1.25", value(1.36, 1.25, 1.48), "supported"),
        ("at_least = 1.3", value(1.36, 1.25, 1.48), "undecided"),
        ("at_least = 1.5", value(1.36, 1.25, 1.48), "refuted"),
        ("at_most = 1.5", value(1.36, 1.25, 1.48), "supported"),
        ("at_most = 1.48", value(1.36, 1.25, 1.48), "supported"),
        ("at_most = 1.3", value(1.36, 1.25, 1.48), "undecided"),
        ("at_most = 1.2", value(1.36, 1.25, 1.48), "refuted"),
        ("at_least = 1.2", value(1.36), "undecided"),  # repeated, and still without an interval
        ("at_least = 1.2", value(1.36, repeats=0), "supported"),  # a count is what it is
        ("at_most = 1.2", value(1.36, repeats=0), "refuted"),
        ("at_least = 1.2", value(1.36, 1.1, 1.48, repeats=0), "undecided"),  # of a fit
        ("at_least = 1.2", value(1.36, 1.3, 1.4, repeats=2), "too few repeats"),
        ("at_least = 1.5", value(1.36, 1.3, 1.4, repeats=2), "too few repeats"),
        ('is = "equal"', value("equal"), "supported"),
        ('is = "equal"', value("differs"), "refuted"),
        ('is = "equal"', value("not enough evidence"), "undecided"),
        ('is = "equal"', value("equal", repeats=2), "too few repeats"),
        ('is = "met"', value("not measured"), "not measured"),
        ('is = "met"', value("undecided"), "undecided"),
        ('is = "slower"', value("within noise"), "undecided"),
        ('is = "slower"', value("a single run"), "too few repeats"),
        ('is = "compute"', value("communication", repeats=0), "refuted"),
    ],
)
def test_the_whole_interval_decides(judge, condition: str, found: Value, verdict: str) -> None:
    judged = judge(condition, found)
    assert judged.verdict == verdict
    assert judged.fails == (verdict != "supported")


def test_too_few_repeats_states_how_many_of_how_many(judge) -> None:
    found = value(1.36, 1.3, 1.4, repeats=5)
    assert "5 of at least 6 repeats" in judge("at_least = 1.2", found, "min_repeats = 6").why
    assert judge("at_least = 1.2", found, "min_repeats = 5").verdict == "supported"


def test_what_is_planned_is_not_measured_until_it_is(judge) -> None:
    waiting = judge("at_least = 1.2", None, "planned = true")
    assert (waiting.verdict, waiting.fails, waiting.why) == ("not measured", False, "not measured yet")
    assert judge("at_least = 1.5", value(1.36, 1.25, 1.48), "planned = true").fails


@pytest.mark.parametrize(
    ("condition", "found", "why"),
    [
        ("at_least = 1.2", value(1.36, 1.25, 1.48), "<1.36>, at least 1.2 claimed, 5 repeats"),
        ("at_least = 1.4", value(1.36, 1.25, 1.48), "<1.36>, at least 1.4 claimed, the bound lies in the interval"),
        ("at_most = 0.9", value(0.72, 0.64, 0.81, unit="share"), "<0.72>, at most 90\u00a0% claimed, 5 repeats"),
        ('is = "equal"', value("equal"), "<equal>, 5 repeats"),
        ('is = "equal"', value("differs"), "<differs>, equal claimed, 5 repeats"),
    ],
)
def test_why_shows_value_bound_and_repeats(judge, condition: str, found: Value, why: str) -> None:
    assert judge(condition, found).why == why


BOTH = f"""
[bf16-speed]
sentence = "bf16 is at least {{at_least}} times as fast, and {{is}} its margin"
tests = [
    {{ value = "{GAIN}", at_least = 1.2, called = "gain" }},
    {{ value = "{EQUAL}", is = "equal" }},
]
"""


@pytest.mark.parametrize(
    ("gain", "equal", "verdict"),
    [
        (value(1.36, 1.25, 1.48), value("equal"), "supported"),
        (value(1.36, 1.15, 1.48), value("equal"), "undecided"),
        (value(1.36, 1.15, 1.48), value("equal", repeats=1), "too few repeats"),
        (value(1.36, 1.25, 1.48), value("differs"), "refuted"),
        (value(1.36, 1.25, 1.48, repeats=1), value("differs"), "refuted"),
    ],
)
def test_a_conjunction_is_as_good_as_its_worst(tmp_path: Path, gain: Value, equal: Value, verdict: str) -> None:
    (judged,) = claims.judge(read(tmp_path, BOTH), {GAIN: gain, EQUAL: equal}.__getitem__, say)
    assert judged.verdict == verdict
    assert judged.values == (GAIN, EQUAL)
    first, second = judged.why.split("; " + EQUAL)
    assert first.startswith("gain: <1.36>") and str(equal.value) in second
    assert judged.sentence == "bf16 is at least 1.2 times as fast, and equal its margin"


def test_half_of_a_planned_claim_may_be_refuted_already(tmp_path: Path) -> None:
    planned = read(tmp_path, BOTH + "planned = true\n")
    (waits,) = claims.judge(planned, {EQUAL: value("equal")}.__getitem__, say)
    (wrong,) = claims.judge(planned, {EQUAL: value("differs")}.__getitem__, say)
    assert (waits.verdict, wrong.verdict) == ("not measured", "refuted")
    assert waits.values == (EQUAL,), "only on what is measured"
    assert waits.sentence.startswith("bf16 is at least 1.2 times")


def test_a_bound_that_needs_a_unit_has_it(tmp_path: Path) -> None:
    text = '[a]\nsentence = "It reaches {at_least}"\nplanned = true\ntests = [{ value = "x.y", at_least = 0.7, unit = "share" }]'
    (judged,) = claims.judge(read(tmp_path, text), {}.__getitem__, say)
    assert judged.sentence == "It reaches 70\u00a0%"
    with pytest.raises(ClaimError, match="is in 'ratio', not in 'share'"):
        claims.judge(read(tmp_path, text), {"x.y": value(0.8, repeats=0)}.__getitem__, say)


def test_places_name_a_condition_where_several_have_the_bound(tmp_path: Path) -> None:
    text = """
    [a]
    sentence = "Between {at_most.1} and {at_most.2}"
    tests = [{ value = "x.y", at_most = 5 }, { value = "x.z", at_most = 10 }]
    planned = true
    """
    assert claims.judge(read(tmp_path, text), {}.__getitem__, say)[0].sentence == "Between 5 and 10"
    with pytest.raises(ClaimError, match=r"a: \{at_most\} in the sentence is the bound of 2"):
        read(tmp_path, text.replace("{at_most.1}", "{at_most}"))


@pytest.mark.parametrize(
    ("claim", "place", "message"),
    [
        ('sentence = "S"\ntests = []', "one.tests", "at least 1 item"),
        ('sentence = "S"', "one.tests", "this key is needed"),
        ('tests = [{ value = "x.y", is = "met" }]', "one.sentence", "this key is needed"),
        ('sentence = "S"\ntests = [{ value = "x.y" }]', "one.tests.0", "one of at_least, at_most and is"),
        ('sentence = "S"\ntests = [{ value = "x.y", at_least = 1, at_most = 2 }]', "one.tests.0", "one of at_least, at_most and is"),
        ('sentence = "S"\ntests = [{ value = "x.y", at_least = nan }]', "one.tests.0.at_least", "finite"),
        ('sentence = "S"\ntests = [{ value = "x.y", at_least = true }]', "one.tests.0.at_least", "valid number"),
        ('sentence = "S"\ntests = [{ value = "x.y", is = "" }]', "one.tests.0.is", "at least 1 character"),
        ('sentence = "# S"\ntests = [{ value = "x.y", is = "met" }]', "one.sentence", "starts with a word"),
        ('sentence = "as @knuth84"\ntests = [{ value = "x.y", is = "met" }]', "one.sentence", "starts with a word"),
        ('sentence = "S"\nmin_repeats = 1\ntests = [{ value = "x.y", is = "met" }]', "one.min_repeats", "equal to 2"),
        ('sentence = "{at_most}"\ntests = [{ value = "x.y", at_least = 0.7 }]', "one", "bound of 0 conditions"),
        ('sentence = "{at_least.2}"\ntests = [{ value = "x.y", at_least = 0.7 }]', "one", "bound of 0 conditions"),
    ],
)  # fmt: skip
def test_a_wrong_claim_is_refused_with_file_and_place(tmp_path: Path, claim: str, place: str, message: str) -> None:
    with pytest.raises(ClaimError) as refused:
        read(tmp_path, f"[one]\n{claim}\n")
    assert f"{tmp_path / 'claims.toml'}: {place}: " in str(refused.value)
    assert message in str(refused.value)


def test_all_faults_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ClaimError) as refused:
        read(tmp_path, 'loose = 1\n[one]\nsentence = "S"\n[two]\nsentence = "S"\ntests = [{ value = "x.y" }]\n')
    assert [line.split(": ")[1] for line in str(refused.value).splitlines()] == ["loose", "one.tests", "two.tests.0"]
    with pytest.raises(ClaimError, match=r"claims\.toml: Bad_Name: a claim's name has"):
        read(tmp_path, '[Bad_Name]\nsentence = "S"\ntests = [{ value = "x.y", is = "met" }]\n')


@pytest.mark.parametrize(
    ("condition", "found", "message"),
    [
        ("at_least = 1.2", value("equal"), "is a text ('equal'): compare it with is"),
        ('is = "met"', value(1.36, 1.3, 1.4), "is a number (1.36): compare it with at_least or at_most"),
        ('is = "equal within"', value("equal"), "is never 'equal within', but one of equal,"),
        ("at_least = 70", value(0.72, 0.64, 0.81, unit="share"), "70 would be 7000 %; write 0.7"),
    ],
)
def test_a_bound_that_cannot_be_one_of_the_value_is_refused(
    judge, condition: str, found: Value, message: str
) -> None:
    with pytest.raises(ClaimError) as refused:
        judge(condition, found)
    assert "claims.toml: one.tests.1: " in str(refused.value) and message in str(refused.value)


def test_a_missing_cell_is_a_fault_with_its_error(tmp_path: Path) -> None:
    def find(name: str) -> Value:
        raise LookupError(f"near {name} is another")

    with pytest.raises(ClaimError) as refused:
        claims.judge(read(tmp_path, BOTH), find, say)
    lines = str(refused.value).splitlines()
    assert len(lines) == 2, "both conditions at once"
    assert f"claims.toml: bf16-speed.tests.1: near {GAIN} is another" in lines[0]


@pytest.mark.parametrize(
    ("name", "subject", "row", "quantity", "condition", "verdict"),
    [
        ("epyc-2core", "efficiency", STRONG.format("bf16"), "efficiency", "at_least = 0.7", claims.UNDECIDED),
        ("epyc-2core", "efficiency", STRONG.format("fp32"), "efficiency", "at_least = 0.7", claims.SUPPORTED),
        ("epyc-2core", "precision gain", ALONE, "gain", "at_least = 1.4", claims.SUPPORTED),
        ("epyc-avx512", "optimization-cpu: best", "all", "gain", "at_least = 3.0", claims.UNDECIDED),
        ("epyc-avx512", "optimization-cpu: gains", "step=bf16", "marginal", "at_least = 1.2", claims.SUPPORTED),
        ("epyc-avx512", "optimization-cpu: gains", "step=compile", "marginal", "at_most = 1.0", claims.SUPPORTED),
        ("epyc-avx512", "optimization-resnet-cpu: best", "all", "gain", "at_least = 1.8", claims.UNDECIDED),
        of_limits("median_error", "at_most = 0.05", claims.UNDECIDED),
        of_limits("worst_error", "at_most = 0.1", claims.REFUTED),
    ],
)
def test_the_verdicts_on_pinned_numbers_stay(
    judge, name: str, subject: str, row: str, quantity: str, condition: str, verdict: str
) -> None:
    found = pins.read(name)[subject][row]
    number, low, high = found[quantity]
    assert judge(condition, value(number, low, high, repeats=found["repeats"])).verdict == verdict
