"""A process that drives whole runs on a failing disk, and goes on with each of them on a sound one.

    python -m tests.storage.driving SIDE DIRECTORY ORDER...      (under `disk.environment`)

An order is FAULT:PART:FIRST:STRIDE:ON_ERROR; PART is text in the paths of the operations that count, `*` for all.
One line of JSON for each run comes out.
"""

import itertools
import json
import logging
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from parity import sides
from parity.checkpoints import read_seal, verify
from parity.contract import StepRecord, read_records, splice
from parity.errors import SaveError
from parity.runs import Observers, OnError, ProcessOptions, RunDirectory, train
from parity.spec import load
from tests.storage.disk import FAULTS, LOOKS, Disk
from tests.storage.saving import judge_message
from tests.support.small import bits_of

STEPS = 8
SPEC = load(
    "mlp-digits",
    "float32",
    [
        *("model.hidden=[4]", "batch=4", "mesh.data=1", "execution.chunk=2", f"steps={STEPS}"),
        *("save.every=2", "save.keep_latest=2", "save.keep_best=0", "validate_every=4", "data.validation=4"),
    ],
)


@dataclass(frozen=True)
class Run:
    """What came of one run."""

    order: str
    n: int
    fired: int
    operation: str
    error: str
    """What ended it, empty when it came to its end."""
    failures: int
    """What it reported of saves that failed, when it was to go on."""
    wrong: tuple[str, ...]
    """What must never be; empty when all is well."""


class Driver:
    """One side, and what its run gives when nothing fails."""

    def __init__(self, name: str, home: Path) -> None:
        self.name, self.side = name, sides.load(name)
        self.path = home / "run"
        self.said: list[str] = []
        self.trained = 0
        train(self.side, name, SPEC, self.path, observers=Observers(log=self.said.append))
        self.curve, self.leaves = self.result()
        self.disk = Disk(self.path)

    def result(self) -> tuple[list, dict[str, str]]:
        """Return the bits of the spliced curve, and the leaves of the last checkpoint."""
        records = splice(read_records(self.path / "steps.jsonl", StepRecord))
        seal = read_seal(self.path / "checkpoints" / str(STEPS))
        return bits_of([records[step] for step in sorted(records)]), dict(seal.leaves)

    def try_order(self, order: str, n: int) -> Run:
        """Train while operations fail, then go on without, and compare."""
        fault, part, _, _, on_error = order.split(":")
        shutil.rmtree(self.path)
        self.said.clear()
        self.trained = 0
        error, failures = None, []
        with self.disk.failing(FAULTS[fault], n, part):
            try:
                failures = self.train(on_error)
            except Exception as caught:
                error = caught
        wrong = self.judge(error, failures)
        told = [str(error), *failures] if isinstance(error, SaveError) else failures
        for text in told:
            wrong += self.judge_told(text, FAULTS[fault].kinds == LOOKS)
        if self.trained and error is not None and not isinstance(error, SaveError):
            wrong.append(f"ended in the middle by {error!r}")
        if self.trained and error is not None and on_error == "continue" and not FAULTS[fault].persistent:
            wrong.append(f"did not go on: {error!r}")
        try:
            self.train("stop")
            curve, leaves = self.result()
        except Exception as caught:
            wrong.append(f"the next start fails: {caught!r}")
        else:
            wrong += ["the curve is another one"] if curve != self.curve else []
            wrong += ["the last checkpoint is another one"] if leaves != self.leaves else []
            wrong += self.judge_files()
        done = self.disk.order
        return Run(order, n, done.fired, done.failed, repr(error) if error else "", len(failures), tuple(wrong))

    def train(self, on_error: OnError) -> list[str]:
        observers = Observers(log=self.said.append, on_step=self.on_step)
        outcome = train(self.side, self.name, SPEC, self.path, ProcessOptions(on_error=on_error), observers)
        return outcome.failures

    def on_step(self, record: StepRecord) -> None:
        self.trained = record.step

    def judge(self, error: Exception | None, failures: list[str]) -> list[str]:
        """Say what is wrong with what a run on a failing disk left behind."""
        scan = RunDirectory(self.path).store.scan()
        wrong = [f"{name} looks like a checkpoint: {why}" for name, why in scan.damaged]
        for saved in scan.whole:
            faults = verify(self.path / "checkpoints" / str(saved.step)).faults
            wrong += [f"{saved.step} counts as whole: {faults}"] if faults else []
        if error is not None and not isinstance(error, SaveError | OSError):
            wrong.append(f"raised {error!r}")
        if error is not None and "\n" in str(error):
            wrong.append(f"is of more than one line: {error}")
        if error is None and not failures and not any(saved.step == STEPS for saved in scan.whole):
            wrong.append("no error, and no last checkpoint")
        if error is None and failures and not any("; continuing" in line for line in self.said):
            wrong.append("went on and did not say so")
        return wrong

    def judge_told(self, text: str, any_words: bool) -> list[str]:
        """Say what is wrong with a line about a step that could not be saved, or what follows its save."""
        step = int(text.split()[1])
        wrong = judge_message(text, self.path, any_words=any_words)
        if text.startswith(f"step {step} is saved, but work after the save failed: "):
            return wrong
        steps = [saved.step for saved in RunDirectory(self.path).store.scan().whole]
        if not text.startswith(f"step {step} could not be saved: ") or step in steps:
            wrong.append(f"whole are {steps}: {text}")
        return wrong

    def judge_files(self) -> list[str]:
        """Say what is left over, and which lines cannot be read, after a start on a sound disk."""
        wrong = [f"{p.name} was left behind" for p in self.path.rglob(".*") if p.parent.name != "abandoned"]
        for file in self.path.glob("*.jsonl"):
            for line in file.read_text().splitlines(keepends=True):
                try:
                    json.loads(line)
                except ValueError:
                    wrong.append(f"{file.name} holds {line[:60]!r}")
        return wrong


def main(side: str, home: Path, orders: list[str]) -> None:
    """Drive a run for every operation that an order names."""
    logging.getLogger("absl").setLevel(logging.CRITICAL)  # Orbax tells every failure once more, at length
    driver = Driver(side, home)
    for order in orders:
        first, stride = map(int, order.split(":")[2:4])
        beyond = 0
        for n in itertools.count(first, stride):
            run = driver.try_order(order, n)
            print(json.dumps(asdict(run)), flush=True)
            beyond = 0 if run.fired else beyond + 1
            if beyond == 2:
                break
    print("end", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
