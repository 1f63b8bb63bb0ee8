"""Reports that cannot be written, or that nothing would be in: one line, no traceback, no empty page."""

import os
from pathlib import Path

import pytest

from parity.cli import main

pytest_plugins = "pytester"


@pytest.fixture
def closed(monkeypatch):
    """Make one directory refuse every new entry, as a read-only disk does; also for the administrator."""
    real, real_open = os.mkdir, os.open

    def refuse(path):
        if "closed" in str(path):
            raise PermissionError(13, "Permission denied", str(path))

    def mkdir(path, *args, **settings):
        refuse(path)
        return real(path, *args, **settings)

    def opened(path, flags, *args, **settings):
        if flags & os.O_CREAT:
            refuse(path)
        return real_open(path, flags, *args, **settings)

    monkeypatch.setattr(os, "mkdir", mkdir)
    monkeypatch.setattr(os, "open", opened)


def test_a_report_in_an_unwritable_place_is_one_line_and_no_success(pytester, closed):
    pytester.makepyfile("def test_nothing():\n    pass\n")
    ran = pytester.runpytest_inprocess("--parity-report=closed/report")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stdout.fnmatch_lines(["*error: no report was written: *closed*Permission denied*"])
    assert "Traceback" not in ran.stdout.str() + ran.stderr.str()


def test_a_session_that_runs_no_test_leaves_no_report(pytester):
    pytester.makepyfile("def test_nothing():\n    pass\n")
    ran = pytester.runpytest_inprocess("--parity-report=report", "-k", "other")
    assert ran.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    ran.stdout.fnmatch_lines(["no test was run: nothing was written to *report"])
    assert not Path("report").exists()


def test_a_check_whose_report_cannot_be_written_ends_before_it_begins(tmp_path, closed, capsys):
    assert main(["check", "policy", "--report", str(tmp_path / "closed")]) == 3
    assert "Permission denied" in capsys.readouterr().err
