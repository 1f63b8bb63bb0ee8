"""`parity train --log`: what real runs write, what is said of those that cannot, and nothing when it is off."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.cli import main
from parity.cli.progress import Progress
from parity.contract import Validation
from parity.runs import Observers, ProcessOutcome
from parity.trackers import load
from tests.support.small import record
from tests.trackers.reading import config_of, events_of, history_of, newest_offline
from tests.trackers.rehearsal import expected, faults

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
from parity.cli import main
code = main(sys.argv[1:])
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
sys.exit(code)
"""
SMALL = (
    *("--spec", "mlp-digits", "--set", "model.hidden=[8]", "--set", "batch=8", "--set", "execution.chunk=5"),
    *("--set", "save.every=20", "--set", "validate_every=10", "--set", "data.validation=8"),
)
PACKAGES = {"tensorboard", "wandb"}


def environment(home: Path) -> dict[str, str]:
    """Return an environment in which nobody is logged in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_") and name != "NETRC"}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


def start(side: str, directory: Path, *options: str) -> subprocess.Popen[str]:
    """Start `parity train` in a process of its own, which says in the end what it has loaded."""
    command = [sys.executable, "-c", PROGRAM, "train", "--side", side, *SMALL, "--dir", str(directory), *options]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, text=True, cwd=ROOT, env=environment(directory.parent), **pipes)


def end(process: subprocess.Popen[str]) -> tuple[list[str], set[str]]:
    """Return what a process said, and the packages it loaded."""
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    *said, loaded = output.splitlines()
    return said, set(json.loads(loaded))


@pytest.mark.takes_seconds
@pytest.mark.processes
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_a_run_that_is_killed_and_resumed_is_shown_as_its_records_have_it(side: str, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    both = ("--log", "tensorboard", "--log", "wandb")
    first = start(side, directory, "--steps", "80", "--hold-at", "55", *both)
    assert first.stdout is not None
    said = []
    for line in first.stdout:
        said.append(line)
        if line.startswith("paused after step 55"):
            break
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    assert first.returncode == -signal.SIGKILL, "".join(said)

    said, loaded = end(start(side, directory, "--steps", "80", *both))
    assert {"resumed from step 20 (latest)", "resumed from step 40 (latest)"} & set(said), "a save may be under way"
    assert "wandb: not logged in, so logging offline; `wandb sync` uploads it" in said
    assert not [line for line in said if line.startswith("warning")]
    assert not loaded & {"torch": {"jax", "flax"}, "jax": {"torch"}}[side]

    curve = expected(directory)
    assert [step for step, _ in curve["train/loss"]] == list(range(1, 81))
    assert [step for step, _ in curve["validation/accuracy"]] == list(range(10, 81, 10))
    assert faults(curve, events_of(directory), np.float32) == []
    assert faults(curve, history_of(newest_offline(directory))) == []
    assert config_of(newest_offline(directory))["model"]["hidden"] == [8]


@pytest.mark.takes_seconds
@pytest.mark.processes
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_a_run_without_it_loads_nothing_of_it(side: str, tmp_path: Path) -> None:
    _, loaded = end(start(side, tmp_path / "run", "--steps", "5"))
    assert loaded & PACKAGES == set()
    assert {entry.name for entry in (tmp_path / "run").iterdir()} & PACKAGES == set()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the loop is asked to do, in the place of training."""
    found: dict[str, Any] = {}

    def train(*arguments: Any) -> ProcessOutcome:
        found["observers"] = arguments[5]
        return ProcessOutcome(step=1, resumed_from=None)

    monkeypatch.setattr("parity.cli.train.train", train)
    return found


def train(*options: str, directory: Path) -> int:
    return main(["train", "--side", "torch", "--spec", "mlp-digits", "--dir", str(directory), *options])


def test_without_it_nothing_stands_between_the_loop_and_the_progress_bar(
    asked: dict[str, Any], tmp_path: Path
) -> None:
    assert train(directory=tmp_path / "run") == 0
    assert asked["observers"].on_step.__func__ is Progress.watch
    assert asked["observers"].on_validation is Observers().on_validation


def test_with_it_records_go_to_the_progress_bar_and_to_each_tracker_once(
    asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("parity.cli.train.Progress.watch", lambda self, record: seen.append(("bar", record)))
    monkeypatch.setattr(
        "parity.trackers.Trackers.on_record", lambda self, record: seen.append((*self._trackers, record))
    )
    assert train("--log", "tensorboard", "--log", "tensorboard", directory=tmp_path / "run") == 0
    step, validation = record(1), Validation(attempt=0, step=1, metric="loss", value=0.5, loss=0.5)
    asked["observers"].on_step(step)
    asked["observers"].on_validation(validation)
    assert seen == [("bar", step), ("tensorboard", step), ("tensorboard", validation)]


@pytest.mark.parametrize(
    ("name", "module"), [("tensorboard", "tensorboard"), ("tensorboard", "crc32c"), ("wandb", "wandb")]
)
def test_a_missing_package_is_one_error_before_anything_is_trained(
    name: str,
    module: str,
    asked: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for loaded in [m for m in sys.modules if m.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.delitem(sys.modules, f"parity.trackers.{name}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    assert train("--log", name, directory=tmp_path / "run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"parity: error: --log {name}: ")
    assert module in line
    assert line.endswith(f"; pip install 'parity-suite[{name}]'")
    assert not asked
    assert not (tmp_path / "run").exists()


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        train("--log", "mlflow", directory=tmp_path / "run")
    error = capsys.readouterr().err
    assert "invalid choice: 'mlflow'" in error
    assert "tensorboard" in error
    assert "wandb" in error
    with pytest.raises(ValueError, match="unknown tracker 'mlflow'; known: tensorboard, wandb"):
        load(["mlflow"])
