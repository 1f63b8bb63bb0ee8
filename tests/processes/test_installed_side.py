"""A side that a team installs, in real processes: trained, killed, resumed, compared and handed over by its name."""

import json
import subprocess
import sys

import pytest

from parity import sides
from parity.cli import main
from parity.reference import SPEC_CHECKS, SuiteRequest, run_checks
from parity.spec import PRECISIONS
from tests.support.foreign import ROOT, install
from tests.support.small import small

pytestmark = pytest.mark.processes

TINY = ["--spec", "mlp-digits", "--set", "model.hidden=[8]", "--set", "batch=16", "--steps", "20"]


@pytest.fixture(autouse=True)
def installed(tmp_path_factory, monkeypatch):
    """Install a side `mine` for this process and its children; always in one place, so that they can be forks."""
    install(tmp_path_factory.getbasetemp() / "site", monkeypatch, "mine = mine")


def parity(*words):
    command = [sys.executable, "-m", "parity", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_installed_side_passes_every_check_of_a_spec_in_every_precision(precision, tmp_path):
    both = {name: sides.load(name) for name in ("mine", "torch")}
    request = SuiteRequest(
        checks=SPEC_CHECKS, specs=[small("mlp-digits", precision)], sides=both, steps=20, workdir=tmp_path / "runs"
    )
    records = run_checks(request, lambda line: None)
    assert [(record.name.split()[0], record.verdict) for record in records] == [
        *[("resume", "holds")] * 2,
        ("twins", "holds"),
        *[("handover", "holds")] * 4,
    ], records
    assert records[0].sides == ("mine",)
    assert (tmp_path / "runs" / f"mlp-digits-{precision}" / "mine" / "resumed" / "side").read_text() == "mine\n"


def test_the_commands_take_an_installed_side_by_its_name(tmp_path):
    for steps, line in (("20", "step 20"), ("40", "resumed from step 20")):
        done = parity("train", "--side", "mine", *TINY[:-1], steps, "--dir", tmp_path / "run")
        assert done.returncode == 0, done.stderr
        assert line in done.stdout + done.stderr
    done = parity("check", "resume", "policy", "--sides", "mine", *TINY, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(check["name"], check["sides"]) for check in found["checks"]] == [
        ("policy", ["memory"]),
        ("policy", ["mine"]),
        ("resume", ["mine"]),
    ]
    assert set(found["environment"]["devices"]) == {"mine"}


def test_a_bare_check_is_of_the_built_in_sides_alone(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr("parity.cli.check.run_checks", lambda request, *watching: asked.extend(request.sides) or [])
    main(["check", "--spec", "mlp-digits"])
    assert asked == ["jax", "torch"]
