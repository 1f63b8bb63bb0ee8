"""A process whose disk fails while it saves: every operation of the save in turn, each save judged at once.

    python -m tests.storage.saving SIDE DIRECTORY FAULT:FIRST:STRIDE...      (under `disk.environment`)

It holds two checkpoints, of steps 2 and 4, and saves a third, which evicts the older of the two. Before each save the
directory is put back. One line of JSON for each save comes out.
"""

import faulthandler
import importlib
import itertools
import json
import logging
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from parity import sides
from parity.checkpoints import read_seal, verify
from parity.contract import drafts_of
from parity.errors import SaveError
from parity.runs import RunDirectory
from parity.spec import identity_of, load
from tests.storage.disk import FAULTS, LOOKS, REASONS, Disk
from tests.support.small import state_of

LONGEST_SAVE = 120.0
"""Seconds until a save that hangs ends the process, which first writes where each of its threads stands."""

OLDER, OLD = 2, 4
SPEC = load(
    "mlp-digits",
    "float32",
    [
        *("model.hidden=[4]", "batch=4", "mesh.data=1", "execution.chunk=2", "steps=1000000"),
        *("save.every=2", "save.keep_latest=2", "save.keep_best=0"),
    ],
)


OPERATIONS = "open|read|write|writing|close|create|mkdir|fsync|rename|remove"
"""What a message may say was done."""


@dataclass(frozen=True)
class Save:
    """What came of one save on a failing disk."""

    fault: str
    n: int
    fired: int
    operation: str
    """The first that failed."""
    errors: tuple[str, ...]
    whole: bool
    """Whether the new checkpoint is there, and whole."""
    wrong: tuple[str, ...]
    """What must never be; empty when all is well."""


class Saver:
    """A trainer, its directory, and how that looked before."""

    def __init__(self, side: str, directory: Path) -> None:
        self.trainer: Any = sides.load(side).build(SPEC, directory)
        self.run = RunDirectory(directory, drafts=drafts_of(sides.load(side)))
        self.template = directory.with_name("template")
        self.run.open(identity_of(SPEC), side)
        for step in (OLDER, OLD):
            self.advance()
            assert self.trainer.step == step
            self.save()
        shutil.copytree(directory, self.template)
        self.disk = Disk(directory)

    def advance(self) -> None:
        """Train to the next save."""
        for _ in self.trainer.steps(self.trainer.step + 2):
            pass

    def save(self) -> None:
        """Save and wait; the next save opens everything anew."""
        self.trainer.save(None)
        self.trainer.wait()
        self.trainer.close()

    def put_back(self) -> None:
        """Make the directory what it was before the first fault."""
        patiently(lambda: shutil.rmtree(self.run.path))
        shutil.copytree(self.template, self.run.path)

    def try_fault(self, name: str, n: int, *, again: bool = True) -> Save:
        """Save a new step while the n-th operation fails, judge, and save again on a sound disk if asked to."""
        self.put_back()
        self.advance()
        step, leaves = self.trainer.step, state_of(self.trainer)
        errors = []
        with self.disk.failing(FAULTS[name], n):
            for act in (lambda: self.trainer.save(None), self.trainer.wait, self.trainer.close):
                try:
                    act()
                except Exception as error:
                    errors.append(error)
        wrong = self.judge(step, leaves)
        wrong += self.judge_errors(name, step, errors)
        whole = step in {saved.step for saved in self.run.store.scan().whole}
        if not errors and not whole:
            wrong.append("no error, and no checkpoint")
        if again:
            wrong += self.judge_next(step)
        order = self.disk.order
        return Save(name, n, order.fired, order.failed, tuple(map(repr, errors)), whole, tuple(wrong))

    def judge(self, step: int, leaves: dict[str, str]) -> list[str]:
        """Say what is wrong with the directory after a save of `step`."""
        scan = self.run.store.scan()
        steps = [saved.step for saved in scan.whole]
        wrong = [f"{name} looks like a checkpoint: {why}" for name, why in scan.damaged]
        wrong += [f"{saved.step} has no seal" for saved in scan.unsealed]
        wrong += [f"{s} {verify(self.run.checkpoints / str(s)).faults}" for s in steps if not self.sound(s)]
        if OLD not in steps:
            wrong.append(f"the checkpoint before is lost: whole are {steps}")
        if OLDER not in steps and step not in steps:
            wrong.append(f"the oldest was given up for nothing: whole are {steps}")
        for old in {OLDER, OLD} & {*steps}:
            seals = [read_seal(home / str(old)) for home in (self.run.checkpoints, self.template / "checkpoints")]
            if seals[0] != seals[1]:
                wrong.append(f"{old} is not what it was")
        if step in steps and dict(read_seal(self.run.checkpoints / str(step)).leaves) != leaves:
            wrong.append(f"{step} does not hold the state that was saved")
        for pointer in ("latest.json", "best.json"):
            target = self.run.path / pointer
            if target.exists() and json.loads(target.read_text())["step"] not in steps:
                wrong.append(f"{pointer} names {target.read_text()}, whole are {steps}")
        return wrong

    def sound(self, step: int) -> bool:
        return verify(self.run.checkpoints / str(step)).whole

    def judge_errors(self, name: str, step: int, errors: list[Exception]) -> list[str]:
        """Say what is wrong with what was raised: one SaveError at most, of one line, that tells what happened.

        A look at the directory that fails before anything is written may raise as it is.
        """
        fault = FAULTS[name]
        wrong = [f"told {len(errors)} times"] if len(errors) > 1 else []
        for error in errors:
            text = str(error)
            if isinstance(error, OSError) and fault.kinds == LOOKS and self.untouched():
                continue
            if not isinstance(error, SaveError):
                wrong.append(f"raised {error!r}")
            saved = step in {saved.step for saved in self.run.store.scan().whole}
            if saved != text.startswith(f"step {step} is saved, but work after the save failed: "):
                wrong.append(f"the step is {'' if saved else 'not '}saved: {text}")
            if saved == text.startswith(f"step {step} could not be saved: "):
                wrong.append(f"does not name the step: {text}")
            wrong += judge_message(text, self.run.path, any_words=fault.kinds == LOOKS)
            if REASONS[fault.error] not in text and fault.kinds != LOOKS:  # zipfile, say, hides why it cannot read
                wrong.append(f"does not say why: {text}")
        return wrong

    def untouched(self) -> bool:
        """Tell whether the directory holds what it held before."""
        now, before = ({p.relative_to(h) for p in h.rglob("*")} for h in (self.run.path, self.template))
        return now == before

    def judge_next(self, step: int) -> list[str]:
        """Say what is wrong with the next save, on a disk that works again, and with what a next start removes."""
        self.advance()
        try:
            self.save()
        except Exception as error:
            return [f"the next save fails: {error!r}"]
        new = self.trainer.step
        if not self.sound(new):
            return [f"the next save is not whole: {verify(self.run.checkpoints / str(new)).faults}"]
        patiently(self.run.clean)
        scan = self.run.store.scan()
        left = [entry.name for entry in self.run.path.rglob("*") if entry.name.startswith(".")]
        kept = [saved.step for saved in scan.whole]
        wrong = [f"left behind: {left}"] if left or scan.unfinished else []
        allowed = ([OLD, new], [step, new])
        return wrong + ([] if kept in allowed else [f"after the next save, whole are {kept}"])


def judge_message(text: str, run: Path, *, any_words: bool = False) -> list[str]:
    """Say what is wrong with a message: it is one line that ends with an operation, a file of the run and a reason.

    With any words, it names the file, and may say otherwise what is wrong with it: what cannot be read is blamed.
    """
    wrong = [f"is of more than one line: {text}"] if "\n" in text else []
    if any_words and str(run) in text:
        return wrong
    plain = re.search(rf": ({OPERATIONS}) {re.escape(str(run))}(/[^\s:]*)?: [^:]+$", text)
    return wrong if plain else [*wrong, f"names no operation and file: {text}"]


def patiently(remove: Callable[[], object]) -> None:
    """Remove a directory into which the threads of a save that failed may still write."""
    until = time.monotonic() + 10
    while True:
        try:
            remove()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def main(side: str, directory: Path, orders: list[str]) -> None:
    """Fail the operations of a save, in the ways that were asked for."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # Orbax tells every failure once more, at length
    if side == "jax":  # the disk fails on: leftovers cannot be removed, however long it tries
        importlib.import_module("jax_side.checkpoint").SETTLE_SECONDS = 0.05
    saver = Saver(side, directory)
    for order in orders:
        name, first, stride = order.split(":")
        beyond = 0
        for count in itertools.count():
            faulthandler.dump_traceback_later(LONGEST_SAVE, exit=True)
            save = saver.try_fault(name, int(first) + count * int(stride), again=count % 5 == 0)
            print(json.dumps(asdict(save)), flush=True)
            beyond = 0 if save.fired else beyond + 1
            if beyond == 2:  # the number of operations varies a little with the order of the threads
                break
    faulthandler.cancel_dump_traceback_later()
    print("end", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
