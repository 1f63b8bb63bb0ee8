"""TensorBoard shows the spliced curve of a run, whatever became of its processes."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from parity.spec import from_toml
from parity.trackers import Trackers
from parity.trackers.tensorboard import TensorBoard
from tests.support.small import quick, record
from tests.trackers.reading import accumulated, events_of
from tests.trackers.rehearsal import IDENTITY, SPEC, Process, Rehearsal, expected, faults, stories


@pytest.fixture(autouse=True)
def _batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let seven records wait for each other, so that a kill loses up to six."""
    monkeypatch.setattr("parity.trackers.BATCH_SECONDS", 1e9)
    monkeypatch.setattr("parity.trackers.BATCH_RECORDS", 7)


@pytest.fixture
def run(tmp_path: Path) -> Rehearsal:
    return Rehearsal(tmp_path / "run", TensorBoard)


def wrong(run: Rehearsal) -> list[str]:
    return faults(expected(run.path), events_of(run.path), np.float32)


CASES = {
    "never interrupted": [],
    "ended and went on": [Process(steps=40)],
    "killed": [Process(steps=55, killed=True)],
    "killed before the first checkpoint": [Process(steps=5, killed=True)],
    "killed twice in one place": [Process(steps=55, killed=True), Process(steps=5, killed=True)],
    "went back": [Process(steps=80), Process(steps=10, back=2, variant=1)],
    "went back to the start": [Process(steps=40), Process(steps=10, back=2, variant=1)],
    "ended before its last validation": [Process(steps=30, unvalidated=True)],
    "logged only from the second process on": [Process(steps=60, logged=False)],
    "another process in between, with other values": [
        Process(steps=60),
        Process(steps=60, logged=False, back=1, variant=1),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_the_curve_is_the_spliced_one(run: Rehearsal, case: str) -> None:
    for process in CASES[case]:
        run.play(process)
    run.finish()
    assert wrong(run) == []
    assert len(expected(run.path)["train/loss"]) == 400
    assert run.said == []


def test_a_process_with_nothing_left_to_train_makes_up_for_what_a_kill_kept_back(run: Rehearsal) -> None:
    run.play(Process(steps=60, killed=True))
    assert wrong(run)
    run.play(Process(steps=0))
    assert wrong(run) == []


@pytest.mark.takes_seconds
@quick(40)
@given(story=stories)
def test_whatever_became_of_its_processes(story: list[Process], tmp_path_factory: pytest.TempPathFactory) -> None:
    run = Rehearsal(tmp_path_factory.mktemp("story") / "run", TensorBoard)
    for process in story:
        run.play(process)
    run.finish()
    assert wrong(run) == []


@pytest.mark.parametrize("cut", [1, 7, 40, 200, 500, 3000, 9000])
def test_a_torn_file_is_written_again_from_the_records(run: Rehearsal, cut: int) -> None:
    run.play(Process(steps=60, killed=True))
    (file,) = (run.path / "tensorboard").iterdir()
    os.truncate(file, file.stat().st_size - cut)
    run.finish()
    assert wrong(run) == []


@pytest.mark.parametrize("lost", ["000000", "000001"])
def test_a_file_that_was_removed_is_written_again(run: Rehearsal, lost: str) -> None:
    run.play(Process(steps=40))
    run.play(Process(steps=40))
    (run.path / "tensorboard" / f"events.out.tfevents.{lost}").unlink()
    run.finish()
    assert wrong(run) == []


def test_a_damaged_byte_costs_no_step(run: Rehearsal) -> None:
    run.play(Process(steps=60))
    (file,) = (run.path / "tensorboard").iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    run.finish()
    assert wrong(run) == []


def test_the_spec_of_every_process_is_there_as_text_and_as_hyperparameters(run: Rehearsal) -> None:
    run.play(Process(steps=5, killed=True))
    run.finish()
    view = accumulated(run.path)
    for config in view.Tensors("config"):
        text = config.tensor_proto.string_val[0].decode()
        assert from_toml(text.removeprefix("```toml\n").removesuffix("```\n")) == SPEC
    assert len(view.Tensors("config")) == 2
    assert view.PluginTagToContent("text").keys() == {"config"}
    parameters = view.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    assert b"optimizer.lr" in parameters


@pytest.mark.takes_seconds
def test_records_are_written_in_batches(run: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parity.trackers.BATCH_RECORDS", 1000)
    writes: list[int] = []
    tracker = TensorBoard()
    run.run.begin_attempt(0, None, {})
    write = tracker._write
    monkeypatch.setattr(tracker, "_write", lambda events: writes.append(len(events)) or write(events))
    with Trackers({"tensorboard": tracker}, run.path, IDENTITY, run.said.append) as tracked:
        for step in range(1, 5002):
            tracked.on_record(record(step))
    assert writes == [3, 0, 1, 1000, 1000, 1000, 1000, 1000]
    assert [step for step, _ in events_of(run.path)["train/lr"]] == list(range(1, 5002))


def test_a_full_disk_switches_it_off_in_one_line_and_the_next_process_makes_up_for_it(run: Rehearsal) -> None:
    class Full(TensorBoard):
        def log(self, points):
            if points and points[-1].step > 20:
                self._file.close()
                self._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
            super().log(points)

    run.tracker = Full
    run.play(Process(steps=60))
    (line,) = run.said
    assert line.startswith("warning: it is off after step ")
    assert "No space left on device" in line
    assert line.endswith("; training continues without it")
    assert events_of(run.path)["train/loss"][-1][0] < 40
    run.tracker = TensorBoard
    run.finish()
    assert wrong(run) == []
