"""Where and how the runs of a check take place: their directory, and what runs the function in a mode."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from parity.checks.running.inline import InlineRunner, Train
from parity.checks.running.launched import COUNT, checked_launcher
from parity.checks.running.process import ProcessRunner, why_not_importable
from parity.checks.running.ranks import RanksRunner
from parity.checks.running.run import Runner
from parity.checks.scratch import scratch_directory
from parity.errors import SpecError
from parity.forks import Janitor

__all__ = ["RunMode", "open_workdir", "parameters_of", "require_call", "runner_of"]

RunMode = Literal["auto", "process", "inline"]


def open_workdir(stack: ExitStack, workdir: Path | None) -> Path:
    """Return the directory for the folders of the runs: an empty one that is given, or a temporary one.

    Args:
        stack: Removes a temporary one.
        workdir: What the caller gave.

    Raises:
        SpecError: It cannot be made or read, or holds something already: runs would continue from what an earlier
            check left.
    """
    if workdir is None:
        made = stack.enter_context(scratch_directory("parity-"))
        stack.enter_context(Janitor(folder=str(made)))
        return made
    workdir = Path(workdir)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        held = next(workdir.iterdir(), None)
    except OSError as error:
        raise SpecError(
            "workdir", f"{workdir} cannot be used: {error.strerror}; give a directory to write to"
        ) from error
    if held is not None:
        raise SpecError("workdir", f"{workdir} holds {held.name}; give a new or an empty directory")
    return workdir


def runner_of(
    train: Train,
    mode: RunMode,
    root: Path,
    processes: int = 1,
    launcher: Sequence[str] | None = None,
    resume_processes: int | None = None,
) -> tuple[Runner, list[str]]:
    """Return what runs a function in a mode, and the notes of the verdict on that.

    Args:
        train: The function.
        mode: As of `resumes`.
        root: Directory for what processes print.
        processes: Processes that train together in each run.
        launcher: The command that starts them, as of `resumes`.
        resume_processes: As of `resumes`.

    Raises:
        SpecError: No function that can be called; no such mode; processes are asked for, and the function cannot be
            imported; no such launcher; or no other number of processes.
    """
    _require_function(train)
    if not isinstance(processes, int) or isinstance(processes, bool) or processes < 1:
        raise SpecError("processes", f"must be a whole number of at least 1, got {processes!r}")
    if mode not in ("auto", "process", "inline"):
        raise SpecError("mode", f"must be auto, process or inline, got {mode!r}")
    words = () if launcher is None else checked_launcher(launcher, processes)
    _require_other(resume_processes, processes, words)
    several = processes > 1 or resume_processes is not None
    why = why_not_importable(train) if mode != "inline" else ""
    if several and mode == "inline":
        asked = f"processes={processes}" if processes > 1 else f"resume_processes={resume_processes}"
        raise SpecError("mode", f"inline is one process, got {asked}; leave mode out")
    if (mode == "process" or several) and why:
        raise SpecError("mode", f"process needs a function that another process can import: {why}")
    if mode == "inline" or why:
        return InlineRunner(train), [f"checked within this process: {why}"] if why else []
    return (RanksRunner(train, root, processes, words) if several else ProcessRunner(train, root)), []


def _require_function(train: Any) -> None:
    """Refuse what cannot be called, and what only an event loop can run: its body would not run at all."""
    if not callable(train):
        raise SpecError("train", f"must be a function that takes the folder, got {train!r}")
    code = train if inspect.isroutine(train) else getattr(train, "func", None) or type(train).__call__
    if inspect.iscoroutinefunction(code) or inspect.isasyncgenfunction(code):
        name = getattr(train, "__qualname__", type(train).__qualname__)
        raise SpecError(
            "train",
            f"{name} is async and needs an event loop: give a function that calls asyncio.run({name}(folder)), and "
            "parity.mark(step) in it once per step",
        )


def _require_other(number: object, processes: int, launcher: Sequence[str]) -> None:
    """Refuse what is no other number of processes, or one that a launcher is not told."""
    if number is None:
        return
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise SpecError("resume_processes", f"must be a whole number of at least 1, got {number!r}")
    if number == processes:
        raise SpecError("resume_processes", f"must be another number than processes, got {number} for both")
    if launcher and not any(COUNT in word for word in launcher):
        raise SpecError(
            "launcher", f"has to be told the number of processes, {processes} or {number}: write {COUNT} in its words"
        )


def parameters_of(train: Train) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function by their names; none of one of a compiled module, which tells nothing."""
    try:
        return inspect.signature(train).parameters
    except (TypeError, ValueError):
        return {}


def require_call(train: Train, folder: Path, options: Mapping[str, Any]) -> None:
    """Refuse a function that cannot be called with the folder and its options, before anything runs.

    Args:
        train: The function.
        folder: Any folder.
        options: Its keyword arguments.

    Raises:
        SpecError: It takes other arguments.
    """
    try:
        signature = inspect.signature(train)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(folder, **options)
    except TypeError as error:
        given = ", ".join(("folder", *(f"{name}={value!r}" for name, value in options.items())))
        raise SpecError("train", f"takes {signature}, and is called with ({given}): {error}") from error
