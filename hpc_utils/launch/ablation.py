"""An ablation (`[ladder]` of a study file): the plain loop, and changes that make it fast, each alone and cumulatively.

`[[ladder.steps]]` are one change each, in their order. What helps alone may not help after another change, or only after
it: both are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import Field, field_validator, model_validator

from hpc_utils.records.study import AblationIndex, MeasuredStep, Step
from hpc_utils.toml_config import Strict

PLAIN = "plain"


class Configuration(NamedTuple):
    """One configuration of an ablation: its series, and its changes of the plain loop."""

    series: str
    changes: dict[str, Any]


class Ablation(Strict):
    """The plain loop on a number of ranks, and the steps from it."""

    notebook: str
    ranks: int = Field(1, ge=1)
    ranks_per_node: int | None = Field(None, ge=1)
    parameters: dict[str, Any] = Field({})
    steps: list[Step] = Field(min_length=1)

    @field_validator("steps")
    @classmethod
    def _one_of_each(cls, steps: list[Step]) -> list[Step]:
        names = [step.name for step in steps]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two steps are named {twice[0]!r}: each step has a name of its own")
        return steps

    @model_validator(mode="after")
    def _every_step_changes(self) -> Ablation:
        for step in self.steps:
            if step.parameters.items() <= self.parameters.items():
                values = ", ".join(f"{name}={value}" for name, value in step.parameters.items())
                raise ValueError(f"step {step.name!r} changes nothing: the plain loop has {values} already")
        return self

    def configurations(self, refusal: Callable[[Mapping[str, Any]], str]) -> list[Configuration]:
        """The plain loop; each step alone; all steps up to each one, without those that `refusal` rejects."""
        alone = [Configuration(f"alone-{step.name}", step.parameters) for step in self.steps]
        upto, so_far = [], {}
        for step in self.steps:
            if not refusal(step.parameters):
                so_far = so_far | step.parameters
                upto.append(Configuration(f"upto-{step.name}", so_far))
        return [Configuration(PLAIN, {}), *alone, *upto]

    def index(self, refusal: Callable[[Mapping[str, Any]], str]) -> AblationIndex:
        """Its part of the study's index."""
        steps = []
        for step in self.steps:
            why = refusal(step.parameters)
            upto = None if why else f"upto-{step.name}"
            steps.append(MeasuredStep(**step.model_dump(), alone=f"alone-{step.name}", upto=upto, why=why))
        return AblationIndex(plain=PLAIN, ranks=self.ranks, parameters=self.parameters, steps=steps)
