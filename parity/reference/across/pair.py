"""TwinPair: both trainers of a spec in one process, and the runs that the twins and handover checks share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from parity.checks import SEEDS, OnStep, ignore_step, losses
from parity.contract import Trainer, Validation
from parity.errors import NoCounterpartError, StateError
from parity.reference.across.curves import StepCurve, ValidationCurve, run_from
from parity.reference.across.envelopes import Envelope, measure_envelope, noise_floor
from parity.sides import Side, is_builtin
from parity.spec import RunSpec
from parity.state import TrainingState, compare_states

__all__ = ["TwinPair"]


class TwinPair:
    """Two sides of one spec; every run is trained once and kept."""

    def __init__(
        self,
        spec: RunSpec,
        sides: Mapping[str, Side],
        *,
        seeds: int = SEEDS,
        cache: bool = True,
        sources: Mapping[str, str] = MappingProxyType({}),
        on_step: OnStep = ignore_step,
    ) -> None:
        """Build both trainers and check that they start from the same state.

        Args:
            spec: The run; `spec.steps` is where curves end.
            sides: Two sides by name; the first is the reference of the twins check.
            seeds: Perturbed runs on each side from which an envelope is measured.
            cache: Whether envelopes are cached.
            sources: For sides that are not built in, by name: what changes when their code does, such as a digest of
                it. An envelope of a side whose sources are not known is never cached.
            on_step: Called for each step of every run.

        Raises:
            NoCounterpartError: The run draws from a random stream that only one framework has.
            StateError: The two sides do not start from the same state, or cannot share one.
        """
        if spec.dropout.generator == "native" and spec.dropout.rate > 0:
            raise NoCounterpartError(
                "rng.native",
                "native dropout streams have no meaning on the other side; use dropout.generator=shared",
            )
        self.spec, self.names, self.on_step = spec, tuple(sides), on_step
        self._seeds, self._key = seeds, _cache_key(spec, sides, sources) if cache else None
        self.trainers: dict[str, Trainer] = {name: side.build(spec) for name, side in sides.items()}
        self.start: TrainingState = self.trainers[self.names[0]].export_state()
        for difference in compare_states(self.start, self.trainers[self.names[1]].export_state()):
            raise StateError(difference.leaf, f"the sides start differently: {difference.detail}")
        self._runs: dict[str, tuple[StepCurve, TrainingState, Validation, ValidationCurve]] = {}

    @property
    def middle(self) -> int:
        """Return the step at which runs are handed over."""
        return max(1, self.spec.steps // 2)

    def curve(self, name: str) -> StepCurve:
        """Return the uninterrupted curve of a side."""
        return self._run(name)[0]

    def middle_state(self, name: str) -> TrainingState:
        """Return the state of the uninterrupted run of a side at the middle."""
        return self._run(name)[1]

    def validation(self, name: str) -> Validation:
        """Return the validation at the end of the uninterrupted run of a side."""
        return self._run(name)[2]

    def validations(self, name: str) -> ValidationCurve:
        """Return the validations of the uninterrupted run of a side after the middle, by step."""
        return self._run(name)[3]

    @cached_property
    def floor(self) -> float:
        """Return the float64 noise floor: the largest relative change of the reference under one ulp at the start."""
        name = self.names[0]
        return noise_floor(self.trainers[name], self.start, losses(self.curve(name)), self.spec.steps)

    @cached_property
    def envelope(self) -> Envelope:
        """Return the measured envelope over all steps."""
        for name in self.names:  # before the trainers are reset to perturbed states
            self._run(name)
        return measure_envelope(
            self.spec,
            list(self.trainers.values()),
            self.start,
            self.spec.steps,
            seeds=self._seeds,
            key=self._key,
            on_step=self.on_step,
        )

    def _run(self, name: str) -> tuple[StepCurve, TrainingState, Validation, ValidationCurve]:
        if name not in self._runs:
            trainer = self.trainers[name]
            curve = run_from(trainer, self.middle, self.start, self.on_step)
            state = trainer.export_state()
            validations: ValidationCurve = {}
            curve |= run_from(trainer, self.spec.steps, on_step=self.on_step, validations=validations)
            last = validations.get(self.spec.steps) or trainer.evaluate()
            self._runs[name] = (curve, state, last, validations)
        return self._runs[name]


def _cache_key(spec: RunSpec, sides: Mapping[str, Side], sources: Mapping[str, str]) -> str | None:
    """Return what an envelope depends on of its sides, or None if the sources of one of them are not known."""
    if not all(name in sources or is_builtin(side) for name, side in sides.items()):
        return None
    return json.dumps([(name, sources.get(name), side.topology(spec)) for name, side in sides.items()])
