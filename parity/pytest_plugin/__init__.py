"""The pytest plugin: the fixture `parity`, its marker and options, figures for JUnit, messages without internals.

Loads nothing else of the suite until a check runs: where the plugin is installed, a start of pytest costs no more.
"""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Generator
from pathlib import Path
from types import TracebackType

import pytest

from parity.pytest_plugin.checker import LEFT, Left, Parity, heard_in

__all__ = ["Parity", "parity"]

MODES = ("auto", "process", "inline")
PACKAGE = Path(__file__).resolve().parents[1]


@pytest.fixture
def parity(request: pytest.FixtureRequest) -> Parity:
    """Check that training resumes exactly, and keep baseline curves."""
    return Parity(request.node)


# Hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini values."""
    group = parser.getgroup("parity", "checks that training resumes exactly")
    group.addoption("--parity-report", metavar="DIR", help="write check.json, check.md and index.html of all checks")
    group.addoption("--parity-scenarios", metavar="SCENARIOS", help="quick, all, or names of scenarios with commas")
    group.addoption("--parity-roads", dest="parity_scenarios", help=argparse.SUPPRESS)  # the former name
    group.addoption("--parity-mode", choices=MODES, help="run trainers in processes of their own, or within pytest's")
    group.addoption("--parity-repro", metavar="DIR", help="for each red check, write what it needs to run again")
    group.addoption("--parity-update", action="store_true", help="write the baselines of `parity.curve`")
    parser.addini("parity_report", "as --parity-report, below the directory of the ini file", default="")
    parser.addini("parity_scenarios", "as --parity-scenarios; default: quick", default="")
    parser.addini("parity_roads", "the former name of parity_scenarios", default="quick")
    parser.addini("parity_mode", "as --parity-mode; default: auto", default="auto")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, settle the directories, and gather what tests leave."""
    config.addinivalue_line(
        "markers", "parity(scenarios=..., mode=...): how the `parity` fixture checks in this test"
    )
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Keep what the test asks for without the fixture; only for a report, as hearing loads a part of the suite."""
    if not item.config.option.parity_report:
        return (yield)
    from parity.checks import hearing

    with hearing(heard_in(item)):
        return (yield)


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
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report; a session in which no test was run has none, and one that cannot be written fails."""
        directory = self._config.option.parity_report
        if not directory or self._config.option.collectonly:
            return
        if exitstatus in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR):
            self._said = f"no test was run: nothing was written to {directory}"
            return
        from parity.pytest_plugin.report import write_report
        from parity.report import number_of_checks

        command = shlex.join(["pytest", *map(str, self._config.invocation_params.args)])
        seconds = time.perf_counter() - self._began
        try:
            result = write_report(Path(directory), self._left.get("records", []), command, seconds)
        except OSError as error:
            self._said = f"error: no report was written: {error.filename or directory}: {error.strerror or error}"
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return
        self._said = f"{number_of_checks(len(result.records))}, {result.verdict}: {directory}/index.html"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was written."""
        lines = [self._said] if self._said else []
        lines += [f"baseline written, nothing compared: {path}" for path in self._left.get("curves", [])]
        lines += [f"to run it again: python {path}/repro.py" for path in self._left.get("repros", [])]
        if lines:
            terminalreporter.section("parity")
            for line in lines:
                terminalreporter.line(line)
