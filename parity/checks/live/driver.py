"""The driver: takes a run along one road, from the kill to the end, and has the judge compare it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from parity import sides
from parity.capture import Leaf, Snapshot
from parity.checks.live.beginning import Kill
from parity.checks.live.evidence import Evidence, Ground, Outcome
from parity.checks.live.folder import contents, copy_folder, list_folder
from parity.checks.live.judge import judge_resumed
from parity.checks.live.left_files import judge_files
from parity.checks.live.request import Request
from parity.checks.live.roads import Road
from parity.checks.live.trace import Trace

__all__ = ["Driver", "Runner"]


class Runner(Protocol):
    """Runs a training function once, in this process or in one of its own."""

    mode: str
    parallel: int
    """Runs that may go on at once."""

    def run(self, folder: Path, request: Request) -> Trace:
        """Run it from its start, or from what the folder holds, to its end or to a kill."""


class Driver:
    """Drives one training function; holds what every road is compared with.

    Args:
        runner: Runs the function.
        root: Directory of the folders of the runs.
        steps: Steps of the whole run.
        stop_at: Completed steps at the kill.
        options: Keyword arguments of the function.
    """

    def __init__(self, runner: Runner, root: Path, steps: int, stop_at: int, options: dict[str, Any]) -> None:
        self.runner, self.root, self.steps, self.stop_at, self.options = runner, root, steps, stop_at, options
        self.reference: Trace
        self.ground: Ground
        self.copies: dict[int, Path] = {}
        """Mark to the folder as a kill there left it."""
        self.closed: dict[str, str] = {}
        self.reads: set[str] = set()
        """Files that resumed runs read: the checkpoints."""
        self._full: Trace | None = None
        self._lock = threading.Lock()

    def full(self, keep: Mapping[int, Sequence[str]]) -> Trace:
        """Run once more without a stop, one time only: what two equal runs leave, to the end."""
        with self._lock:
            if self._full is None:
                request = Request(steps=self.steps, options=self.options, keep=keep)
                self._full = self.runner.run(self.root / "once-more", request)
            return self._full

    def drive(self, road: Road) -> Outcome:
        """Take the run along a road."""
        drive = {"options": self._drive_options, "extend": self._drive_extend, "resume": self._drive_kills}
        return drive[road.kind](road)

    def _drive_kills(self, road: Road) -> Outcome:
        folder = self.root / f"road-{road.name}"
        copy_folder(self.copies[road.kills[0]], folder)
        options = {**self.options, **road.options}
        killed = road.kills[0]
        for kill in road.kills[1:]:
            until = {"kill": 0} if kill == 0 else {"kill_step": self.reference.marks[kill].step}
            trace = self.runner.run(folder, Request(steps=self.steps, options=options, **until))  # type: ignore[arg-type]
            if trace.end != "killed":  # it failed, or came to its end without reaching the kill
                return self._judge_run(road, trace, killed, folder)
            killed = kill or killed
        trace = self.runner.run(folder, Request(steps=self.steps, options=options))
        return self._judge_run(road, trace, killed, folder)

    def _judge_run(self, road: Road, trace: Trace, killed: int, folder: Path) -> Outcome:
        lenient = road.name in ("best", "older", "before-save", "extend")
        left = list_folder(self.copies[road.kills[0]] if road.kills else folder)
        with self._lock:
            self.reads |= {name for name in trace.reads if name in self.reference.names}
        kill = Kill(mark=0 if lenient else killed, left=left, reads=self.reads)
        if trace.end in ("failed", "lost"):
            outcome = judge_resumed(self.reference, trace, self.ground, kill) if trace.marks else Outcome()
            outcome.broken.append(self._failed(trace, killed, left))
            outcome.notes.append(f"the function failed when it was resumed (road {road.name}):\n{trace.error}")
            return outcome
        outcome = judge_resumed(self.reference, trace, self.ground, kill)
        if not outcome.broken and trace.end == "finished" and road.name != "best":
            files = self._judge_files(folder, trace, left)
            outcome.broken += files.broken
            outcome.bookkeeping += files.bookkeeping
        return outcome

    def _failed(self, trace: Trace, killed: int, left: Collection[str]) -> Evidence:
        """Return what a resumed run that failed shows: a file that it wanted may have been removed."""
        last = trace.error.strip().splitlines()[-1] if trace.error.strip() else "nothing"
        before = {name for mark in self.reference.marks[: killed + 1] for name in mark.saved}
        gone = any(name in last and name not in left for name in before)
        component = "checkpoint.retention" if gone and "No such file" in last else "checkpoint.restore"
        step = self.reference.marks[killed].step
        return Evidence(component, "function", step, "a run that continues", last, "at the resume")

    def _judge_files(self, folder: Path, trace: Trace, left: Collection[str]) -> Outcome:
        new = {name for name in trace.names if name not in left and name not in self.reference.names}
        own = {name.partition("/")[0] for name in new if "/" in name} - {
            name.partition("/")[0] for name in self.reference.names
        }
        readers = [reader for adapter in sides.adapters().values() for reader in adapter.readers]
        expected, got = (contents(f, readers) for f in (self.root / "reference", folder))
        step = self.reference.marks[-1].step
        found = judge_files(expected, expected, got, self.ground, step, comparable=not own)
        if found.broken:
            self.full({})
            again = contents(self.root / "once-more", readers)
            found = judge_files(expected, again, got, self.ground, step, comparable=not own)
        return found

    def _drive_options(self, road: Road) -> Outcome:
        """Compare a run with other intervals: what is trained must not change."""
        out = Outcome()
        folder = self.root / f"road-{road.name}"
        trace = self.runner.run(folder, Request(steps=self.steps, options={**self.options, **road.options}))
        if trace.end != "finished":
            self.closed[road.name] = f"the function failed with {road.options}"
            return out
        when = f"with {', '.join(f'{k}={v}' for k, v in road.options.items())}, never stopped"
        for left, right in zip(self.reference.marks, trace.marks, strict=False):
            out.compared += 1
            a, b = left.snapshot.leaves, right.snapshot.leaves
            differ = [p for p, leaf in a.items() if p not in self.ground.noise and not left.snapshot.is_dead(p)
                      and _is_training(p, leaf, self.ground) and not leaf.same(b.get(p))]  # fmt: skip
            if differ and self._decided_by_evaluation(left.snapshot, right.snapshot):
                out.notes.append(f"{when}: the schedule follows the evaluations, so training may differ")
                break
            if differ:
                found = [Evidence(a[p].component, p, left.step, a[p].text, b[p].text if p in b else "absent", when)
                         for p in differ]  # fmt: skip
                out.broken += sorted(found, key=lambda e: (not e.component.startswith("rng"), e.path))
                break
        return out

    def _decided_by_evaluation(self, left: Snapshot, right: Snapshot) -> bool:
        """Return whether rates differ too, and follow evaluations by design, as on a plateau."""
        plateau = any(leaf.component == "schedule.num_bad_epochs" for leaf in left.leaves.values())
        rates = [
            p for p, leaf in left.leaves.items() if leaf.component.startswith("schedule") and leaf.role == "state"
        ]
        return plateau and any(not left.leaves[p].same(right.leaves.get(p)) for p in rates)

    def _drive_extend(self, road: Road) -> Outcome:
        folder = self.root / f"road-{road.name}"
        short = self.runner.run(folder, Request(steps=self.stop_at, options={**self.options, "steps": self.stop_at}))
        if short.end != "finished":
            self.closed[road.name] = f"the function failed with steps={self.stop_at}"
            return Outcome()
        return self._judge_run(
            road, self.runner.run(folder, Request(steps=self.steps, options=self.options)), 0, folder
        )


def _is_training(path: str, leaf: Leaf, ground: Ground) -> bool:
    if leaf.role == "stream":
        return path in ground.streams
    if leaf.role == "state":
        return leaf.component.startswith(
            ("model.params", "model.buffers", "optimizer", "scaler", "model.mode", "ema")
        )
    return (
        leaf.role == "array" and path in ground.changing and leaf.component.startswith(("model", "optimizer", "ema"))
    )
