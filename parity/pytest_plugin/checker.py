"""What the fixture gives to a test: checks and curves whose verdicts go to the report and to the test's properties.

Loads nothing else of the suite until a check runs.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from parity.checks.ports import CrossingBrokenError
    from parity.contract import Precision
    from parity.results import CheckRecord, Crossing, Resumption, Verdict

__all__ = ["LEFT", "Left", "Parity", "heard_in"]

SETTINGS = ("scenarios", "mode")
FORMER = {"roads": "scenarios"}
"""Former names of settings, which are still taken."""

MOST_LINES = 25
"""Lines of the message of a red check."""

Left = dict[str, list[str]]
"""What the checks of a test left for the end of the session: `records`, `repros`, `curves`; as text, so that xdist
carries it from a worker to the process that reports."""

LEFT = pytest.StashKey[Left]()
ASKED = pytest.StashKey[bool]()
"""Whether the fixture of a test is checking."""

WRITTEN = pytest.StashKey[set[str]]()
"""Baselines that this process wrote."""


Returned = TypeVar("Returned", "Resumption", "Crossing")


class Parity:
    """Checks for tests: what a check finds goes to the session's report and to the test's properties.

    Args:
        item: The test.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._defaults = _defaults(item)
        self._checks = 0

    @property
    def mark(self) -> Callable[..., None]:
        """The mark for a training loop: `parity.mark`."""
        from parity.capture import mark

        return mark

    def resumes(
        self, train: Callable[..., Any], *, steps: int, stop_at: int | None = None, **settings: Any
    ) -> Resumption:
        """Assert that a training function resumes exactly; arguments as of `parity.resumes`.

        Scenarios and mode, where they are not given, are those of the test's marker, of the options, of the ini file;
        the name is the test's node ID.

        Raises:
            ResumeBrokenError: It does not, or that cannot be judged.
            SpecError: An argument that cannot be used.
            UnknownNameError: There is no such scenario.
            TrainerError: A function that cannot be judged: it does not mark, does not save, fails by itself.
            MarkError: A mark that is no whole number or goes backwards.
        """
        __tracebackhide__ = True
        from parity.checks.resume import ResumeBrokenError, resumes

        self._checks += 1
        given = {FORMER.get(name, name): value for name, value in settings.items()}
        settings = {"name": self._item.nodeid, **self._defaults, **given}
        with ExitStack() as stack:
            if self._item.config.option.parity_repro and settings.get("workdir") is None:
                scratch = tempfile.TemporaryDirectory(prefix="parity-", ignore_cleanup_errors=True)
                settings["workdir"] = Path(stack.enter_context(scratch))
            check = partial(resumes, train, steps=steps, stop_at=stop_at, **settings)
            found = self._judged("resume", settings["name"], check)
            if found.verdict != "holds":
                self._keep_repro(train, found, settings)
        if found.verdict != "holds":
            broken = ResumeBrokenError(found)
            broken.args = ("\n".join(str(broken).splitlines()[:MOST_LINES]),)  # a note may be a whole traceback
            raise broken
        return found

    def twins(
        self, train_a: Callable[..., Any], train_b: Callable[..., Any], *, steps: int, **settings: Any
    ) -> Crossing:
        """Assert that two training functions train alike; arguments as of `parity.twins_agree`.

        Raises:
            TwinsDifferError: They do not, or that cannot be judged.
            SpecError: An argument that cannot be used.
            TrainerError: A function that does not mark, or fails by itself.
            MarkError: A mark that is no whole number or goes backwards.
        """
        __tracebackhide__ = True
        from parity.checks.ports import TwinsDifferError, twins_agree

        check = partial(twins_agree, train_a, train_b, steps=steps)
        return self._across("twins", check, settings, TwinsDifferError)

    def handover(
        self,
        train_a: Callable[..., Any],
        train_b: Callable[..., Any],
        *,
        convert: Callable[[Path, Path], object],
        steps: int,
        **settings: Any,
    ) -> Crossing:
        """Assert that a run can be handed from one trainer to the other; arguments as of `parity.hands_over`.

        Raises:
            HandoverBrokenError: It cannot, or that cannot be judged.
            SpecError: An argument that cannot be used.
            TrainerError: A function that does not mark, does not save or fails; a conversion that fails.
            MarkError: A mark that is no whole number or goes backwards.
        """
        __tracebackhide__ = True
        from parity.checks.ports import HandoverBrokenError, hands_over

        check = partial(hands_over, train_a, train_b, convert=convert, steps=steps)
        return self._across("handover", check, settings, HandoverBrokenError)

    def _across(
        self, name: str, check: Callable[..., Crossing], settings: dict[str, Any], broken: type[CrossingBrokenError]
    ) -> Crossing:
        """Run a check of two trainers and keep its verdict; scenarios are none of its settings."""
        __tracebackhide__ = True
        known = {"name": self._item.nodeid, "mode": self._defaults["mode"], **settings}
        found = self._judged(name, known["name"], partial(check, **known))
        if found.verdict != "holds":
            raise broken(found)
        return found

    def _judged(self, check: str, name: str, run: Callable[[], Returned]) -> Returned:
        """Run a check, and keep its verdict for the report and as properties of the test."""
        __tracebackhide__ = True
        began = time.perf_counter()
        self._item.stash[ASKED] = True
        try:
            found = run()
        except Exception as error:  # kept as well: a report without it would look green
            self._item.user_properties.append(("parity_verdict", "crashed"))
            notes = (f"{type(error).__name__}: {error}",)
            self._record(check, name, "float32", "crashed", began=began, notes=notes)
            raise
        finally:
            self._item.stash[ASKED] = False
        _keep(self._item, found)
        return found

    def curve(self, name: str, values: Iterable[Any], *, rtol: float = 0.0, atol: float = 0.0) -> None:
        """Assert that a curve is the baseline beside the test file, or write the baseline with `--parity-update`.

        The baseline is `parity_curves/<test module>/<name>.json`: steps, values to the last bit, criterion, versions.

        Args:
            name: Name of the curve; letters, digits, `.`, `_` and `-`.
            values: A number for each step, or step to number.
            rtol: Largest relative difference that passes.
            atol: Largest absolute difference that passes; where both are 0, bits must be equal.

        Raises:
            CurveError: It differs; there is no baseline; the two have not the same steps, or neither is finite.
            SpecError: An argument that cannot be used.
        """
        __tracebackhide__ = True
        from parity.errors import SpecError
        from parity.pytest_plugin.curves import CurveDiffersError, CurveError, check_curve

        if not re.fullmatch(r"\w[\w.-]*", name):
            raise SpecError("name", f"of a curve must be letters, digits, '.', '_' and '-', got {name!r}")
        test, update = self._item, bool(self._item.config.option.parity_update)
        path = test.path.parent / "parity_curves" / test.path.stem / f"{name}.json"
        if update and str(path) in (written := test.config.stash.setdefault(WRITTEN, set())):
            raise SpecError("name", f"the curve {name!r} was written by this session already; give each its own name")
        began = time.perf_counter()
        try:
            count = check_curve(path, values, rtol=rtol, atol=atol, update=update, test=test.nodeid)
        except CurveError as error:
            verdict: Verdict = "broken" if isinstance(error, CurveDiffersError) else "inconclusive"
            test.user_properties.append(("parity_curve", f"{name}: {verdict}"))
            self._record(f"curve {name}", test.nodeid, "float64", verdict, began=began, notes=(str(error),))
            raise
        test.user_properties.append(("parity_curve", f"{name}: {'written' if update else 'holds'}, {count} steps"))
        if update:
            written.add(str(path))
            _leave(test, "curves", str(path))
        else:
            self._record(f"curve {name}", test.nodeid, "float64", "holds", began=began, steps_compared=count)

    def _record(self, check: str, name: str, precision: Precision, verdict: Verdict, **found: Any) -> None:
        """Keep for the report a verdict that no check has returned; arguments as of `CheckRecord.of`."""
        if self._item.config.option.parity_report:
            from parity.results import CheckRecord

            self._report(CheckRecord.of(check, name, precision, ("python",), verdict, **found))

    def _report(self, record: CheckRecord) -> None:
        from parity.pytest_plugin.report import pack

        _leave(self._item, "records", pack(record))

    def _keep_repro(self, train: Callable[..., Any], found: Resumption, settings: dict[str, Any]) -> None:
        parent = self._item.config.option.parity_repro
        if not parent:
            return
        from parity.pytest_plugin.repro import write_repro

        scenarios = settings["scenarios"]
        call = {
            "steps": found.steps,
            "stop_at": found.stop_at,
            "mode": settings["mode"],
            "scenarios": scenarios if isinstance(scenarios, str) else ",".join(scenarios),
            "options": dict(settings.get("options") or {}),
            "processes": settings.get("processes", 1),
        }
        target = write_repro(
            Path(parent), self._item.config.rootpath, self._item.nodeid, train, call, found,
            Path(settings["workdir"]), self._checks,
        )  # fmt: skip
        _leave(self._item, "repros", str(target))


def heard_in(item: pytest.Item) -> Callable[[Any], None]:
    """Return what takes the verdicts that a test reaches without the fixture, under its node ID."""

    def hear(found: Resumption | Crossing) -> None:
        if not item.stash.get(ASKED, False):  # the fixture keeps its own
            _keep(item, replace(found, name=item.nodeid))

    return hear


def _keep(item: pytest.Item, found: Resumption | Crossing) -> None:
    """Keep a verdict as properties of its test, and for the report."""
    item.user_properties += [
        ("parity_verdict", found.verdict),
        ("parity_seconds", round(found.seconds, 3)),
        ("parity_compared", found.compared),
        ("parity_leaves", found.leaves),
        ("parity_components", ", ".join(found.components)),
    ]
    if item.config.option.parity_report:
        from parity.pytest_plugin.report import pack

        _leave(item, "records", pack(found.record()))


def _leave(item: pytest.Item, kind: str, text: str) -> None:
    item.stash.setdefault(LEFT, {}).setdefault(kind, []).append(text)


def _defaults(item: pytest.Item) -> dict[str, Any]:
    """Return scenarios and mode for a test: of its nearest marker, of the options, of the ini file."""
    config = item.config
    found = {name: config.getoption(f"parity_{name}") or config.getini(f"parity_{name}") for name in SETTINGS}
    found["scenarios"] = found["scenarios"] or config.getini("parity_roads")
    for marker in reversed(list(item.iter_markers("parity"))):
        given = {FORMER.get(name, name): value for name, value in marker.kwargs.items()}
        if marker.args or given.keys() - {*SETTINGS}:
            shown = ", ".join([*map(repr, marker.args), *marker.kwargs])
            raise pytest.UsageError(f"the marker parity takes scenarios=... and mode=..., got {shown}")
        found |= given
    return found
