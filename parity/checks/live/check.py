"""The resume check on a training function: two equal runs, then every road, judged leaf by leaf."""

from __future__ import annotations

import inspect
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from parity import sides
from parity.capture import Leaf
from parity.checks.live.advice import advise
from parity.checks.live.align import varying
from parity.checks.live.folder import contents, copy_folder
from parity.checks.live.inline import InlineRunner, Train
from parity.checks.live.judge import (
    Evidence,
    Ground,
    Outcome,
    ground_of,
    judge_effects,
    judge_files,
    judge_resumed,
    judge_same,
)
from parity.checks.live.process import ProcessRunner, why_not_importable
from parity.checks.live.recorder import Request
from parity.checks.live.roads import Road, plan_roads, road_names
from parity.checks.live.trace import Trace
from parity.errors import SpecError, TrainerError
from parity.results import Resumption, Suspect, Verdict

__all__ = ["Mode", "Runner", "check_trainer"]

Mode = Literal["auto", "process", "inline"]
MOST = 200
"""Most suspects that a record keeps."""


class Runner(Protocol):
    """Runs a training function once, in this process or in one of its own."""

    mode: str
    parallel: int
    """Runs that may go on at once."""

    def run(self, folder: Path, request: Request) -> Trace:
        """Run it from its start, or from what the folder holds, to its end or to a kill."""


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
    names = road_names(roads)
    options = dict(options or {})
    stop_at = _require_stop(steps, stop_at)
    with ExitStack() as stack:
        if workdir is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parity-", ignore_cleanup_errors=True)))
        else:
            root = workdir
            root.mkdir(parents=True, exist_ok=True)
        runner, notes = _runner(train, mode, root)
        stack.enter_context(runner)  # type: ignore[arg-type]
        check = _Check(train, runner, root, steps, stop_at, options, names, notes)
        found = check.run()
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


class _AtOnce(Executor):
    """Runs everything in this thread, when its result is asked for or at once."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function now."""
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        return future

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:  # type: ignore[override]
        """Call a function for each item when its turn comes."""
        return map(function, *iterables)


class _Check:
    def __init__(self, train: Train, runner: Runner, root: Path, steps: int, stop_at: int, options: dict[str, Any],
                 names: Sequence[str], notes: list[str]) -> None:  # fmt: skip
        self.runner, self.root, self.steps, self.stop_at = runner, root, steps, stop_at
        self.names, self.notes = names, notes
        try:
            self.parameters: Mapping[str, inspect.Parameter] = inspect.signature(train).parameters
        except (TypeError, ValueError):
            self.parameters = {}
        self.options = {**({"steps": steps} if "steps" in self.parameters else {}), **options}
        self.suspects: list[Suspect] = []
        self.bookkeeping: list[Suspect] = []
        self.closed: dict[str, str] = {}
        self.driven: list[str] = []
        self.compared = 0
        self.unsure = False
        self.full: Trace | None = None
        self.lock = threading.Lock()

    def run(self) -> Resumption:
        """Run everything and return the record."""
        with _AtOnce() if self.runner.parallel == 1 else ThreadPoolExecutor(self.runner.parallel) as pool:
            return self._run(pool)

    def _run(self, pool: Executor) -> Resumption:
        asked = Request(steps=self.steps, options=self.options)
        if self.runner.parallel > 1:  # where they are killed must be known before it is seen what the first run saves
            both = pool.submit(self._first_run, asked), pool.submit(self._second_run, None)
            self.reference, again = both[0].result(), both[1].result()
        else:
            self.reference = self._first_run(asked)
            again = self._second_run(self.reference)
        marks = self.reference.marks
        changing = varying(marks)
        parted = judge_same(marks, again.marks, changing)
        trained = self._trained(changing)
        if parted is not None:
            return self._inconclusive(parted, trained)
        self.ground = ground_of(marks, again.marks, changing, self._sources())
        roads, self.closed = plan_roads(self.names, marks, self.stop, self.parameters)
        self._add(judge_effects(again, self.ground), "uninterrupted")
        if not self.suspects:
            self._merge(roads, pool.map(self._drive, roads), pool)
        return self._verdict(trained)

    def _merge(self, roads: Sequence[Road], outcomes: Iterable[Outcome], pool: Executor) -> None:
        """Take what the roads found, up to the first that is broken: the others would show the same cause."""
        for road, outcome in zip(roads, outcomes, strict=True):
            if road.name in self.closed:
                continue
            self.driven.append(road.name)
            self.compared += outcome.compared
            self.notes += outcome.notes
            self._book(outcome.bookkeeping, road.name)
            if outcome.broken:
                self._confirm(road, outcome, pool)
                return

    def _confirm(self, road: Road, outcome: Outcome, pool: Executor) -> None:
        """Run both once more: equal runs may part after the kill too, and the verdict is to say by how much."""
        paths = [e.path for e in outcome.broken if e.when in ("at the resume", "one step after the resume")][:40]
        there, here = outcome.first or (0, 0)
        fetched: Trace | None = None
        if len(road.kills) == 1 and outcome.first is not None and paths:
            folder = self.root / f"values-{road.name}"
            copy_folder(self.copies[road.kills[0]], folder)
            options = {**self.options, **road.options}
            asked = Request(steps=self.steps, options=options, keep={here: paths}, kill=here)
            waiting = pool.submit(self.runner.run, folder, asked)
            full = self._full({there: paths})
            fetched = waiting.result()
        else:
            full = self._full({})
        if judge_same(self.reference.marks, full.marks, self.ground.changing) is not None:
            self.notes.append("what differs after the kill differs between two equal runs as well")
            self.unsure = True
            return
        self._add(outcome.broken, road.name)
        if fetched is not None and len(fetched.marks) > here and len(full.marks) > there:
            step = self.reference.marks[there].step
            self._measure(full.marks[there].snapshot.values, fetched.marks[here].snapshot.values, step)

    def _full(self, keep: Mapping[int, Sequence[str]]) -> Trace:
        """Run a third time without a stop, once: what two equal runs leave, to the end."""
        with self.lock:
            if self.full is None:
                self.full = self.runner.run(
                    self.root / "once-more", Request(steps=self.steps, options=self.options, keep=keep)
                )
            return self.full

    def _verdict(self, trained: int) -> Resumption:
        marks = self.reference.marks
        if not trained:
            self.notes.append("no floating value that the check sees changed: nothing was trained, or it is out of sight")
        if "torch" in self.reference.frameworks and not any(
            leaf.component.startswith("optimizer.") for leaf in marks[-1].snapshot.leaves.values()
        ):
            self.notes.append("no optimizer was seen: give it to parity.mark, or keep it in a variable of the loop")
        unsure = self.unsure or not trained or not self.compared
        verdict: Verdict = "broken" if self.suspects else "inconclusive" if unsure else "holds"
        if verdict == "holds" and self._not_finite():
            verdict = "inconclusive"
            self.notes.append("values are NaN in the uninterrupted run: after that every difference is hidden")
        return self._record(verdict, trained)

    def _first_run(self, asked: Request) -> Trace:
        trace = self._uninterrupted("reference", asked)
        self.stop = next(at for at, mark in enumerate(trace.marks) if mark.step >= self.stop_at)
        if not any(mark.saved for mark in trace.marks[: self.stop + 1]):
            raise TrainerError(
                f"nothing was saved in the folder before step {self.stop_at}; save into the folder that the function is "
                "given, or give a later stop_at"
            )
        return trace

    def _second_run(self, first: Trace | None) -> Trace:
        """Run once more, up to the last kill, with a copy of the folder as each kill would leave it.

        In processes it runs beside the first one: every mark up to the kill is copied that a road may want.
        """
        copies: dict[int, Path] = {}
        if first is not None:
            roads, _ = plan_roads(self.names, first.marks, self.stop, self.parameters)
            wanted = sorted({road.kills[0] for road in roads if road.kills} | {self.stop})
            kill: int | None = wanted[-1]
            kill_step = None
        else:
            every = all(name in ("kill", "again", "third", "intervals", "best", "older", "extend") for name in self.names)
            wanted, kill = ([] if every else list(range(1, self.steps))), None
            kill_step = self.stop_at if every else self.steps - 1
        copies = {at: self.root / f"killed-{at}" for at in wanted if at != kill}
        request = Request(
            steps=self.steps, options=self.options, copies=copies, kill=kill, kill_step=kill_step, watch=True,
            writes=first.writes if first is not None else (),
        )  # fmt: skip
        trace = self._uninterrupted("again", request)
        self.copies = {**copies, len(trace.marks) - 1: self.root / "again"}
        return trace

    def _record(self, verdict: Verdict, trained: int) -> Resumption:
        last = self.reference.marks[-1].snapshot
        return Resumption(
            name="",
            verdict=verdict,
            mode=self.runner.mode,
            steps=self.steps,
            stop_at=self.stop_at,
            suspects=tuple(self.suspects[:MOST]),
            bookkeeping=tuple(_each_once(self.bookkeeping))[:MOST],
            unseen=dict(last.unseen),
            roads=tuple(self.driven),
            closed=self.closed,
            notes=tuple(self.notes),
            compared=self.compared,
            leaves=len(last.leaves),
            changed=trained,
            frameworks=self.reference.frameworks,
        )

    def _uninterrupted(self, name: str, request: Request) -> Trace:
        trace = self.runner.run(self.root / name, request)
        if trace.end in ("failed", "lost"):
            raise TrainerError(f"the function failed without being stopped:\n{trace.error}")
        if len(trace.marks) < 2:
            raise TrainerError(
                f"the function made {len(trace.marks)} marks in {self.steps} steps; yield the completed steps, or call "
                "parity.mark, once per step"
            )
        if trace.marks[-1].step < self.stop_at:
            raise TrainerError(
                f"the function ended after {trace.marks[-1].step} steps, before the kill at {self.stop_at}; give steps and "
                "stop_at that it reaches"
            )
        return trace

    def _trained(self, changing: Iterable[str]) -> int:
        leaves = self.reference.marks[-1].snapshot.leaves
        return sum(
            leaves[path].role in ("state", "array") and "float" in leaves[path].type for path in changing if path in leaves
        )

    def _not_finite(self) -> bool:
        last = self.reference.marks[-1].snapshot.leaves
        return any(leaf.type.startswith("float") and leaf.digest == "nan" and not leaf.component.startswith("best") for leaf in last.values())

    def _sources(self) -> list[str]:
        return sorted({self.reference.code[0], *(file for file, _ in self.reference.writes)} - {""})

    def _drive(self, road: Road) -> Outcome:
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
            if trace.end == "failed" or not trace.marks:
                return self._judge_run(road, trace, killed, folder)
            killed = kill or killed
        trace = self.runner.run(folder, Request(steps=self.steps, options=options))
        return self._judge_run(road, trace, killed, folder)

    def _judge_run(self, road: Road, trace: Trace, killed: int, folder: Path) -> Outcome:
        if trace.end in ("failed", "lost"):
            last = trace.error.strip().splitlines()[-1] if trace.error.strip() else "nothing"
            step = self.reference.marks[killed].step
            failed = Evidence("checkpoint.restore", "function", step, "a run that continues", last, "at the resume")
            note = f"the function failed when it was resumed (road {road.name}):\n{trace.error}"
            return Outcome(broken=[failed], notes=[note])
        lenient = road.name in ("best", "older", "before-save")
        outcome = judge_resumed(self.reference, trace, self.ground, 0 if lenient else killed)
        if not outcome.broken and trace.end == "finished" and road.name != "best":
            files = self._judge_files(folder)
            outcome.broken += files.broken
            outcome.bookkeeping += files.bookkeeping
        return outcome

    def _judge_files(self, folder: Path) -> Outcome:
        readers = [reader for adapter in sides.adapters().values() for reader in adapter.readers]
        expected, got = (contents(f, readers) for f in (self.root / "reference", folder))
        step = self.reference.marks[-1].step
        found = judge_files(expected, expected, got, self.ground, step)
        if found.broken:
            self._full({})
            found = judge_files(expected, contents(self.root / "once-more", readers), got, self.ground, step)
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
            if differ:
                found = [Evidence(a[p].component, p, left.step, a[p].text, b[p].text if p in b else "absent", when)
                         for p in differ]  # fmt: skip
                out.broken += sorted(found, key=lambda e: (not e.component.startswith("rng"), e.path))
                break
        return out

    def _drive_extend(self, road: Road) -> Outcome:
        folder = self.root / f"road-{road.name}"
        short = self.runner.run(folder, Request(steps=self.stop_at, options={**self.options, "steps": self.stop_at}))
        if short.end != "finished":
            self.closed[road.name] = f"the function failed with steps={self.stop_at}"
            return Outcome()
        return self._judge_run(road, self.runner.run(folder, Request(steps=self.steps, options=self.options)), 0, folder)

    def _add(self, found: Sequence[Evidence], road: str) -> list[Suspect]:
        made = [
            Suspect(component=e.component, path=e.path, step=e.step, expected=e.expected, got=e.got, when=e.when, road=road,
                    advice=advise(e, found)) for e in found[:MOST]
        ]  # fmt: skip
        self.suspects += made
        return made

    def _book(self, found: Sequence[Evidence], road: str) -> None:
        self.bookkeeping += [
            Suspect(component=e.component, path=e.path, step=e.step, expected=e.expected, got=e.got, when=e.when, road=road)
            for e in found
        ]

    def _measure(self, expected: Mapping[str, Any], got: Mapping[str, Any], step: int) -> None:
        self.suspects = [
            replace(one, **_measure(expected[one.path], got[one.path]))
            if one.step == step and one.path in expected and one.path in got
            else one
            for one in self.suspects
        ]

    def _inconclusive(self, parted: Evidence, trained: int) -> Resumption:
        self.notes.append(
            f"two equal runs part by themselves: at step {parted.step} {parted.path} ({parted.component}) differs; "
            f"{_likely(parted)}. Nothing is judged until they agree."
        )
        return self._record("inconclusive", trained)


def _is_training(path: str, leaf: Leaf, ground: Ground) -> bool:
    if leaf.role == "stream":
        return path in ground.streams
    if leaf.role == "state":
        return leaf.component.startswith(("model.params", "model.buffers", "optimizer", "scaler", "model.mode", "ema"))
    return leaf.role == "array" and path in ground.changing and leaf.component.startswith(("model", "optimizer", "ema"))


def _likely(parted: Evidence) -> str:
    if parted.component.startswith("rng"):
        return "a generator is not seeded"
    if parted.component.startswith("data"):
        return "the order of the data is not seeded, or depends on the order of files, of a set or of threads"
    return "something is not seeded, or an operation adds in no fixed order (torch.use_deterministic_algorithms finds those)"


def _measure(expected: Any, got: Any) -> dict[str, Any]:
    """Return by how much two values differ."""
    if not isinstance(expected, np.ndarray) or not isinstance(got, np.ndarray) or expected.shape != got.shape:
        return {}
    if expected.dtype.kind not in "fiub" or got.dtype.kind not in "fiub":
        return {}
    a, b = expected.astype(np.float64), got.astype(np.float64)
    with np.errstate(all="ignore"):
        gap = np.where(a == b, 0.0, np.abs(a - b))
        relative = np.where(gap == 0, 0.0, gap / np.abs(a))
    return {
        "elements": int(a.size),
        "differing": int(np.count_nonzero(gap)),
        "max_abs": float(gap.max(initial=0.0)),
        "max_rel": float(relative.max(initial=0.0)),
    }


def _each_once(found: Iterable[Suspect]) -> list[Suspect]:
    return list({one.path: one for one in found}.values())

