"""The pytest plugin: the fixture `parity`, its marker and options, figures for JUnit, messages without internals.

Loads nothing else of the suite until a check runs: where the plugin is installed, a start of pytest costs no more.
"""

from __future__ import annotations

import re
import shlex
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from parity.results import Crossing, Resumption, Verdict

__all__ = ["Parity", "parity"]

SETTINGS = ("roads", "mode")
MODES = ("auto", "process", "inline")
MOST_LINES = 25
"""Lines of the message of a red check."""

PACKAGE = Path(__file__).resolve().parents[1]

Left = dict[str, list[str]]
"""What the checks of a test left for the end of the session: `records`, `repros`, `curves`; as text, so that xdist
carries it from a worker to the process that reports."""

LEFT = pytest.StashKey[Left]()
WRITTEN = pytest.StashKey[set[str]]()
"""Baselines that this process wrote."""


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
        from parity.contract.capture import mark

        return mark

    def resumes(
        self, train: Callable[..., Any], *, steps: int, stop_at: int | None = None, **settings: Any
    ) -> Resumption:
        """Assert that a training function resumes exactly; arguments as of `parity.resumes`.

        Roads and mode, where they are not given, are those of the test's marker, of the options, of the ini file; the
        name is the test's node ID.

        Raises:
            ResumeBrokenError: It does not, or that cannot be judged.
            SpecError: An argument that cannot be used.
            UnknownNameError: There is no such road.
            TrainerError: A function that cannot be judged: it does not mark, does not save, fails by itself.
            MarkError: A mark that is no whole number or goes backwards.
        """
        __tracebackhide__ = True
        from parity.checks.live import ResumeBrokenError, assert_resumes

        self._checks += 1
        settings = {"name": self._item.nodeid, **self._defaults, **settings}
        began, broken = time.perf_counter(), None
        with ExitStack() as stack:
            if self._item.config.option.parity_repro and settings.get("workdir") is None:
                scratch = tempfile.TemporaryDirectory(prefix="parity-", ignore_cleanup_errors=True)
                settings["workdir"] = Path(stack.enter_context(scratch))
            try:
                found = assert_resumes(train, steps=steps, stop_at=stop_at, **settings)
            except ResumeBrokenError as error:
                found, broken = error.resumption, error
                self._keep_repro(train, found, settings)
            except Exception as error:
                self._note_crash(settings["name"], error, began)
                raise
        self._note(found)
        if broken is not None:
            broken.args = ("\n".join(str(broken).splitlines()[:MOST_LINES]),)  # a note may be a whole traceback
            raise broken.with_traceback(None)
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
        from parity.checks.ports import assert_twins

        return self._across("twins", lambda known: assert_twins(train_a, train_b, steps=steps, **known), settings)

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
        from parity.checks.ports import assert_handover

        return self._across(
            "handover",
            lambda known: assert_handover(train_a, train_b, convert=convert, steps=steps, **known),
            settings,
        )

    def _across(self, check: str, run: Callable[[dict[str, Any]], Crossing], settings: dict[str, Any]) -> Crossing:
        """Run a check of two trainers and keep its verdict; roads are none of its settings."""
        __tracebackhide__ = True
        from parity.checks.ports import CrossingBrokenError

        known = {"name": self._item.nodeid, "mode": self._defaults["mode"], **settings}
        began, broken = time.perf_counter(), None
        try:
            found = run(known)
        except CrossingBrokenError as error:
            found, broken = error.crossing, error
        except Exception as error:
            self._note_crash(known["name"], error, began, check)
            raise
        self._note(found)
        if broken is not None:
            raise broken.with_traceback(None)
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
        from parity.pytest_plugin.files import CurveDiffersError, CurveError, check_curve

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
            self._note_curve(name, verdict, began, note=str(error))
            raise
        test.user_properties.append(("parity_curve", f"{name}: {'written' if update else 'holds'}, {count} steps"))
        if update:
            written.add(str(path))
            self._leave("curves", str(path))
        else:
            self._note_curve(name, "holds", began, steps=count)

    def _note_curve(self, name: str, verdict: Verdict, began: float, *, steps: int = 0, note: str = "") -> None:
        """Keep the verdict on a curve for the report."""
        if self._item.config.option.parity_report:
            from parity.pytest_plugin.files import pack
            from parity.results import CheckRecord

            made = CheckRecord.of(
                f"curve {name}",
                self._item.nodeid,
                "float64",
                ("python",),
                verdict,
                began=began,
                steps_compared=steps,
                notes=(note,) if note else (),
            )
            self._leave("records", pack(made))

    def _note(self, found: Resumption | Crossing) -> None:
        """Keep a verdict: for the report, and as properties of the test."""
        self._item.user_properties += [
            ("parity_verdict", found.verdict),
            ("parity_seconds", round(found.seconds, 3)),
            ("parity_compared", found.compared),
            ("parity_leaves", found.leaves),
            ("parity_components", ", ".join(found.components)),
        ]
        if self._item.config.option.parity_report:
            from parity.pytest_plugin.files import pack

            self._leave("records", pack(found.record()))

    def _note_crash(self, name: str, error: Exception, began: float, check: str = "resume") -> None:
        """Keep that a check came to no verdict: a report without it would look green."""
        self._item.user_properties.append(("parity_verdict", "crashed"))
        if self._item.config.option.parity_report:
            from parity.pytest_plugin.files import pack
            from parity.results import CheckRecord

            notes = (f"{type(error).__name__}: {error}",)
            record = CheckRecord.of(check, name, "float32", ("python",), "crashed", began=began, notes=notes)
            self._leave("records", pack(record))

    def _keep_repro(self, train: Callable[..., Any], found: Resumption, settings: dict[str, Any]) -> None:
        parent = self._item.config.option.parity_repro
        if not parent:
            return
        from parity.pytest_plugin.files import write_repro

        roads = settings["roads"]
        call = {
            "steps": found.steps,
            "stop_at": found.stop_at,
            "mode": settings["mode"],
            "roads": roads if isinstance(roads, str) else ",".join(roads),
            "options": dict(settings.get("options") or {}),
        }
        target = write_repro(
            Path(parent), self._item.config.rootpath, self._item.nodeid, train, call, found,
            Path(settings["workdir"]), self._checks,
        )  # fmt: skip
        self._leave("repros", str(target))

    def _leave(self, kind: str, text: str) -> None:
        self._item.stash.setdefault(LEFT, {}).setdefault(kind, []).append(text)


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Parity:
    """Check that training resumes exactly, and keep baseline curves."""
    return Parity(request.node)


def _defaults(item: pytest.Item) -> dict[str, Any]:
    """Return roads and mode for a test: of its nearest marker, of the options, of the ini file."""
    found = {
        name: item.config.getoption(f"parity_{name}") or item.config.getini(f"parity_{name}") for name in SETTINGS
    }
    for marker in reversed(list(item.iter_markers("parity"))):
        if marker.args or marker.kwargs.keys() - {*SETTINGS}:
            given = ", ".join([*map(repr, marker.args), *marker.kwargs])
            raise pytest.UsageError(f"the marker parity takes roads=... and mode=..., got {given}")
        found |= marker.kwargs
    return found


# Hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini values."""
    group = parser.getgroup("parity", "checks that training resumes exactly")
    group.addoption("--parity-report", metavar="DIR", help="write check.json, check.md and index.html of all checks")
    group.addoption("--parity-roads", metavar="ROADS", help="quick, all, or names of roads with commas")
    group.addoption("--parity-mode", choices=MODES, help="run trainers in processes of their own, or within pytest's")
    group.addoption("--parity-repro", metavar="DIR", help="for each red check, write what it needs to run again")
    group.addoption("--parity-update", action="store_true", help="write the baselines of `parity.curve`")
    parser.addini("parity_report", "as --parity-report, below the directory of the ini file", default="")
    parser.addini("parity_roads", "as --parity-roads; default: quick", default="quick")
    parser.addini("parity_mode", "as --parity-mode; default: auto", default="auto")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, settle the directories, and gather what tests leave."""
    config.addinivalue_line("markers", "parity(roads=..., mode=...): how the `parity` fixture checks in this test")
    if config.getini("parity_mode") not in MODES:
        raise pytest.UsageError(f"parity_mode must be {', '.join(MODES)}, got {config.getini('parity_mode')!r}")
    beside = config.inipath.parent if config.inipath else config.rootpath
    option = config.option
    if not option.parity_report and config.getini("parity_report"):
        option.parity_report = str(beside / config.getini("parity_report"))
    for name in ("parity_report", "parity_repro"):
        if value := getattr(option, name):  # absolute from here on: workers of xdist get it from this process
            setattr(option, name, str(config.invocation_params.dir / Path(value).expanduser()))
            if Path(getattr(option, name)).exists() and not Path(getattr(option, name)).is_dir():
                raise pytest.UsageError(f"--{name.replace('_', '-')}: {value} is no directory")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Gathered(config), "parity-gathered")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leave frames of the suite out of a failure, and give what the test left to its report."""
    error = call.excinfo.value if call.excinfo is not None else None
    if type(error).__module__.partition(".")[0] == "parity" and not item.config.option.fulltrace:
        assert error is not None
        call.excinfo = pytest.ExceptionInfo.from_exception(error.with_traceback(_outside(error.__traceback__)))
    report = yield
    left = item.stash.get(LEFT, None)
    if left:
        vars(report)["parity_left"] = left  # xdist carries it too
        report.sections += [("parity", f"to run it again: python {path}/repro.py") for path in left.get("repros", [])]
        item.stash[LEFT] = {}
    return report


def _outside(entry: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of the suite; pytest's own filters build it from these anew."""
    if entry is None:
        return None
    rest = _outside(entry.tb_next)
    if PACKAGE in Path(entry.tb_frame.f_code.co_filename).parents:
        return rest
    return TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)


class _Gathered:
    """Gathers what tests left, of all workers, and writes the report."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._began = config, time.perf_counter()
        self._left: Left = {}
        self._said = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a test left."""
        for kind, texts in getattr(report, "parity_left", {}).items():
            self._left.setdefault(kind, []).extend(texts)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        directory = self._config.option.parity_report
        if not directory or self._config.option.collectonly:
            return
        from parity.pytest_plugin.files import write_report

        command = shlex.join(["pytest", *map(str, self._config.invocation_params.args)])
        seconds = time.perf_counter() - self._began
        result = write_report(Path(directory), self._left.get("records", []), command, seconds)
        self._said = f"{len(result.records)} checks, {result.verdict}: {directory}/index.html"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was written."""
        lines = [self._said] if self._said else []
        lines += [f"baseline written, nothing compared: {path}" for path in self._left.get("curves", [])]
        lines += [f"to run it again: python {path}/repro.py" for path in self._left.get("repros", [])]
        if lines:
            terminalreporter.section("parity")
            for line in lines:
                terminalreporter.line(line)
