"""Trackers that lose, repeat or bend a step are found out by what is shown."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parity.trackers import Trackers, history
from parity.trackers.history import History, Point
from parity.trackers.tensorboard import TensorBoard
from parity.trackers.wandb import WeightsAndBiases
from tests.trackers.reading import events_of
from tests.trackers.rehearsal import Process, Rehearsal, expected, faults, without_throughput
from tests.trackers.service import Service

STORY = [
    Process(steps=75, killed=True),
    Process(steps=60, variant=1, logged=False),
    Process(steps=40, back=1, variant=1, killed=True),
]
Plant = Callable[[pytest.MonkeyPatch], None]


def drops_a_step(patch: pytest.MonkeyPatch) -> None:
    for tracker in (TensorBoard, WeightsAndBiases):
        log = tracker.log
        patch.setattr(
            tracker, "log", lambda self, points, log=log: log(self, [point for point in points if point.step != 333])
        )


def drops_the_last_batch(patch: pytest.MonkeyPatch) -> None:
    end = Trackers.__exit__

    def forgetting(self, *error):
        self._waiting.clear()
        end(self, *error)

    patch.setattr(Trackers, "__exit__", forgetting)


def begins_where_the_process_does(patch: pytest.MonkeyPatch) -> None:
    """What a kill kept from being logged is not made up for."""
    patch.setattr(History, "points", lambda self, after, until: [])


def begins_at_the_last_step_logged(patch: pytest.MonkeyPatch) -> None:
    """Steps that a resume repeats are taken for those of the curve."""
    patch.setattr(History, "standing", lambda self, step, since, until=None: step)


def takes_the_first_attempt(patch: pytest.MonkeyPatch) -> None:
    """Records that a resume replaced are logged instead of those that replaced them."""
    splice = history.splice
    patch.setattr(
        history, "splice", lambda records: splice([record._replace(attempt=-record.attempt) for record in records])
    )


def counts_from_zero(patch: pytest.MonkeyPatch) -> None:
    point_of = history.point_of
    shifted = lambda record: replace(point_of(record), step=record.step - 1)  # noqa: E731
    patch.setattr(history, "point_of", shifted)
    patch.setattr("parity.trackers.point_of", shifted)


def hides_what_is_not_finite(patch: pytest.MonkeyPatch) -> None:
    point_of = history.point_of

    def hiding(record):
        point = point_of(record)
        return replace(point, scalars={tag: value for tag, value in point.scalars.items() if np.isfinite(value)})

    patch.setattr(history, "point_of", hiding)
    patch.setattr("parity.trackers.point_of", hiding)


def rounds(patch: pytest.MonkeyPatch) -> None:
    point_of = history.point_of

    def rounding(record):
        point = point_of(record)
        return replace(point, scalars={tag: float(f"{value:.4g}") for tag, value in point.scalars.items()})

    patch.setattr(history, "point_of", rounding)
    patch.setattr("parity.trackers.point_of", rounding)


def says_no_restart(patch: pytest.MonkeyPatch) -> None:
    write = TensorBoard._write
    patch.setattr(
        TensorBoard, "_write", lambda self, events: write(self, [e for e in events if not e.HasField("session_log")])
    )


def takes_every_repeated_step_for_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Point, "within", lambda self, other: True)


def sends_repeated_steps_again(patch: pytest.MonkeyPatch) -> None:
    def log(self, points):
        for point in points:
            self._run.log(point.scalars, step=point.step)

    patch.setattr(WeightsAndBiases, "log", log)


def claims_the_run_too_early(patch: pytest.MonkeyPatch) -> None:
    """A process that was killed before it sent a step is taken for the one whose curve the service has."""
    read = WeightsAndBiases._read_note

    def claiming(self):
        name, logged_by = read(self)
        return name, max(logged_by, self._history.attempt - 1)

    patch.setattr(WeightsAndBiases, "_read_note", claiming)


BOTH = {
    drops_a_step: "missing [333]",
    drops_the_last_batch: "missing [",
    begins_where_the_process_does: "missing [",
    takes_the_first_attempt: "train/loss: step ",
    counts_from_zero: "missing [400]",
    hides_what_is_not_finite: "train/grad_norm: missing [13, 26, 39]",
    rounds: "train/lr: step 3: ",
}
"""Plants for both trackers, and words of what is found."""


def play(run: Rehearsal, story: list[Process]) -> None:
    for process in story:
        run.play(process)
    run.finish(variant=story[-1].variant)


@pytest.fixture(autouse=True)
def _batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.trackers.BATCH_SECONDS", 1e9)
    monkeypatch.setattr("parity.trackers.BATCH_RECORDS", 7)


def tensorboard_faults(path: Path, story: list[Process]) -> list[str]:
    run = Rehearsal(path, TensorBoard)
    play(run, story)
    return faults(expected(path), events_of(path), np.float32)


def wandb_faults(path: Path, story: list[Process], patch: pytest.MonkeyPatch) -> list[str]:
    service = Service(lost=4)
    patch.setattr("parity.trackers.wandb.wandb", service)
    run = Rehearsal(path, WeightsAndBiases, on_kill=lambda tracker: service.kill())
    play(run, story)
    shown = service.shown()
    found = faults(without_throughput(expected(path)), without_throughput(shown))
    return found + [f"refused {step}" for step in service.refused]


def test_without_a_plant_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tensorboard_faults(tmp_path / "a", STORY) == []
    assert wandb_faults(tmp_path / "b", STORY, monkeypatch) == []


@pytest.mark.parametrize(
    ("plant", "words"),
    [*BOTH.items(), (says_no_restart, "twice ["), (begins_at_the_last_step_logged, "train/loss: step 64: ")],
)
def test_tensorboard(plant: Plant, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = tensorboard_faults(tmp_path / "run", STORY)
    assert [line for line in found if words in line], found[:5]


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        *BOTH.items(),
        (takes_every_repeated_step_for_the_same, "train/loss: step "),
        (begins_at_the_last_step_logged, "train/loss: step "),
        (sends_repeated_steps_again, "refused "),
    ],
)
def test_wandb(plant: Plant, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = wandb_faults(tmp_path / "run", STORY, monkeypatch)
    assert [line for line in found if words in line], found[:5]


def test_wandb_claimed_too_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The killed process had other values on disk for all steps that the service has, and had not sent them."""
    monkeypatch.setattr("parity.trackers.BATCH_RECORDS", 1000)
    story = [Process(steps=55), Process(steps=15, variant=1, killed=True), Process(steps=20, variant=1)]
    assert wandb_faults(tmp_path / "a", story, monkeypatch) == []
    claims_the_run_too_early(monkeypatch)
    assert [line for line in wandb_faults(tmp_path / "b", story, monkeypatch) if "train/loss: step 44: " in line]
