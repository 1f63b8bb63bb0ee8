"""`parity handover` and `parity.hand_over`: two trainers continue from one checkpoint; what is lost is named."""

import json
from functools import partial

import pytest

import parity
from parity.cli.main import main
from parity.errors import CheckpointError, SpecError, TrainerError
from tests.ports.pair_numpy import STEPS, port, to_port, to_trainer, train

LOST = {
    "p": "model.params",
    "m": "optimizer.first_moment",
    "v": "optimizer.second_moment",
    "e": "ema",
    "count": "optimizer.step",
    "all": "checkpoint.restore",
    "position": "counters.step",
}

HERE = "tests.ports.test_handover_command"


def saved(folder, make=train, steps=15):
    """Train to a save and return the folder."""
    folder.mkdir()
    for _ in make(folder, steps):
        pass
    return folder


carried = to_port
their_own = port()
forgets_moments = partial(to_port, lost="m")


def hand_over(folder, convert=to_port, **settings):
    return parity.hand_over(folder / "state.npz", train, port(), convert=convert, steps=STEPS, seeds=1, **settings)


def test_both_continue_from_one_checkpoint_and_train_alike(tmp_path):
    found = hand_over(saved(tmp_path / "run"))
    assert (found.verdict, found.handovers, found.compared, found.pairs) == ("holds", (15,), 15, 12)
    assert found.max_rel < 1e-14


@pytest.mark.parametrize("lost", LOST)
def test_what_the_conversion_loses_is_named(tmp_path, lost):
    found = hand_over(saved(tmp_path / "run"), partial(to_port, lost=lost))
    assert (found.verdict, found.components[0]) == ("broken", LOST[lost]), found.text()


def test_the_other_way_round(tmp_path):
    folder = saved(tmp_path / "run", port())
    there = parity.hand_over(folder, port(), train, convert=nested, steps=STEPS, seeds=1, place="held")
    assert there.verdict == "inconclusive"
    assert "does not continue from the checkpoint" in there.text()


def nested(source, target):
    to_trainer(source / "held", target)


def test_a_port_that_trains_otherwise_is_broken_after_the_handover(tmp_path):
    folder = saved(tmp_path / "run")
    found = parity.hand_over(folder / "state.npz", train, port("late"), convert=to_port, steps=STEPS, seeds=1)
    assert (found.verdict, found.components[0], found.suspects[0].step) == ("broken", "model.params", 23)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"convert": lambda a, b: None}, TrainerError, "wrote nothing"),
        ({"convert": lambda a, b: 1 / 0}, TrainerError, "the conversion failed with ZeroDivisionError"),
        ({"place": "/state.npz"}, SpecError, "must lie in the trainer's folder"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path, change, error, said):
    with pytest.raises(error, match=said):
        hand_over(saved(tmp_path / "run"), **change)


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        hand_over(tmp_path / "no")


def command(folder, convert, *more):
    names = ["--torch", "tests.ports.pair_numpy:train", "--torch", f"{HERE}:their_own"]
    return main(["handover", str(folder / "state.npz"), *names, "--convert", convert, "--steps", str(STEPS), *more])


def test_the_command_says_both_verdicts(tmp_path, capsys):
    folder = saved(tmp_path / "run")
    assert command(folder, f"{HERE}:carried", "--json") == 0
    assert json.loads(capsys.readouterr().out)["handovers"] == [15]
    assert command(folder, f"{HERE}:forgets_moments") == 1
    assert "optimizer.first_moment" in capsys.readouterr().out


def test_without_a_place_or_a_conversion_the_command_says_what_is_needed(tmp_path, capsys):
    folder = saved(tmp_path / "run")
    names = ["--torch", "tests.ports.pair_numpy:train", "--torch", f"{HERE}:their_own"]
    assert main(["handover", str(folder / "state.npz"), *names, "--steps", "30"]) == 2
    assert "--place" in capsys.readouterr().err
