"""A check that a launcher started as one of several processes starts processes that train alone."""

import sys

import pytest

import jax_side
from parity.checks import check_twin_resume
from parity.contract import child_environment
from parity.spec import load

pytestmark = pytest.mark.breaks_first

LAUNCHED = {"JAX_COORDINATOR_ADDRESS": "localhost:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"}


@pytest.fixture
def found(monkeypatch, tmp_path):
    """Return a function that returns what a process of the check sees of its environment."""
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    code = "import os, sys; sys.exit(str({k: v for k, v in os.environ.items() if k[:4] in ('JAX_', 'XLA_')}))"
    command = lambda spec, side, file: lambda run, pause_at: [sys.executable, "-c", code]  # noqa: E731
    monkeypatch.setattr("parity.checks.drill.train_command", command)

    def run():
        record = check_twin_resume(load("mlp-digits"), "jax", jax_side, tmp_path, (150,))
        assert record.verdict == "crashed"
        (note,) = record.notes
        return note

    return run


def test_it_does_not_see_the_place_that_the_launcher_gave(found):
    note = found()
    assert "'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'" in note
    assert not [name for name in LAUNCHED if name in note]


def test_it_would_see_it_if_the_side_did_not_name_its_variables(found, monkeypatch):
    monkeypatch.setattr(jax_side, "environment", {})
    note = found()
    assert [name for name in LAUNCHED if name in note] == list(LAUNCHED)


def test_a_side_without_such_variables_leaves_the_environment_as_it_is(monkeypatch):
    monkeypatch.setenv("JAX_PROCESS_ID", "0")
    assert child_environment(object())["JAX_PROCESS_ID"] == "0"
    assert "JAX_PROCESS_ID" not in child_environment(jax_side)
