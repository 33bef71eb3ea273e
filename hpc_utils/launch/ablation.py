"""An ablation (`[ladder]` of a study file): the plain loop, and changes that make it fast, each alone and
cumulatively.

`[[ladder.steps]]` are one change each, in their order. What helps alone may not help after another change, or only
after it: both are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import Field, PositiveInt, model_validator

from hpc_utils.records.study import AblationIndex, MeasuredStep, Step
from hpc_utils.toml_config import Strict

PLAIN = "plain"


class Ablation(Strict):
    """The plain loop on a number of ranks, and the steps from it."""

    notebook: str
    ranks: PositiveInt = 1
    ranks_per_node: PositiveInt | None = None
    parameters: dict[str, Any] = Field({})
    alone: bool = True  # also measure each change by itself
    steps: list[Step] = Field(min_length=1)

    @model_validator(mode="after")
    def _each_step_is_another_change(self) -> Ablation:
        names = [step.name for step in self.steps]
        for step in self.steps:
            if names.count(step.name) > 1:
                raise ValueError(f"two steps are named {step.name!r}: each step has a name of its own")
            if step.parameters.items() <= self.parameters.items():
                values = ", ".join(f"{name}={value}" for name, value in step.parameters.items())
                raise ValueError(f"step {step.name!r} changes nothing: the plain loop has {values} already")
        return self

    def index(self, refusal: Callable[[Mapping[str, Any]], str]) -> AblationIndex:
        """Its part of the study's index; a step that `refusal` rejects is not among those that follow each other."""
        steps = []
        for step in self.steps:
            why = refusal(step.parameters)
            upto = None if why else f"upto-{step.name}"
            steps.append(MeasuredStep(**step.model_dump(), alone=f"alone-{step.name}", upto=upto, why=why))
        return AblationIndex(plain=PLAIN, ranks=self.ranks, parameters=self.parameters, steps=steps)

    def series(self, refusal: Callable[[Mapping[str, Any]], str]) -> dict[str, dict[str, Any]]:
        """{series: its changes of the plain loop}: none; each step alone, if asked for; all steps up to each one."""
        steps = self.index(refusal).steps
        so_far = {}
        changes = {PLAIN: {}} | {step.alone: step.parameters for step in steps if self.alone}
        for step in filter(lambda step: step.upto, steps):
            so_far = so_far | step.parameters
            changes[step.upto] = so_far
        return changes
