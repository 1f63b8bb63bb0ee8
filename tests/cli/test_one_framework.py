"""`parity check` where one framework is installed: that side is checked, and what was left out is said."""

import importlib.util
import json

import pytest

from parity import sides
from parity.cli import main


@pytest.fixture
def no_jax(monkeypatch):
    """Hide JAX as far as the registry of sides looks: as if it were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(sides.importlib.util, "find_spec", lambda name, *rest: None if name == "jax" else find(name))


def checked(words, capsys):
    code = main(["check", "--spec", "linear-regression", "--steps", "20", "--json", *words])
    out, err = capsys.readouterr()
    return code, [(one["name"], *one["sides"]) for one in json.loads(out)["checks"]], err


@pytest.mark.takes_seconds
def test_the_side_that_is_installed_is_checked(no_jax, capsys):
    code, found, err = checked([], capsys)
    assert (code, found) == (0, [("resume", "torch")])
    assert "parity: jax is not installed: torch alone is checked, without what needs both sides" in err


def test_what_is_asked_for_by_name_is_never_left_out(no_jax, capsys):
    code, found, _ = checked(["twins"], capsys)
    assert (code, found) == (4, [("twins", "torch")])
    assert main(["check", "twins", "--sides", "jax,torch"]) == 2
    assert "jax" in capsys.readouterr().err
