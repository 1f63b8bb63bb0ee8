"""The resume check on a training function: two equal runs, then every road, judged leaf by leaf."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from parity.checks.live.driver import Runner
from parity.checks.live.inline import InlineRunner, Train
from parity.checks.live.process import ProcessRunner, why_not_importable
from parity.checks.live.roads import road_names
from parity.checks.live.session import Session
from parity.errors import SpecError
from parity.results import Resumption

__all__ = ["Mode", "check_trainer"]

Mode = Literal["auto", "process", "inline"]


def check_trainer(
    train: Train,
    *,
    steps: int,
    stop_at: int | None = None,
    mode: Mode = "auto",
    roads: str | Iterable[str] = "quick",
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    workdir: Path | None = None,
) -> Resumption:
    """Train twice without a stop, then stop and resume along every road, and compare the live states bit by bit.

    Args:
        train: Training function, `train(folder, **options)`: a generator that yields the number of completed steps
            once per step, or a function that calls `parity.mark`. It continues from what it finds in the folder.
        steps: Steps of the whole run; passed on if the function takes `steps`.
        stop_at: Completed steps at the kill; by default two thirds of the run.
        mode: `process`: every run in a process of its own, killed by SIGKILL; `inline`: all in this process;
            `auto`: `process` where the function can be imported.
        roads: `quick`, `all`, or names of roads.
        name: What the record calls it; by default the function's name.
        options: Further keyword arguments of the function.
        workdir: Keeps the folders of the runs; by default a temporary directory, removed at the end.

    Raises:
        SpecError: Arguments that cannot be used.
        TrainerError: A function that cannot be judged: it does not mark, does not save, fails by itself.
    """
    began = time.perf_counter()
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SpecError(
            "train", 'the script is imported by a process of the check: call it under `if __name__ == "__main__":`'
        )
    names = road_names(roads)
    options = dict(options or {})
    stop_at = _require_stop(steps, stop_at)
    with ExitStack() as stack:
        if workdir is None:
            root = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="parity-", ignore_cleanup_errors=True))
            )
        else:
            root = workdir
            root.mkdir(parents=True, exist_ok=True)
        runner, notes = _runner(train, mode, root)
        stack.enter_context(runner)  # type: ignore[arg-type]
        found = Session(train, runner, root, steps, stop_at, options, names, notes).run()
    return replace(found, name=name or _name(train), seconds=time.perf_counter() - began)


def _require_stop(steps: int, stop_at: int | None) -> int:
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 3:
        raise SpecError("steps", f"must be a whole number of at least 3, got {steps!r}")
    stop_at = max(1, steps * 2 // 3) if stop_at is None else stop_at
    if not isinstance(stop_at, int) or not 0 < stop_at < steps:
        raise SpecError("stop_at", f"must lie between 1 and {steps - 1}, before the run ends, got {stop_at!r}")
    return stop_at


def _name(train: Train) -> str:
    named: str = getattr(train, "__qualname__", type(train).__qualname__)
    return named.replace("<locals>.", "")


def _runner(train: Train, mode: Mode, root: Path) -> tuple[Runner, list[str]]:
    if mode not in ("auto", "process", "inline"):
        raise SpecError("mode", f"must be auto, process or inline, got {mode!r}")
    why = why_not_importable(train) if mode != "inline" else ""
    if mode == "process" and why:
        raise SpecError("mode", f"process needs a function that another process can import: {why}")
    if mode == "inline" or why:
        return InlineRunner(train), [f"checked within this process: {why}"] if why else []
    return ProcessRunner(train, root), []
