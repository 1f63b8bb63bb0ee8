"""One training process of the resume check, phase by phase: `python -m benchmarks.check_parts SIDE STARTED`.

Prints JSON of phase to seconds. It does what `parity train --trace-state` does in the check, by hand, so that the
clock can be read in between. STARTED is the parent's monotonic clock, from which the start of the interpreter is
measured.
"""

from __future__ import annotations

import sys
import time

BEGAN = time.monotonic()  # before anything else is imported

import json  # noqa: E402
import tempfile  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

__all__ = ["measure"]


def measure(side_name: str) -> dict[str, float]:
    """Return phase to seconds, in the order of a run."""
    seconds: Counter[str] = Counter()

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        seconds[name] += time.perf_counter() - began  # type: ignore[assignment]

    with phase("imports"):
        from parity import sides
        from parity.reference import drill_spec
        from parity.spec import load

        side = sides.load(side_name)
    with tempfile.TemporaryDirectory(prefix="parity-parts-") as home:
        _train(drill_spec(load("mlp-digits"), 200), side, Path(home) / "run", phase)
    return dict(seconds)


def _train(spec: Any, side: Any, run: Path, phase: Any) -> None:
    from parity.state import leaf_digests

    with phase("build"):
        trainer = side.build(spec, run)
    with phase("first chunk, compiling"):
        _to(trainer, spec.execution.chunk)
    while trainer.step < spec.steps:
        with phase("steps"):
            _to(trainer, min(spec.steps, trainer.step - trainer.step % spec.save.every + spec.save.every))
        with phase("validations"):
            trainer.evaluate()
        with phase("digests of the state"):
            leaf_digests(trainer.export_state(copy=False))
        with phase("saves"):
            trainer.save(None)
    with phase("waiting for the last save"):
        trainer.wait()
    trainer.close()
    again = side.build(spec, run)
    with phase("restore"):
        again.restore("latest")
    again.close()


def _to(trainer: Any, step: int) -> None:
    for _ in trainer.steps(step):
        pass


if __name__ == "__main__":
    print(json.dumps({"start of the interpreter": BEGAN - float(sys.argv[2]), **measure(sys.argv[1])}))
