"""The measuring: ways to run in turn, ratios of every round, and the environment of the times."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from parity.contract import Side
from parity.environment import describe_machine, versions
from parity.results import benchmark_document, benchmark_entry, ratio_summary
from parity.spec import PRESETS, RunSpec, differences, override, preset, to_toml
from parity.twins.speed.laps import Lap, same_work

__all__ = ["MODES", "STEPS", "measure_speed"]

MODES = {"jax": {"scan": "scan", "loop": "loop"}, "torch": {"compiled": "compile", "eager": "eager"}}
"""Side to its ways to run a step, each with the value of `execution.jax` or `execution.torch`; the ratio is
that of the first over the second."""

WAYS = tuple(f"execution.{side}" for side in MODES)
"""Fields that say how steps are run."""

STEPS = 200
"""Steps of a round by default: seconds for the presets, and four chunks."""

WITHOUT = ("validate_every=0", "save.on_best=auto")
"""Neither validations nor saves are run: these are the steps alone."""


def measure_speed(
    side: Side,
    name: str,
    spec: RunSpec,
    *,
    modes: Sequence[str],
    steps: int = STEPS,
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Return what pytest-benchmark would have written: an entry for each way to run, ratios in the first.

    Every way runs once untimed. Then the rounds follow, in each of which every way runs, in reversed order every
    second time: the speed of a shared machine drifts for all ways of a round alike, so a ratio is taken in every one.

    Args:
        side: Builds the trainers.
        name: `jax` or `torch`.
        spec: What is trained; its `execution` is that of each way.
        modes: Of `MODES[name]`; one alone has no ratio.
        steps: Steps of a run.
        rounds: Timed rounds.
        say: Takes a line for people before each stage.

    Raises:
        WorkError: Two ways do other work, or two rounds of one.
    """
    laps = []
    for mode in modes:
        say(f"{mode}: building, {steps} untimed steps")
        lap = Lap(mode=mode, trainer=side.build(_in_mode(spec, name, mode, steps)), steps=steps)
        lap.warm()
        laps.append(lap)
    for other in laps[1:]:
        same_work(laps[0], other, spec.precision)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for lap in laps if number % 2 == 0 else reversed(laps):
            lap.run()
    model = _model_name(spec)
    entries = [_entry(lap, name, model, spec) for lap in laps]
    if len(laps) > 1:
        first, second = laps
        of = f"seconds of {second.mode} / seconds of {first.mode}, {steps} steps"
        values = [b / a for a, b in zip(first.seconds, second.seconds, strict=True)]
        ratio = {"of": of, **ratio_summary(values), "better": "higher", "bar": None}
        entries[0]["extra_info"]["ratios"] = {f"{first.mode} over {second.mode}": ratio}
    return benchmark_document(entries, describe_machine() | {name: _topology(side.topology(spec))})


def _model_name(spec: RunSpec) -> str:
    """Return the name of a preset where a spec trains as the preset does; else its name with what differs.

    Where it stops, saves and validates is no difference, and the way to run it and its devices have their own place.
    """
    known = preset(spec.name) if spec.name in PRESETS else spec
    found = differences(known, spec, free=("name", "steps", "save", "validate_every", "mesh"))
    own = [f"{field}={new}" for field, (_, new) in found.items() if field not in WAYS]
    return ", ".join([spec.name, *own])


def _in_mode(spec: RunSpec, name: str, mode: str, steps: int) -> RunSpec:
    way = f"execution.{name}={MODES[name][mode]}"
    return override(spec, [*WITHOUT, f"steps={steps}", f"save.every={steps}", way])


def _entry(lap: Lap, name: str, model: str, spec: RunSpec) -> dict[str, Any]:
    """Return the entry of one way, with the notes that `parity report` reads."""
    devices = spec.mesh.devices if name == "jax" else 1
    what = f"{model} {name}" if devices == 1 else f"{model} {name} on {devices} devices"
    entry = benchmark_entry(f"{what} {lap.mode}", f"parity bench run: {what}", lap.seconds)
    entry["extra_info"] = {
        "trains": {"model": model, "side": name, "mode": lap.mode, "devices": devices},
        "steps": lap.steps,
        "steps_per_second": lap.steps / entry["stats"]["median"],
        "spec": to_toml(lap.trainer.spec),
        "versions": dict(versions()),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }
    return entry


def _topology(found: dict[str, Any]) -> dict[str, Any]:
    """Return a side's topology with its devices by name, as the benchmarks of a checkout have them."""
    names = [str(found["platform"])] * int(found["devices"])
    return {"devices": names, **({"threads": found["threads"]} if "threads" in found else {})}
