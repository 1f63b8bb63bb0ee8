"""Runs of a training function within this process: a kill leaves it suspended, and the folder is copied."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from types import GeneratorType
from typing import Any

from parity.capture import Walk, activate, frames_of, scopes_of
from parity.checks.running.folder import hidden
from parity.checks.running.lines import keep_printed
from parity.checks.running.rank import Rank
from parity.checks.running.recorder import EndlessError, Killed, MarkError, Recorder
from parity.checks.running.regions import fresh_process, save_arithmetic, save_process_state, seeds_on_import
from parity.checks.running.run import Request, Trace, TraceWriter
from parity.checks.running.source import writes
from parity.checks.running.surroundings import save_surroundings, save_variables
from parity.checks.running.turned import TooLong, turned
from parity.checks.running.unwritten import filled

__all__ = ["InlineRunner", "Train", "run_function"]

Train = Callable[..., Any]
"""A training function: takes the folder; a generator that yields completed steps, or a function that calls `mark`."""


class InlineRunner:
    """Runs the function within this process; the process's generators, settings and surroundings are put back."""

    mode = "inline"
    parallel = 1
    ranks = 1

    def __init__(self, train: Train) -> None:
        self._train = train
        self._state = ExitStack()
        self._put_back: tuple[Callable[[], None], ...] = ()
        """What each run finds as it was."""
        self._before: Callable[[], None] = fresh_process
        self._others = threading.enumerate()
        self._suspended: list[GeneratorType[Any, Any, Any]] = []
        """Generators that were killed: kept, so that no `finally` of theirs runs while their folder is compared."""

    def __enter__(self) -> InlineRunner:
        put_back = save_process_state()
        self._put_back = save_arithmetic(), save_surroundings()
        self._state.callback(save_variables())
        self._state.callback(put_back)
        self._state.callback(self._put_back[1])
        if seeds_on_import(_unwrap(self._train)):  # what it seeded is the beginning of every process
            self._before = put_back
        return self

    def __exit__(self, *_: object) -> None:
        while self._suspended:
            with suppress(BaseException):  # what a killed loop does when it is closed concerns nobody
                self._suspended.pop().close()
        self._state.close()

    def stop(self) -> None:
        """Do nothing: its runs take place in the thread that would call this."""

    def run(self, folder: Path, request: Request) -> Trace:
        """Run it once."""
        for put_back in self._put_back:
            put_back()
        return run_function(self._train, folder, request, suspended=self._suspended, before=self._before,
                            others=self._others)  # fmt: skip


def run_function(train: Train, folder: Path, request: Request, *, writer: TraceWriter | None = None,
                 on_kill: Callable[[], None] | None = None,
                 suspended: list[GeneratorType[Any, Any, Any]] | None = None,
                 before: Callable[[], None] = fresh_process,
                 others: Collection[threading.Thread] | None = None, rank: Rank | None = None) -> Trace:  # fmt: skip
    """Run a training function once, from its start to its end or to a kill.

    Args:
        train: The function.
        folder: Its folder; made if there is none.
        request: How far, and what is looked at.
        writer: Takes every mark as it comes.
        on_kill: Called at the kill, for a process that kills itself.
        suspended: Takes the generator that was killed, so that it is not closed.
        before: Called first: gives the generators of this process the state that a new process has.
        others: Threads that are none of the function's; those that are there at the beginning by default.
        rank: Its place among processes that train together.
    """
    with turned(request.turns, train), filled(request.filled):
        given = (train, folder, request, writer, on_kill, suspended, before, others, rank)
        return copy_context().run(_run, *given)  # what it sets of context variables ends with it, as with a process


def _run(train: Train, folder: Path, request: Request, writer: TraceWriter | None, on_kill: Callable[[], None] | None,
         suspended: list[GeneratorType[Any, Any, Any]] | None, before: Callable[[], None],
         others: Collection[threading.Thread] | None, rank: Rank | None) -> Trace:  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(request, folder, getattr(_unwrap(train), "__code__", None), writer, on_kill, others, rank)
    before()
    listening, tracing = activate(recorder), sys.gettrace()
    writes.start(recorder)
    try:
        if recorder.entry is not None:
            recorder.entry.start()
        with keep_printed(recorder.trace.printed, hidden(folder)) as recorder.keep_printed, _out_of_groups():
            result = train(folder, **request.options)
            if isinstance(result, GeneratorType):
                result = _drive(recorder, result, suspended if suspended is not None else [])
            elif isinstance(result, Iterator) and not recorder.trace.marks:
                raise MarkError(
                    f"the function returned {type(result).__qualname__}, an iterator whose variables cannot be seen; "
                    "let the function itself yield, or call parity.mark"
                )
        if recorder.trace.end == "lost":
            recorder.trace.end = "finished"
        if recorder.trace.end == "finished" and result is not None:
            walk = Walk(hidden(folder))
            walk.root("returned", result)
            recorder.trace.returned = walk.finish().leaves
    except Killed:
        recorder.trace.end = "killed"
        if recorder.left is not None:
            shutil.rmtree(folder)
            recorder.left.rename(folder)
    except MarkError:
        raise
    except TooLong:
        recorder.trace.end = "late"
    except EndlessError as error:
        recorder.trace.end, recorder.trace.error = "failed", str(error)
    except (Exception, SystemExit, GeneratorExit) as error:  # the trainer's own: reported with its traceback
        if _exits_at_its_end(error, recorder):
            recorder.trace.end = "finished"
        else:
            recorder.trace.end, recorder.trace.error = "failed", _of_the_trainer(error)
    finally:
        activate(listening)
        writes.stop()
        sys.setprofile(None)
        sys.settrace(tracing)
        if writer is None:  # a process of its own ends here, and what it moved with it
            recorder.put_back()
    return recorder.trace


@contextmanager
def _out_of_groups() -> Iterator[None]:
    """Raise by itself what the check raises in a task of several: a group of tasks raises it with other errors.

    Those are what the other tasks did when they were cancelled for it.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        own: BaseException | None = group.subgroup((Killed, MarkError, TooLong, EndlessError))
        while isinstance(own, BaseExceptionGroup):
            own = own.exceptions[0]
        if own is None:
            raise
        raise own from None


def _of_the_trainer(error: BaseException) -> str:
    """Return the traceback of an error, without the frames that called the trainer: at most its last six."""
    frames, own = error.__traceback__, os.path.dirname(__file__)
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith(own):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames, limit=-6))


def _exits_at_its_end(error: BaseException, recorder: Recorder) -> bool:
    """Return whether a function calls `sys.exit()` in place of a return: after all its steps, and with success."""
    marks = recorder.trace.marks
    done = bool(marks) and marks[-1].step >= recorder.request.steps - 1
    return done and isinstance(error, SystemExit) and error.code in (None, 0)


def _drive(
    recorder: Recorder, generator: GeneratorType[Any, Any, Any], suspended: list[GeneratorType[Any, Any, Any]]
) -> Any:
    """Step through a generator and return what it returns; its frames are looked at while it is suspended."""
    tracing = sys.gettrace()
    while True:
        recorder.frame = generator.gi_frame
        marks = recorder.trace.marks
        last = bool(marks) and marks[-1].step >= recorder.request.steps - 1
        if last:
            frames = frames_of(generator)
            recorder.left_its_work = len(frames) > 1
            sys.setprofile(recorder.watch_return(frames[-1]))
        if recorder.traces and recorder.frame is not None and marks and (not last or recorder.follows):
            recorder.trace_frame(recorder.frame)
            sys.settrace(recorder.trace_calls)
        try:
            step = next(generator)
        except StopIteration as end:
            recorder.trace.end = "finished"
            return end.value
        finally:
            sys.setprofile(None)
            if recorder.traces:
                sys.settrace(tracing)
        if not marks:
            recorder.find_loop(frames_of(generator))
        if recorder.take(step, scopes_of(generator)):
            suspended.append(generator)
            recorder.killed()
            recorder.leave()  # it goes on holding files open, with their locks: what resumes has files of its own
            raise Killed


def _unwrap(train: Any) -> Any:
    while not hasattr(train, "__code__"):
        inner = (
            getattr(train, "__wrapped__", None) or getattr(train, "func", None) or getattr(train, "__func__", None)
        )
        if inner is None:
            inner = vars(type(train)).get("__call__")
        if inner is None or inner is train:
            return None
        train = inner
    return train
