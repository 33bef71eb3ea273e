"""A ladder: the plain loop, and the changes that make it fast, each alone and all up to it.

`[ladder]` of a study file says what the plain loop is, `[[ladder.steps]]` one change each, in their order. What helps
alone may help nothing after another change, or only after it: both are measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import Field, field_validator, model_validator

from hpc_utils.toml_config import Strict

PLAIN = "plain"


class Step(Strict):
    """One change: the knobs that it turns (more than one only where they go together), and why."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    parameters: dict[str, Any] = Field(min_length=1)
    about: str = Field(min_length=1)


class Rung(NamedTuple):
    """One configuration of a ladder: the series that its runs are, and what it changes of the plain loop."""

    series: str
    changes: dict[str, Any]


class Ladder(Strict):
    """The plain loop, in our knobs, on a number of ranks, and the steps from it."""

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
    def _every_step_changes(self) -> Ladder:
        for step in self.steps:
            if all(name in self.parameters and self.parameters[name] == to for name, to in step.parameters.items()):
                raise ValueError(
                    f"step {step.name!r} changes nothing: the plain loop has {_told(step.parameters)} already"
                )
        return self

    def rungs(self, refusal: Callable[[Mapping[str, Any]], str]) -> list[Rung]:
        """The plain loop; each step alone; all up to each, without the steps that `refusal` says cannot be made alone."""
        alone = [Rung(f"alone-{step.name}", step.parameters) for step in self.steps]
        upto, so_far = [], {}
        for step in self.steps:
            if not refusal(step.parameters):
                so_far = so_far | step.parameters
                upto.append(Rung(f"upto-{step.name}", so_far))
        return [Rung(PLAIN, {}), *alone, *upto]

    def index(self, refusal: Callable[[Mapping[str, Any]], str]) -> dict[str, Any]:
        """What the reading side knows of it: `plain` and each step's `alone` and `upto`, names of series; `upto` is None
        for a step that cannot be made there, and `why` says why."""
        steps = []
        for step in self.steps:
            why = refusal(step.parameters)
            series = {"alone": f"alone-{step.name}", "upto": None if why else f"upto-{step.name}", "why": why}
            steps.append(step.model_dump() | series)
        return {"plain": PLAIN, "ranks": self.ranks, "parameters": self.parameters, "steps": steps}


def _told(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in parameters.items())
