"""The resume check on a training function: two equal runs, then every scenario, judged leaf by leaf.

As a verdict, and as an assertion for tests, with a message that names what was lost.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from parity.checks.judging import UNWRITTEN, Meant
from parity.checks.progress import announce
from parity.checks.resume.scenarios import SCENARIOS
from parity.checks.resume.session import Session
from parity.checks.running import AtOriginalPath, RunMode, Train, open_workdir, runner_of
from parity.checks.scenarios import scenario_names
from parity.errors import SpecError, TrainerError
from parity.policy import Rules
from parity.results import Resumption

__all__ = ["ResumeBrokenError", "assert_resumes", "resumes"]


def resumes(
    train: Train,
    *,
    steps: int,
    stop_at: int | None = None,
    mode: RunMode = "auto",
    scenarios: str | Iterable[str] = "quick",
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    workdir: Path | None = None,
    keep: Rules | None = None,
    metric: str = "",
    ignore: Mapping[str, str] | None = None,
    processes: int = 1,
    launcher: Sequence[str] | None = None,
    resume_processes: int | None = None,
    roads: str | Iterable[str] | None = None,
) -> Resumption:
    """Check that a training function resumes exactly, and return the verdict.

    The function is trained twice without a stop, then killed and resumed in every scenario, and the live state is
    compared at every mark, leaf by leaf: parameters, buffers, optimizer, schedule, scaler, modes, generators, data.

    Args:
        train: `train(folder)`, with one mark per step: a generator that yields the completed steps, or a function
            that calls `parity.mark`. It saves into the folder, and continues from what it finds there.
        steps: Completed steps at which the run ends, at least 3; passed to the function if it takes `steps`.
        stop_at: Completed steps at the kill, after the first save; by default two thirds of the run.
        mode: `process`: each run in a process of its own, ended by SIGKILL; `inline`: all in this process; `auto`:
            `process` where the function can be imported, and a note where it cannot.
        scenarios: `quick`, `all`, or names of scenarios (`parity.checks.resume.SCENARIOS`).
        name: Name of the record; by default the function's.
        options: Further keyword arguments for the function.
        workdir: Directory that keeps the folders of the runs; by default a temporary one.
        keep: The rules by which the trainer keeps its checkpoints (`parity.policy.Rules`); the checkpoints that are
            there at each mark are judged by them. By default only what resumes and what is left is judged.
        metric: Variable of the loop that holds the metric by which `keep` chooses the best.
        ignore: Paths or components of differences that are meant, to the reason, which the verdict shows:
            `{"timer": "wall clock", "state.pt: host": "the machine's name"}`; `*` stands for any text.
        processes: Processes that train together in each run, all on this machine: each finds its place in RANK,
            WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as under `torchrun`, and JAX's coordinator in
            JAX_COORDINATOR_ADDRESS. They share the folder, and each marks every step. The state of every rank is
            compared; a path begins with its rank (`rank1:model.weight`).
        launcher: The command that starts these processes, where they are not to be started by the check itself, as
            `("torchrun", "--nproc-per-node", "{processes}")` or `("mpirun", "-n", "{processes}", "python")`: the path
            of a small program is added to its words, and each rank finds its place as the launcher tells it.
            `{processes}` stands for their number. All of them are on this machine.
        resume_processes: Processes that resume in one more scenario, `other-count`: another number than `processes`,
            fewer or more. What was saved has to be there at the resume: parts that a framework places (DTensors,
            arrays of `jax.distributed`) are put together, what all ranks hold counts once, what ranks hold otherwise
            is listed. What follows is compared where runs of both numbers part by rounding alone. A function that
            refuses the number is `inconclusive`. Values of all marks of three runs are kept in memory.
        roads: The former name of `scenarios`, which it replaces where it is given.

    Returns:
        The verdict: `holds`, `broken` with its suspects, or `inconclusive` with the reason.

    Raises:
        SpecError: An argument that cannot be used.
        UnknownNameError: There is no such scenario.
        TrainerError: A function that makes no marks, saves nothing before the kill, or fails without being stopped.
        MarkError: A mark that is no whole number or goes backwards.

    Numerics:
        Bitwise where two equal runs train alike; what else differs between them is no evidence. Where they part by
        rounding alone, five more runs are made, and the floating numbers that training changes are judged by the
        envelope of these: a resumed run may deviate by up to 4 times what equal runs do. Where that would hide the
        loss of a step, or equal runs differ in more than rounding, the verdict is `inconclusive`.

    Example:
        >>> import numpy as np
        >>> def train(folder, steps):
        ...     weights, step = np.ones(2), 0
        ...     if (folder / "saved.npy").exists():
        ...         *weights, step = np.load(folder / "saved.npy")
        ...     for step in range(int(step), steps):
        ...         yield step
        ...         weights = 0.9 * np.array(weights)
        ...         np.save(folder / "saved.npy", [*weights, step + 1])
        >>> found = resumes(train, steps=6, mode="inline")
        >>> found.verdict, found.scenarios
        ('holds', ('kill', 'again', 'third'))
    """
    began = time.perf_counter()
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SpecError(
            "train", 'the script is imported by a process of the check: call it under `if __name__ == "__main__":`'
        )
    names = scenario_names(scenarios if roads is None else roads, SCENARIOS)
    if scenarios == "all":  # named by itself, the verdict says why it is not driven
        names = tuple(name for name in names if name != "other-count" and (processes > 1 or name != "one-rank"))
    if resume_processes is not None:
        names = (*(name for name in names if name != "other-count"), "other-count")
    options = dict(options or {})
    meant = Meant(ignore)
    _require_rules(keep)
    stop_at = _require_stop(steps, stop_at)
    with ExitStack() as stack:
        root = open_workdir(stack, workdir)
        runner, notes = runner_of(train, mode, root, processes, launcher, resume_processes)
        stack.enter_context(runner)  # type: ignore[arg-type]
        home = AtOriginalPath(runner, root)
        asked = (steps, stop_at, options, names)
        session = Session(train, home, root, *asked, [*notes], keep, metric, meant, resume_processes)
        found = session.run()
        if session.unwritten and found.verdict != "holds":
            with suppress(TrainerError):
                filled = Session(train, home, root / "filled", *asked, [*notes, UNWRITTEN], keep, metric, meant,
                                 resume_processes, filled=True).run()  # fmt: skip
                found = found if filled.verdict == "inconclusive" else filled
    return announce(replace(found, name=name or _name(train), seconds=time.perf_counter() - began))


def _require_stop(steps: int, stop_at: int | None) -> int:
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 3:
        raise SpecError("steps", f"must be a whole number of at least 3, got {steps!r}")
    stop_at = max(1, steps * 2 // 3) if stop_at is None else stop_at
    if not isinstance(stop_at, int) or not 0 < stop_at < steps:
        raise SpecError("stop_at", f"must lie between 1 and {steps - 1}, before the run ends, got {stop_at!r}")
    return stop_at


def _require_rules(keep: object) -> None:
    if keep is not None and not isinstance(keep, Rules):
        raise SpecError("keep", f"must be parity.policy.Rules, got {keep!r}")


def _name(train: Train) -> str:
    named: str = getattr(train, "__qualname__", type(train).__qualname__)
    return named.replace("<locals>.", "")


class ResumeBrokenError(AssertionError):
    """A training function that does not resume exactly, or of which that cannot be shown.

    Attributes:
        resumption: The whole verdict.
    """

    def __init__(self, resumption: Resumption) -> None:
        self.resumption = resumption
        super().__init__(resumption.text())


ResumeBrokenError.__module__ = "parity"


def assert_resumes(train: Train, *, steps: int, stop_at: int | None = None, **settings: Any) -> Resumption:
    """Assert that a training function resumes exactly.

    Args:
        train: As of `resumes`, which makes the check.
        steps: Completed steps at which the run ends, at least 3.
        stop_at: Completed steps at the kill, after the first save; by default two thirds of the run.
        settings: Further arguments of `resumes`: `mode`, `scenarios`, `name`, `options`, `workdir`, `keep`,
            `metric`, `ignore`, `processes`, `launcher`, `resume_processes`.

    Returns:
        The verdict, which is `holds`.

    Raises:
        ResumeBrokenError: The verdict is `broken` or `inconclusive`; the message has at most 25 lines.
        SpecError: An argument that cannot be used.
        UnknownNameError: There is no such scenario.
        TrainerError: A function that makes no marks, saves nothing before the kill, or fails without being stopped.
        MarkError: A mark that is no whole number or goes backwards.

    Example:
        >>> import numpy as np
        >>> def train(folder, steps):
        ...     step, weights, momentum = 0, np.ones(2), np.zeros(2)
        ...     if (folder / "weights.npy").exists():  # the momentum was not saved
        ...         step, weights = int((folder / "step").read_text()), np.load(folder / "weights.npy")
        ...     for step in range(step, steps):
        ...         yield step
        ...         momentum = 0.9 * momentum - 0.1 * weights
        ...         weights = weights + momentum
        ...         np.save(folder / "weights.npy", weights)
        ...         (folder / "step").write_text(f"{step + 1}")
        >>> try:
        ...     assert_resumes(train, steps=6, mode="inline")
        ... except ResumeBrokenError as error:
        ...     print(error.resumption.components)
        ('optimizer.momentum', 'model.params')
    """
    found = resumes(train, steps=steps, stop_at=stop_at, **settings)
    if found.verdict != "holds":
        raise ResumeBrokenError(found)
    return found
