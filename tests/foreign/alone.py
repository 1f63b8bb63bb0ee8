"""An interpreter without RunSpec, twins and frameworks, in which the NumPy trainer goes through the suite.

Usage: `python -m tests.foreign.alone WHAT [ARGUMENT...]`; every answer is one line of JSON, the last that is printed.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

FRAMEWORKS = ("jax", "jaxlib", "flax", "optax", "orbax", "torch", "jax_side", "torch_side")
REFUSED = ("parity.spec", "parity.twins", *FRAMEWORKS)
"""Modules that cannot be imported here, with all below them."""


def is_refused(name: str) -> bool:
    """Return whether a module cannot be imported here."""
    return any(name == refused or name.startswith(f"{refused}.") for refused in REFUSED)


class Refuse(MetaPathFinder):
    """The first finder of all: ends the search for what is refused."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """Refuse, or leave the search to the other finders."""
        del path, target
        if is_refused(name):
            raise ImportError(f"{name} is refused in this interpreter")
        return None


def refused() -> dict[str, str]:
    """Try to import everything that is refused; return name to what came of it."""
    from importlib import import_module

    found = {}
    for name in REFUSED:
        try:
            import_module(name)
            found[name] = "imported"
        except ImportError as error:
            found[name] = str(error)
    return found


def train(run: str, fault: str = "", pause_at: str = "") -> dict[str, Any]:
    """Train in a run directory; the command of the resume check's processes."""
    from parity.runs import FaultInjection, ProcessOptions
    from parity.runs import train as train_run
    from tests.foreign.trainer import Config, NumpySide

    faults = FaultInjection(trace=True, pause_at=int(pause_at) if pause_at else None)
    outcome = train_run(NumpySide(fault), "numpy", Config(), Path(run), ProcessOptions(faults=faults))
    return {"step": outcome.step}


def resume(home: str, how: str, fault: str = "") -> dict[str, Any]:
    """Run the resume check, in processes or here."""
    from parity.reference.planned import check_resume, default_kills, run_here, run_processes
    from tests.foreign.trainer import Config, NumpySide

    def command(run: Path, pause_at: int | None) -> list[str]:
        line = [sys.executable, "-m", "tests.foreign.alone", "train", str(run), fault]
        return line if pause_at is None else [*line, str(pause_at)]

    plan = Config().plan
    if how == "processes":
        run = partial(run_processes, command, plan, Path(home))
    else:
        run = partial(run_here, Config(), NumpySide(), Path(home), default_kills(plan), resuming=NumpySide(fault))
    return _reported(check_resume(run, name="line", precision="float64", side="numpy"))


def policy(wrong: str = "") -> dict[str, Any]:
    """Run the policy check; wrongly, with a trainer that keeps the newest checkpoints alone."""
    from parity import policy
    from parity.reference import check_policy_of
    from tests.foreign.trainer import NumpySide, keeping

    if wrong:
        policy.kept = lambda saved, rules: {s.step for s in sorted(saved, key=lambda s: s.step)[-rules.keep_latest :]}
    return _reported(check_policy_of("numpy", NumpySide(), keeping, spec="line", precision="float64"))


def track(home: str) -> dict[str, Any]:
    """Train with every tracker, killed once within this process and continued."""
    from parity.runs import FaultInjection, Observers, ProcessOptions
    from parity.runs import train as train_run
    from parity.trackers import TRACKERS, Trackers, load
    from tests.foreign.trainer import Config, NumpySide

    class Killed(BaseException):
        """Stands for SIGKILL."""

    def pause() -> None:
        raise Killed

    run, config, lines = Path(home) / "run", Config(), list[str]()
    for pause_at in (20, None):
        faults = FaultInjection(pause_at=pause_at, pause=pause)
        try:
            with Trackers(load(TRACKERS), run, config.identity, lines.append) as tracked:
                observers = Observers(log=lines.append, on_step=tracked.on_record, on_validation=tracked.on_record)
                train_run(NumpySide(), "numpy", config, run, ProcessOptions(faults=faults), observers)
        except Killed:
            continue
    return {"lines": lines}


def _reported(record: Any) -> dict[str, Any]:
    """Return a record's document as it is read back, and what each report shows of it."""
    from parity.report import check_markdown, print_table
    from parity.report.html import check_page
    from parity.results import document, encode

    environment = {"python": "3", "versions": {}}
    table = io.StringIO()
    print_table([record], table)
    return {
        "document": json.loads(encode(document([record], environment))),
        "terminal": table.getvalue(),
        "markdown": check_markdown([record], environment),
        "html": str(check_page([record], environment)),
    }


def main() -> None:
    """Answer, after the finder is in place and before anything of the suite is imported."""
    sys.meta_path.insert(0, Refuse())
    what, *arguments = sys.argv[1:]
    answer = {"refused": refused, "train": train, "resume": resume, "policy": policy, "track": track}[what]
    result = answer(*arguments)
    assert not [name for name in sys.modules if is_refused(name)]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
