"""Training functions that cannot be judged: each gets one clear error or its own verdict, never a pass."""

import functools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

import parity
from parity.checks.running import MarkError, recorder
from parity.errors import SpecError, TrainerError, UnknownNameError
from parity.results import Resumption

pytestmark = pytest.mark.breaks_first


def plain(folder: Path, steps: int = 12, save_every: int = 3) -> Iterator[int]:
    """Train a line by gradient descent in NumPy, and resume exactly."""
    inputs = np.linspace(-1.0, 1.0, 8)
    weights, velocity, start = np.zeros(2), np.zeros(2), 0
    if (folder / "state.json").exists():
        state = json.loads((folder / "state.json").read_text())
        weights, velocity, start = np.array(state["weights"]), np.array(state["velocity"]), state["step"]
    for step in range(start, steps):
        yield step
        error = weights[0] * inputs + weights[1] - 3.0 * inputs - 1.0
        gradient = np.array([(error * inputs).mean(), error.mean()])
        velocity = 0.9 * velocity + gradient
        weights = weights - 0.1 * velocity
        if (step + 1) % save_every == 0:
            state = {"weights": weights.tolist(), "velocity": velocity.tolist(), "step": step + 1}
            (folder / "state.json").write_text(json.dumps(state))


def check(train: object, **settings: object) -> Resumption:
    return parity.resumes(train, steps=12, stop_at=7, **{"mode": "inline", **settings})


@pytest.mark.takes_seconds
def test_a_function_without_a_framework_holds() -> None:
    found = check(plain, scenarios="all")
    assert found.verdict == "holds", found.text()
    assert found.compared > 20
    assert found.changed == 4  # weights, velocity, gradient, error


@pytest.mark.takes_seconds
def test_a_function_that_ignores_its_folder_and_starts_at_0_is_broken() -> None:
    def train(folder: Path) -> Iterator[int]:
        fresh = folder / "other"
        fresh.mkdir(exist_ok=True)
        for name in fresh.iterdir():
            name.unlink()
        yield from plain(fresh)

    found = check(train)
    assert (found.verdict, found.components[0]) == ("broken", "checkpoint.latest")


def test_a_trainer_that_never_saves_is_an_error() -> None:
    with pytest.raises(TrainerError, match="nothing was saved in the folder before step 7"):
        check(lambda folder: plain(folder, save_every=100))


def test_a_log_is_no_checkpoint() -> None:
    def train(folder: Path) -> Iterator[int]:
        for step in plain(folder, save_every=100):
            with (folder / "train").open("a") as log:  # a log by how it is written, whatever it is called
                log.write(f"{step}\n")
            yield step

    with pytest.raises(TrainerError, match="nothing was saved"):
        check(train)


def test_a_loop_that_never_marks_is_an_error() -> None:
    def train(folder: Path) -> None:
        for _ in plain(folder):
            pass

    with pytest.raises(TrainerError, match="made 0 marks in 12 steps"):
        check(train)


def test_marks_that_go_backwards_are_an_error() -> None:
    def train(folder: Path) -> Iterator[int]:
        for step in plain(folder):
            yield step % 5

    with pytest.raises(MarkError, match="marks go backwards: 0 after 4"):
        check(train)


@pytest.mark.parametrize("step", ["3", 1.5, None, True])
def test_a_mark_that_is_no_number_is_an_error(step: object) -> None:
    def train(folder: Path) -> Iterator[object]:
        for _ in plain(folder):
            yield step

    with pytest.raises(MarkError, match="gives the number of completed steps"):
        check(train)


def test_a_function_that_ends_before_the_kill_is_an_error() -> None:
    with pytest.raises(TrainerError, match="ended after 4 steps, before the kill at 7"):
        check(lambda folder: plain(folder, steps=5))


@pytest.mark.takes_seconds
@pytest.mark.parametrize("grows", [True, False], ids=["steps", "marks"])
@pytest.mark.parametrize("by_call", [False, True], ids=["generator", "calls"])
def test_a_function_that_never_ends_is_an_error(grows: bool, by_call: bool) -> None:
    """`while True`, and a loop that waits for its end with the same number; one that goes on after any error too."""

    def endless(folder: Path) -> Iterator[int]:
        state, count = np.zeros(2), 0
        while True:
            yield count if grows else min(count, 11)
            state, count = state + 1, count + 1
            np.save(folder / "state.npy", state)

    def calls(folder: Path) -> None:
        for step in endless(folder):
            with suppress(Exception):
                parity.mark(step)

    with (
        pytest.raises(TrainerError, match="goes on after steps=12: it has made"),
        patch.object(recorder, "MOST_MARKS", 3),
    ):
        check(calls if by_call else endless)


@pytest.mark.takes_seconds
def test_a_function_that_ends_at_its_own_number_is_judged() -> None:
    """It ignores `steps`, and ends: nothing is cut off."""
    assert check(lambda folder: plain(folder, steps=40)).verdict == "holds"


@pytest.mark.takes_seconds
@pytest.mark.parametrize("lost", [True, False])
def test_a_run_that_never_ends_once_it_is_resumed_is_broken(lost: bool) -> None:
    """Its end is at one number that a lost count jumps over."""

    def train(folder: Path) -> Iterator[int]:
        weights, count, file = np.zeros(2), 0, folder / "state.npz"
        if file.exists():
            with np.load(file) as saved:
                weights, count = saved["weights"], int(saved["count"]) + (1 if lost else 0)
        while count != 24:
            yield count // 2
            weights, count = 0.9 * weights + count, count + 2
            np.savez(file, weights=weights, count=count)

    found = check(train)
    assert found.verdict == ("broken" if lost else "holds")
    assert not lost or any("goes on after steps=12" in note for note in found.notes)


def test_a_function_that_fails_by_itself_is_an_error() -> None:
    def train(folder: Path) -> Iterator[int]:
        for step in plain(folder):
            yield step
            if step == 8:
                raise ZeroDivisionError("by itself")

    with pytest.raises(TrainerError, match="ZeroDivisionError: by itself"):
        check(train)


@pytest.mark.takes_seconds
def test_a_function_that_fails_when_it_is_resumed_is_broken() -> None:
    def train(folder: Path) -> Iterator[int]:
        if (folder / "state.json").exists():
            raise KeyError("optimizer")
        yield from plain(folder)

    found = check(train)
    assert (found.verdict, found.components) == ("broken", ("checkpoint.restore",))
    assert "KeyError: 'optimizer'" in found.suspects[0].got


@pytest.mark.takes_seconds
def test_values_that_are_not_a_number_on_both_sides_are_no_pass() -> None:
    def train(folder: Path) -> Iterator[int]:
        for step in plain(folder):
            loss = float("nan") if step > 1 else 1.0
            yield step
            if step > 20:
                print(loss)

    assert check(train).verdict == "inconclusive"


def test_a_run_that_trains_nothing_is_no_pass() -> None:
    def train(folder: Path) -> Iterator[int]:
        start = int((folder / "step").read_text()) if (folder / "step").exists() else 0
        for step in range(start, 12):
            yield step
            (folder / "step").write_text(str(step + 1))

    found = check(train)
    assert found.verdict == "inconclusive"
    assert "nothing was trained" in found.notes[0]


def test_a_trainer_that_is_not_deterministic_is_no_pass_and_says_where() -> None:
    def train(folder: Path) -> Iterator[int]:
        generator = np.random.default_rng()
        weights = np.zeros(3)
        for step in range(12):
            yield step
            weights = weights + generator.normal(size=3)
            np.save(folder / "weights.npy", weights)

    found = check(train)
    assert found.verdict == "inconclusive"
    assert "two equal runs differ by themselves: at step" in found.notes[-1]


@pytest.mark.takes_seconds
def test_an_object_that_outlives_the_first_run_is_named() -> None:
    weights = np.zeros(3)

    def train(folder: Path) -> Iterator[int]:
        for step in range(12):
            yield step
            weights[:] += 1.0
            np.save(folder / "weights.npy", weights)

    found = check(train)
    assert found.verdict == "inconclusive"
    assert "outlives the first run" in found.notes[-1]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"stop_at": 12}, "stop_at: must lie between 1 and 11"),
        ({"stop_at": 0}, "stop_at: must lie between 1 and 11"),
        ({"steps": 2}, "steps: must be a whole number of at least 3"),
        ({"mode": "thread"}, "mode: must be auto, process or inline"),
        ({"scenarios": ()}, "scenarios: must name at least one scenario"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        parity.resumes(plain, **{"steps": 12, "stop_at": 7, "mode": "inline", **settings})


def test_an_unknown_scenario_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="unknown scenario 'klil'; did you mean kill"):
        check(plain, scenarios="klil")


def test_what_cannot_be_imported_is_checked_here_and_said_so_or_refused() -> None:
    assert "not at the top of a module" in check(lambda folder: plain(folder), mode="auto").notes[0]
    with pytest.raises(SpecError, match="process needs a function that another process can import"):
        check(lambda folder: plain(folder), mode="process")


@pytest.mark.takes_seconds
def test_a_check_leaves_this_process_as_it_was() -> None:
    shared = np.random.get_state()[1].copy()  # noqa: NPY002
    folder = Path.cwd()
    check(plain)
    assert np.array_equal(np.random.get_state()[1], shared)  # noqa: NPY002
    assert Path.cwd() == folder
    parity.mark(3)


@pytest.mark.takes_seconds
def test_a_script_that_calls_the_check_at_its_top_is_told_where_to_put_the_call(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    call = "found = parity.resumes(plain, steps=12, stop_at=7, scenarios='kill')\nprint(found.verdict, found.mode)\n"
    source = Path(__file__).read_text().partition("def check(")[0] + call
    script.write_text(source)
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert run.returncode != 0
    assert 'Is the check called under `if __name__ == "__main__":`?' in run.stderr
    guarded = "".join(f"    {line}\n" for line in call.splitlines())
    script.write_text(source.replace(call, f'if __name__ == "__main__":\n{guarded}'))
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert run.stdout == "holds process\n", run.stderr


def test_without_a_resume_nothing_is_said_to_resume() -> None:
    found = check(plain, scenarios="intervals")
    assert (found.verdict, found.scenarios) == ("inconclusive", ("intervals",))
    assert "no scenario was driven in which the run is resumed" in found.notes


@pytest.mark.takes_seconds
@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
def test_a_loss_that_is_not_a_number_is_no_pass_in_any_type(kind: type) -> None:
    def train(folder: Path) -> Iterator[int]:
        for step in plain(folder):
            loss = kind("nan") if step > 1 else kind(1.0)
            yield step
            if step > 20:
                print(loss)

    assert check(train).verdict == "inconclusive"


USED_UP = iter(range(12))


def uses_up_a_global(folder: Path, steps: int) -> Iterator[int]:
    w = np.ones(2)
    for step in USED_UP:
        yield step
        w = w * 0.9
        np.save(folder / "w.npy", w)


def test_a_second_run_without_marks_says_that_it_is_the_second() -> None:
    with pytest.raises(TrainerError, match="a second run in an empty folder made 0 marks, the first one 12"):
        parity.resumes(uses_up_a_global, steps=12, stop_at=7, mode="inline")


async def of_a_loop(folder: Path) -> None:
    for step in plain(folder):
        parity.mark(step)


async def yields_in_a_loop(folder: Path) -> AsyncIterator[int]:
    for step in plain(folder):
        yield step


class OfALoop:
    async def __call__(self, folder: Path) -> None:
        await of_a_loop(folder)


NO_FUNCTIONS = {
    "a number": (5, "must be a function that takes the folder, got 5"),
    "async": (of_a_loop, r"of_a_loop is async and needs an event loop: .*asyncio.run\(of_a_loop\(folder\)\)"),
    "async generator": (yields_in_a_loop, "yields_in_a_loop is async"),
    "async object": (OfALoop(), "OfALoop is async"),
    "part of async": (functools.partial(of_a_loop), "partial is async"),
    "nothing": (lambda: plain(Path()), r"takes \(\), and is called with \(folder\): too many positional"),
    "keywords alone": (lambda *, folder: plain(folder), r"takes \(\*, folder\), and is called with \(folder\)"),
}


@pytest.mark.parametrize("what", NO_FUNCTIONS)
def test_what_cannot_be_called_is_an_error_before_anything_runs(what: str) -> None:
    train, why = NO_FUNCTIONS[what]
    with pytest.raises(SpecError, match=why):
        check(train)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"options": {"other": 1}}, r"called with \(folder, steps=12, other=1\): got an unexpected keyword"),
        ({"ignore": ["weights"]}, r"ignore: must map paths or components to reasons, got \['weights'\]"),
        ({"keep": 3}, "keep: must be parity.policy.Rules, got 3"),
        ({"workdir": "/dev/null/below"}, "workdir: /dev/null/below cannot be used: Not a directory"),
    ],
)
def test_other_arguments_that_cannot_be_used_are_errors(settings: dict[str, object], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        check(plain, **settings)


def test_a_working_directory_may_be_text(tmp_path: Path) -> None:
    assert check(plain, workdir=str(tmp_path / "here")).verdict == "holds"
    assert (tmp_path / "here" / "reference").is_dir()


@pytest.mark.parametrize("given", [lambda steps: map(int, steps), lambda steps: iter(list(steps))])
def test_an_iterator_that_is_no_generator_is_an_error(given: Callable[[Iterator[int]], object]) -> None:
    with pytest.raises(MarkError, match=r"returned .*, an iterator whose variables cannot be seen"):
        check(lambda folder: given(plain(folder)))


def test_a_function_that_wants_text_is_told_that_the_folder_is_a_path() -> None:
    with pytest.raises(TrainerError, match=r"The folder is a pathlib.Path: .*str\(folder\)"):
        check(lambda folder: plain(folder + "/runs"))
    with pytest.raises(TrainerError) as other:
        check(lambda folder: plain(1 + "/runs"))  # type: ignore[operator]
    assert "pathlib.Path" not in str(other.value)
