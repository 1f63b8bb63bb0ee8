"""The recorder: what happens at each mark of a training function that is being checked."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from parity import sides
from parity.capture import OTHERS, Region, Scope, StateSnapshot, Walk, capture, outer_scopes
from parity.checks.running.effects import StatementWatch
from parity.checks.running.entry import EntryWatch, entry_of
from parity.checks.running.folder import LogGrowth, copy_folder, hidden, list_folder, wait_for_rest
from parity.checks.running.loads import DecisionWatch, LoadWatch
from parity.checks.running.nudge import nudge_parameters
from parity.checks.running.rank import Rank
from parity.checks.running.regions import RegionWatch
from parity.checks.running.run import AT_ENTRY, Mark, Request, Trace, TraceWriter
from parity.checks.running.source import is_pythons, is_users
from parity.checks.running.turned import TurnDeadline
from parity.errors import ParityError

__all__ = ["EndlessError", "Killed", "MarkError", "Recorder"]


class MarkError(ParityError, ValueError):
    """A mark that cannot be used: no number, a step that goes backwards."""


class Killed(BaseException):
    """Stands for SIGKILL within one process."""


class EndlessError(BaseException):
    """Ends a run that goes on far beyond its steps; no `except Exception` of a loop goes on with the next one."""


class Recorder:
    """Takes the marks of one run.

    Args:
        request: How far it goes, and what is looked at.
        folder: Its folder.
        code: Code of the training function, if it has any.
        writer: Takes every mark as it comes.
        on_kill: Called at the kill.
        others: Threads of this process that are none of the function's; those that are there now by default.
        rank: Place of this process among several that train together, if it does not train alone.
    """

    def __init__(self, request: Request, folder: Path, code: CodeType | None, writer: TraceWriter | None,
                 on_kill: Callable[[], None] | None,
                 others: Collection[threading.Thread] | None = None, rank: Rank | None = None) -> None:  # fmt: skip
        self.request, self.folder, self.code, self.writer, self.on_kill = request, folder, code, writer, on_kill
        self.trace = Trace(folder=folder)
        self.watch = StatementWatch(self) if request.watch else None
        self.loads = LoadWatch(request.loads, lambda: len(self.trace.marks), self.trace.loads, is_users)
        self.decisions = DecisionWatch(request.decisions, lambda: len(self.trace.marks), self.trace.decisions)
        self.turned = TurnDeadline(request.turns)
        self.frame: FrameType | None = None
        """The frame that holds the marks, as far as it is known."""
        self.left_its_work = False
        """Whether the frame that returns has left its work to another one at the last mark, where it had a prefix."""
        self.left: Path | None = None
        """Copy of the folder at a kill: what a `finally` saves after it, a killed process does not."""
        self.keep_printed: Callable[[], None] = lambda: None
        """Writes what was printed so far into the trace."""
        self.put_back: Callable[[], None] = lambda: None
        """Undoes a nudge of what outlives the run in this process."""
        self._before = threading.enumerate()
        self._others = self._before if others is None else others
        self._rank = rank
        self._meet()
        self._files = self._begun = list_folder(folder)
        self._hidden = hidden(folder)
        self._process = os.getpid()
        self._last_state: tuple[FrameType, Mapping[str, Any]] | None = None
        self._regions = RegionWatch(self)
        self._called: set[CodeType] = set()
        self.entry = EntryWatch(request.entry, code, self._enter) if request.entry is not None else None
        self._growth = LogGrowth()
        self._growth.hold(folder, self._begun)

    def mark_frame(self, step: int, frame: FrameType, state: Mapping[str, Any]) -> None:
        """Take a mark made by a call: raises `Killed` at the kill."""
        if os.getpid() != self._process:
            return  # a forked worker of the loop
        self.frame = frame
        self._last_state = (frame, state)
        self.trace.state_was_named = bool(state)
        if step >= self.request.steps - 1:
            sys.setprofile(self.watch_return(frame))
        if self.traces and (step < self.request.steps - 1 or self.follows):
            around: FrameType | None = frame
            while around is not None:
                self.trace_frame(around)
                around = None if around.f_code is self.code else around.f_back
            sys.settrace(self.trace_calls)
        if not self.trace.marks:
            self.find_loop(_frames_around(frame, self.code))
        if self.take(step, outer_scopes(frame, self.code), state):
            self.killed()
            self.leave()
            raise Killed

    def find_loop(self, frames: Sequence[FrameType]) -> None:
        """Note where the loop begins that the marks are made in; the frame that marks is the first."""
        self.trace.loop = entry_of([(frame.f_code, frame.f_lineno) for frame in frames])

    @property
    def told_state(self) -> Mapping[str, Any] | None:
        """Return what the last mark said the state is; None where it said nothing."""
        return self._last_state[1] or None if self._last_state else None

    def enter_region(self, what: Region, frame: FrameType) -> Callable[[], None]:
        """Take the beginning of a declared region; what is returned takes its end."""
        return self._regions.enter(what, frame) if os.getpid() == self._process else lambda: None

    def killed(self) -> None:
        """Write what is known; in a process of its own, end it."""
        if self.writer is not None:
            self.keep_printed()
            self.writer.end(self.trace)
        if self.request.kill_rank is None:
            self._meet()  # nobody is killed before all have said what they know
        if self.on_kill is not None:
            self.on_kill()

    def leave(self) -> None:
        """Copy the folder as a kill leaves it, for a run that goes on holding its files open."""
        self.left = self.folder.with_name(f"{self.folder.name}-at-the-kill")
        copy_folder(self.folder, self.left)

    def has_written(self, name: str) -> bool:
        """Return whether a file was written whole since the first mark: as a copy of the checkpoint, for the best."""
        if not self.trace.marks or name in self.trace.appended:
            return False
        try:
            status = os.lstat(self.folder / name)
        except OSError:
            return False
        return self._begun.get(name) != (status.st_size, status.st_mtime_ns, status.st_ino)

    def _meet(self) -> None:
        """Wait until every rank has come here, so that the folder holds what all of them have saved."""
        if self._rank is not None:
            self._rank.meeting.wait()

    def take(self, step: Any, scopes: Sequence[Scope], state: Mapping[str, Any] | None = None) -> bool:
        """Record a mark; return whether the run is to be killed here."""
        self._meet()
        self.turned.renew()
        read = self.trace.reading  # what the recorder itself lists is none of the loop's
        if self.watch is not None:
            self.watch.flush(scopes, state)
        number = self._number(step)
        index = len(self.trace.marks)
        if index == 0:
            self._begun = list_folder(self.folder)
            self.trace.restored = set(self.trace.reads)
            if self.entry is not None:
                self.entry.stop()
        if index == 0 and self.request.nudge is not None:
            self.trace.nudged, self.put_back = nudge_parameters(scopes, state, self.request.nudge)
        late = self.request.kill_step is not None and number >= self.request.kill_step
        spared = self.request.kill_rank is not None and self._rank and self.request.kill_rank != self._rank.number
        killed = (late or self.request.kill == index) and not spared
        if killed or index in self.request.copies or number == self.request.rest:
            wait_for_rest(self.folder, self._others)
        keep = self.request.keep.get(index) or self.request.keep_steps.get(number, ())
        snapshot = self.snapshot(scopes, state, keep=keep, finite=number >= self.request.steps - 1)
        found = Mark(number, snapshot, *self._changed(), read=read)
        self.trace.marks.append(found)
        self.trace.of_python |= {scope.name for scope in scopes if scope.name and is_pythons(scope.code.co_filename)}
        if not self.trace.code[0] and scopes:
            self.trace.code = (scopes[0].code.co_filename, scopes[0].code.co_firstlineno)
        if self.writer is not None:
            self.writer.mark(found)
        if index in self.request.copies:
            if self._rank is None or self._rank.number == 0:
                copy_folder(self.folder, self.request.copies[index])
            self._meet()
        self.trace.reading = False
        if killed:
            self.trace.end = "killed"
        return killed

    def snapshot(
        self,
        scopes: Sequence[Scope],
        state: Mapping[str, Any] | None,
        *,
        keep: Sequence[str] = (),
        finite: bool = False,
    ) -> StateSnapshot:
        """Capture what frames reach, with the values of some paths."""
        self.trace.frameworks = tuple(sides.adapters())
        walk = Walk(self._hidden, keep, finite=finite)
        walk.noted[OTHERS] = self._before
        found = capture(scopes, state, walk=walk)
        if self.request.decisions:
            self.decisions.owners, self.decisions.held = walk.owners, walk
            self.decisions.marking |= {scope.code for scope in scopes}
        return found

    def _enter(self, scopes: Sequence[Scope]) -> None:
        """Capture the state in which the first step begins."""
        self.trace.entry = self.snapshot(scopes, None, keep=self.request.keep_steps.get(AT_ENTRY, ()))

    def finish(self, frame: FrameType) -> None:
        """Capture the state of the frame that is about to return; of each frame that returns, the last one counts."""
        state: Mapping[str, Any] = self._last_state[1] if self._last_state and frame is self._last_state[0] else {}
        # nothing is read after a return: what was dead in the loop stays so, and gives no paths
        dead = self.trace.marks[-1].snapshot.dead if self.trace.marks else frozenset()
        name = frame.f_code.co_name if self.left_its_work else ""
        if not name:  # at earlier marks a function that it left its work to may have made, its own had a prefix
            dead |= {path.removeprefix(f"{frame.f_code.co_name}().") for path in dead}
        scopes = [Scope(name, frame.f_code, -1, dict(frame.f_locals), frame.f_globals, dead=dead)]
        keep = self.request.keep.get(-1) or self.request.keep_steps.get(-1, ())
        self.trace.final = self.snapshot(scopes, state, keep=keep, finite=True)
        self.trace.final.dead |= dead

    @property
    def traces(self) -> bool:
        """Return whether the code of the trainer is traced between its marks."""
        return self.watch is not None or self.follows

    @property
    def follows(self) -> bool:
        """Return whether it is followed what the trainer's code takes."""
        return bool(self.request.loads or self.request.decisions or self.request.turns)

    def trace_frame(self, frame: FrameType) -> None:
        """Trace a frame that is there already, line by line or instruction by instruction."""
        if self.watch is not None:
            frame.f_trace = self.watch.trace
        else:
            frame.f_trace = self._follow(frame)

    def trace_calls(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Trace function of the thread: notes which functions of the trainer are called, and traces none of them.

        Where the accesses to some names are asked for, it traces those that have one in them.
        """
        if self.follows:
            return self._follow(frame)
        code = frame.f_code
        if code not in self._called:
            self._called.add(code)
            if is_users(code.co_filename):
                self.trace.executed.add((code.co_filename, code.co_firstlineno))
        return None

    def _follow(self, frame: FrameType) -> Any:
        """Follow a frame from now on; return its trace function."""
        asked = self.request
        return (self.decisions if asked.decisions else self.turned if asked.turns else self.loads).enter(frame)

    def watch_return(self, marked: FrameType | None) -> Callable[[FrameType, str, Any], None]:
        """Return a profile function that captures a marked frame as it returns.

        The frame, not its code: a trainer that calls itself for each step returns from all of them.
        """

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            if event == "return" and frame is marked:
                sys.setprofile(None)
                self.finish(frame)
                sys.setprofile(profile)

        return profile

    def _number(self, step: Any) -> int:
        try:
            number = int(step)
            whole = number == step
        except (TypeError, ValueError):
            whole = False
        if not whole or isinstance(step, bool):
            raise MarkError(f"a mark gives the number of completed steps, got {step!r}; yield an int, once per step")
        marks = self.trace.marks
        if marks and number < marks[-1].step:
            raise MarkError(
                f"marks go backwards: {number} after {marks[-1].step}; mark with the steps completed since the run "
                "began, not with the position in an epoch"
            )
        longest = self.request.longest
        if longest is not None and (number > longest or len(marks) > MOST_MARKS * longest):
            raise EndlessError(
                f"the function goes on after steps={self.request.steps}: it has made {len(marks)} marks, the last "
                f"one at step {number}; let it take `steps` and end there, or give the steps after which it ends"
            )
        return number

    def _changed(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the files that changed since the last call, and those that are gone; notes which ones only grow."""
        before, self._files = self._files, list_folder(self.folder)
        changed = {name for name in {*before, *self._files} if before.get(name) != self._files.get(name)}
        self.trace.names.update(self._files)
        self.trace.appended = self._growth.appended(self.folder, changed & self._files.keys())
        saved = sorted(name for name in changed if name in self._files)
        return tuple(saved), tuple(sorted(name for name in before if name not in self._files))


MOST_MARKS = 1000
"""Most marks a step, on the average: a loop that waits for its end in vain makes marks of one step for ever."""


def _frames_around(frame: FrameType | None, last: CodeType | None) -> list[FrameType]:
    """Return a frame and those around it, up to that of a function; only the first where there is no function."""
    found: list[FrameType] = []
    while frame is not None:
        found.append(frame)
        frame = None if last is None or frame.f_code is last else frame.f_back
    return found
