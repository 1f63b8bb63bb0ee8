"""Checkpoints of real trainers, for the tests of both sides: specs, saves held up in the background, damage."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity import sides
from parity.checkpoints import ByteRange, read_seal, seal, verify
from parity.spec import RunSpec
from parity.state import compare_states
from tests.support.sealed import flip
from tests.support.small import bits_of, small

SPECS: dict[str, RunSpec] = {
    "adam": small("mlp-digits", "float32", "steps=500"),
    "sgd without momentum": small("mlp-digits", "float32", "steps=500", "optimizer.kind=sgd", "optimizer.momentum=0"),
    "statistics and counters": small("cnn-digits", "float32", "steps=500"),
    "tied weights": small("gpt-text", "float32", "steps=500", "model.tied=true"),
    "two groups": small("mlp-digits", "float64", "steps=500", "optimizer.kind=adamw", "optimizer.decay=matrices"),
    "loss scaler": small("mlp-digits", "float16", "steps=500", "scaler.overflow_steps=[2]"),
    "native dropout": small("mlp-digits", "float32", "steps=500", "dropout.generator=native"),
}
"""What a state can be made of."""


def saved(side: Any, spec: RunSpec, directory: Path, steps: int = 3) -> tuple[Any, Path]:
    """Train some steps, save, wait; return the trainer and the checkpoint."""
    trainer = side.build(spec, directory)
    list(trainer.steps(steps))
    trainer.save(0.5)
    trainer.wait()
    return trainer, directory / "checkpoints" / str(steps)


def assert_resumes(trainer: Any, directory: Path) -> None:
    """What was saved last comes back, and takes the same steps."""
    state, step = trainer.export_state(), trainer.step
    expected = bits_of(list(trainer.steps(step + 6)))
    trainer.close()
    other = sides.load(trainer.side).build(trainer.spec, directory)
    assert other.restore("latest") == step
    assert compare_states(state, other.export_state()) == []
    assert bits_of(list(other.steps(step + 6))) == expected
    other.close()


@contextmanager
def held(trainer: Any, method: str) -> Iterator[threading.Event]:
    """Hold up a trainer's saves in the background; the event is set once one has come there."""
    reached, go = threading.Event(), threading.Event()
    act = getattr(trainer.checkpoints, method)

    def waiting(*args: Any) -> None:
        reached.set()
        assert go.wait(timeout=120)
        act(*args)

    setattr(trainer.checkpoints, method, waiting)
    try:
        yield reached
    finally:
        go.set()


def blamed(path: Path, place: ByteRange) -> tuple[str, ...]:
    """Return the leaves that verifying names when a bit in the middle of a place is flipped."""
    middle = place.start + place.size // 2
    flip(path / place.file, middle)
    faults = verify(path).faults
    flip(path / place.file, middle)
    assert [fault.file for fault in faults] == [place.file]
    return faults[0].leaves


def reseal(path: Path, **changes: Any) -> None:
    """Seal what lies in a checkpoint now, as a saver does that wrote it; with other values of the seal, if given."""
    old = read_seal(path)
    draft = path.rename(path.with_name(".draft-resealed"))
    (draft / seal.FILE).unlink()
    seal.commit(draft, path, replace(old, **{"files": {}, "places": {}, **changes}))
