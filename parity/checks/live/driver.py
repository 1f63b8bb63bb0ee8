"""The driver: takes a run along one road, from the kill to the end, and has the judge compare it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from parity import sides
from parity.checks.live.beginning import Kill
from parity.checks.live.envelope import Envelope
from parity.checks.live.evidence import NONE, Evidence, Ground, Outcome, both_runs, differing, text_of
from parity.checks.live.folder import Reader, contents, copy_folder, list_folder
from parity.checks.live.judge import judge_resumed
from parity.checks.live.left_files import judge_files
from parity.checks.live.request import Request
from parity.checks.live.roads import Road
from parity.checks.live.rounding import is_floating
from parity.checks.live.trace import Trace
from parity.contract.capture import Leaf, Snapshot

__all__ = ["Driver", "Runner"]


class Runner(Protocol):
    """Runs a training function once, in this process or in one of its own."""

    mode: str
    parallel: int
    """Runs that may take place at once."""

    def run(self, folder: Path, request: Request) -> Trace:
        """Run it from its start, or from what the folder holds, to its end or to a kill.

        Args:
            folder: The folder that the function is given; made if there is none.
            request: How far it runs, and what is looked at.

        Raises:
            MarkError: A mark is no whole number or goes backwards.
            TrainerError: A process cannot be started any more.
        """

    def stop(self) -> None:
        """End the runs that take place, and refuse others: for a check that does not come to its end."""


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
        self.runner, self.root, self.stop_at = runner, root, stop_at
        self.whole = Request(steps=steps, options=options)
        """The whole run, of which nothing else is asked."""
        self.reference: Trace
        self.ground: Ground
        self.copies: dict[int, Path] = {}
        """Mark to the folder as a kill there left it."""
        self.savers: dict[int, Trace] = {}
        """Mark to the run that was killed there and left the folder, where it is not `again`."""
        self.again: Trace
        """The equal run whose folder was copied."""
        self.equal_runs: list[Trace] = []
        """The runs from which the envelope was measured."""
        self.envelope: Envelope | None = None
        """What judges the numbers that rounding moves; None where equal runs are equal bit by bit."""
        self.closed: dict[str, str] = {}
        self.reads: set[str] = set()
        """Files that resumed runs read: the checkpoints."""
        self._full: Trace | None = None
        self._left: dict[str, Leaf] | None = None
        self._lock = threading.Lock()

    def full(self, keep: Mapping[int, Sequence[str]]) -> Trace:
        """Run once more without a stop, one time only: what two equal runs leave, to the end."""
        with self._lock:
            if self._full is None:
                self._full = self.runner.run(self.root / "once-more", replace(self.whole, keep=keep))
            return self._full

    def drive(self, road: Road) -> Outcome:
        """Take the run along a road."""
        others = {"intervals": self._drive_options, "extend": self._drive_extend}
        return others.get(road.name, self._drive_kills)(road)

    def _drive_kills(self, road: Road) -> Outcome:
        folder = self.root / f"road-{road.name}"
        copy_folder(self.copies[road.kills[0]], folder)
        asked = self.asked(road)
        killed = road.kills[0]
        before = [self.savers.get(killed, self.again)]
        for kill in road.kills[1:]:
            step = self.reference.marks[kill].step
            until = replace(asked, kill_step=step) if kill else replace(asked, kill=0)
            trace = self.runner.run(folder, until)
            if trace.end != "killed":  # it failed, or came to its end without reaching the kill
                return self._judge_run(road, trace, killed, folder, before)
            killed = kill or killed
            before.append(replace(trace, marks=trace.marks[1:]))
        trace = self.runner.run(folder, self.kept(asked))
        return self._judge_run(road, trace, killed, folder, before)

    def asked(self, road: Road) -> Request:
        """Return the whole run with the options of a road."""
        return replace(self.whole, options={**self.whole.options, **road.options})

    def kept(self, request: Request) -> Request:
        """Return a request for a run that can be judged by the envelope, where there is one."""
        return request if self.envelope is None else replace(request, keep_steps=self.envelope.keep)

    def _truth(self, before: Sequence[Trace]) -> Trace:
        """Return what a resumed run is compared with.

        Where rounding moves numbers, the truth at a resume is the state of the very run that saved; what is compared
        later is equal in all of them.
        """
        if self.envelope is None:
            return self.reference
        known = {mark.step: mark for trace in before for mark in trace.marks}
        return replace(self.reference, marks=[known.get(mark.step, mark) for mark in self.reference.marks])

    def _judge_run(self, road: Road, trace: Trace, killed: int, folder: Path, before: Sequence[Trace]) -> Outcome:
        if trace.end == "late":
            return Outcome(unsure=True, notes=[f"nothing is judged on the road {road.name}: {trace.error}"])
        lenient = road.name in ("best", "older", "before-save", "extend")
        left = list_folder(self.copies[road.kills[0]] if road.kills else folder)
        with self._lock:
            self.reads |= {name for name in trace.reads if name in self.reference.names}
        kill = Kill(mark=0 if lenient else killed, left=left, reads=self.reads)
        outcome = judge_resumed(self._truth(before), trace, self.ground, kill)
        if trace.end in ("failed", "lost"):
            outcome.broken.append(self._failed(trace, killed, left))
            outcome.notes.append(f"the function failed when it was resumed (road {road.name}):\n{trace.error}")
            return outcome
        if self.envelope is not None and not outcome.broken and trace.marks:
            _judge_by(self.envelope, outcome, trace)
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
        with self._lock:  # it is the same for every road
            if self._left is None:
                self._left = contents(self.root / "reference", readers)
        expected, got = self._left, contents(folder, readers)
        step = self.reference.marks[-1].step
        again = expected if self.envelope is None else self._noisy(expected, readers)
        found = judge_files(expected, again, got, self.ground, step, comparable=not own)
        if found.broken and self.envelope is None:
            self.full({})
            again = contents(self.root / "once-more", readers)
            found = judge_files(expected, again, got, self.ground, step, comparable=not own)
        return found

    def _noisy(self, expected: Mapping[str, Leaf], readers: Sequence[Reader]) -> dict[str, Leaf]:
        """Return what equal runs left, with nothing in the place of what they differ in or rounding moves."""
        folders = [trace.folder for trace in self.equal_runs]
        noise = {path for folder in folders for path in differing(expected, contents(folder, readers))}
        noise |= {path for path, leaf in expected.items() if is_floating(leaf)}
        return {path: NONE if path in noise else leaf for path, leaf in expected.items()}

    def _drive_options(self, road: Road) -> Outcome:
        """Compare a run with other intervals: what is trained must not change."""
        out = Outcome()
        folder = self.root / f"road-{road.name}"
        trace = self.runner.run(folder, self.kept(self.asked(road)))
        if trace.end != "finished":
            self.closed[road.name] = f"the function failed with {road.options}"
            return out
        when = f"with {', '.join(f'{k}={v}' for k, v in road.options.items())}, never stopped"
        ignored = self.ground.noise | self.ground.rounded
        for both in both_runs(self.reference.marks, trace.marks):
            out.compared += 1
            a, b = both.left.leaves, both.right.leaves
            differ = [p for p, leaf in a.items() if p not in ignored and not both.left.is_dead(p)
                      and _is_training(p, leaf, self.ground) and not leaf.same(b.get(p))]  # fmt: skip
            if differ and self._decided_by_evaluation(both.left, both.right):
                out.notes.append(f"{when}: the schedule follows the evaluations, so training may differ")
                break
            if differ:
                found = [Evidence(a[p].component, p, both.step, a[p].text, text_of(b.get(p)), when) for p in differ]
                out.broken += sorted(found, key=lambda e: (not e.component.startswith("rng"), e.path))
                break
        else:
            if self.envelope is not None:
                _judge_by(self.envelope, out, trace, when)
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
        options = {**self.whole.options, "steps": self.stop_at}
        short = self.runner.run(folder, Request(steps=self.stop_at, options=options))
        if short.end != "finished":
            self.closed[road.name] = f"the function failed with steps={self.stop_at}"
            return Outcome()
        trace = self.runner.run(folder, self.kept(self.whole))
        return self._judge_run(road, trace, 0, folder, [short])


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


def _judge_by(envelope: Envelope, out: Outcome, trace: Trace, when: str = "") -> None:
    """Add what the envelope says about a run to what was found bit by bit."""
    found = envelope.judge(trace, trace.marks[0].step)
    out.multiple, out.unsure = found.multiple, bool(found.too_wide)
    out.notes += [found.too_wide] if found.too_wide else []
    if found.broken:
        out.broken += out.differs + [e._replace(when=when) if when else e for e in found.broken]
