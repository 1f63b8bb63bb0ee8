"""Reports that cannot be written, or that nothing would be in: one line, no traceback, no empty page."""

import json
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


DIRECT = """
import numpy as np
import parity


def train(folder, steps, forget=False):
    weights, start, saved = np.zeros(2), 0, folder / "saved.npy"
    if saved.exists():
        *weights, start = np.load(saved)
        weights = np.zeros(2) if forget else np.array(weights)
    for step in range(int(start), steps):
        yield step
        weights = 0.9 * weights + step
        np.save(saved, [*weights, step + 1])


def test_direct():
    parity.assert_resumes(train, steps=6, mode="inline", scenarios="kill")


def test_direct_and_red():
    parity.assert_resumes(train, steps=6, mode="inline", scenarios="kill", options={"forget": True})


def test_by_the_fixture(parity):
    parity.resumes(train, steps=6, mode="inline", scenarios="kill")
"""


def test_a_report_has_what_a_test_asks_for_with_and_without_the_fixture(pytester):
    pytester.makepyfile(test_direct=DIRECT)
    ran = pytester.runpytest_inprocess("--parity-report=report", "--junitxml=junit.xml")
    ran.assert_outcomes(passed=2, failed=1)
    checks = json.loads(Path("report", "check.json").read_text())["checks"]
    found = [(check["spec"], check["verdict"]) for check in checks]
    assert found == [
        ("test_direct.py::test_direct", "holds"),
        ("test_direct.py::test_direct_and_red", "broken"),
        ("test_direct.py::test_by_the_fixture", "holds"),
    ]
    assert Path("junit.xml").read_text().count('name="parity_verdict"') == 3
