"""Quantities typed by hand are found, in digits and in words, and what is no result may stand."""

from __future__ import annotations

import panflute as pf

from companions.documents import number_lint, pandoc

REFUSED = [
    "It is 72 % faster.", "It is 72% faster.", "It is 72&nbsp;&#37; more.", "It is &#55;2 percent more.",
    "seventy-two percent of it", "two thirds of the time", "a third of the time", "twice as fast", "half the time",
    "three times faster", "a tenfold gain", "72-fold", "an order of magnitude", "it halves the time", "two seconds later",
    "３.５ s", "٧٢ %", "7**2** s", "3 × faster", "a speed-up of 3.4", "~5 ms", "8-bit", "5 h", "in 2024 s", "95 % of runs",
    "Section 3 %", "[a link of 72 %](https://example.org)", "**Bold 72 %**", "\"72 %\"", "a factor of three",
    "efficiency:0.72", "step 3500 samples/s", "We measured 2024 samples/s.", "an efficiency of 95 % limits",
    "the 95 % level of it", "March 72 percent", "twice faster", "double speed", "a third faster", "two times faster",
    "a hundred-fold gain", "an efficiency was 1999", "a gain of 2001", "thrice faster", "it quadrupled", "item 72 percent",
    "65 node-hours", "500 000 core-hours", "1.5 million GPU hours", "sixty-five node-hours", "The speed-up is about two.",
]  # fmt: skip
MAY_STAND = [
    "ResNet-18 on CIFAR-10 with bf16 on an H200.", "on 2026-11-22 and 22 November 2026, in 2024", "Sections 3 and 4",
    "chapters 03 to 06; Figure 2a", "a 95 % interval and 90 % intervals", "[10 Gbit/s]{.setting}", "[94 %]{.cited} was found [@a].",
    "{{a.b|interval}} faster", "$2(n-1)$, $N=1$, $E = T_1/(N T_N)$, $1 + d$", "PyTorch 2.13, CC BY 4.0 and CUDA 12.4",
    "rank 0 and rank 1", "the `02_ddp` notebook with `p=8`", "run twice, on two nodes, in three repeats", "TRL 6, month 3 to 5",
    "<https://doi.org/10.1145/12.5>", "the first (1) and the second (2)", "the 1st and 3D",
    "$2\\lambda$, $\\frac{1}{2} m v^2$, $0$", "in 2024 the systems", "a gain of {{a.b}} times",
    "ResNet-18, CIFAR-10, H100, V100-SXM2, WP1 and M2, D1-D5", "GPT-4 and Llama-3", "of 2024, in May 2025", "Figures 1, 2 and 3",
    "fp16, bf16, fp32, int8, tf32, x86, ddp2x1", "`hpc run --devices 8`", "`batch_size=512`", "`p=0.9`", "`torch==2.13.0`", "steps 1 to 4",
    "on 12 March", "22 November 2026", "the third run", "speed-ups often", "Slurm 24.11", "page 72", "a quarter",
]  # fmt: skip


def lint(text: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What is found in a source with one cell."""
    return number_lint.lint(pandoc.parse(text.replace("{{a.b}}", "[]{.cell n=0}")))


def test_refused() -> None:
    tree = pandoc.parse("\n\n".join(REFUSED))
    missed = []
    for block, text in zip(tree.content, REFUSED, strict=True):
        if not number_lint.lint(pf.Doc(block))[0]:
            missed.append(text)
    assert missed == []


def test_may_stand() -> None:
    assert lint("\n\n".join(MAY_STAND))[0] == []


def test_quantities_are_found_in_every_kind_of_text() -> None:
    text = "# 1.5 s\n\n- 2.5 s\n\n> 3.5 s\n\n| 4.5 s | b |\n|---|---|\n| a | 5.5 s |\n\n![6.5 s](figure:a)\n\nx[^n]\n\n[^n]: 7.5 s\n\nTerm\n\n:   8.5 s\n"
    assert {passage for passage, _ in lint(text)[0]} == {f"{number}.5 s" for number in range(1, 9)}


def test_what_is_cited_needs_a_citation_in_its_sentence() -> None:
    refused, allowed = lint("Others reach [94 %]{.cited}. That is from elsewhere [@a].")
    assert [passage for passage, _ in refused] == ["[94 %]{.cited}"]
    assert allowed == [("94 %", "cited")]
