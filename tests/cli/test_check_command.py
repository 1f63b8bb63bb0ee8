"""`parity check`: exit codes, one JSON document that fits its schema, colours, and what a broken check shows."""

import io
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import jsonschema
import pytest

from parity import sides
from parity.cli import main
from parity.contract import Divergence
from parity.environment import describe_environment
from parity.report import print_table
from parity.results import EXIT_CODES, CheckRecord, document, encode, overall, schema

pytestmark = pytest.mark.takes_seconds

RECORD = CheckRecord(
    name="resume",
    spec="mlp-digits",
    precision="float32",
    sides=("jax",),
    verdict="holds",
    criterion="bitwise",
    steps_compared=200,
    max_abs_diff=0.0,
    max_rel_diff=0.0,
    seconds=1.5,
)
BROKEN = replace(
    RECORD,
    verdict="broken",
    max_abs_diff=float("inf"),
    first_divergence=Divergence(step=7, quantity="loss", expected=1.0, got=float("nan")),
    suspects=("optimizer.first_moment",),
    notes=("restored at step 6 is not what was saved",),
)


@pytest.mark.parametrize("verdict", EXIT_CODES)
def test_each_verdict_decides_the_exit_code(verdict, monkeypatch, capsys):
    records = [RECORD, replace(RECORD, verdict=verdict)]
    monkeypatch.setattr("parity.cli.check.run_checks", lambda request, *watching: records)
    assert main(["check", "--spec", "mlp-digits"]) == EXIT_CODES[verdict]
    assert f"verdict: {verdict}" in capsys.readouterr().out


def test_the_worst_verdict_is_the_overall_one():
    order = ["holds", "empty", "inconclusive", "broken", "crashed"]
    for worst, verdict in enumerate(order):
        assert overall([replace(RECORD, verdict=v) for v in order[: worst + 1]]) == verdict
    assert overall([]) == "empty"
    assert overall([replace(RECORD, verdict="empty")]) == "empty", "nothing compared never reads as success"


def test_our_own_fault_is_a_crash_not_a_verdict(monkeypatch, capsys):
    def explode(*given):
        raise RuntimeError("a bug")

    monkeypatch.setattr("parity.cli.check.run_checks", explode)
    assert main(["check", "--spec", "mlp-digits"]) == 3
    assert "RuntimeError: a bug" in capsys.readouterr().err


def test_one_side_alone_is_inconclusive_across_sides(capsys):
    assert main(["check", "twins", "--spec", "mlp-digits", "--sides", "torch", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["checks"][0]["notes"] == ["needs two sides, one was given"]


def test_the_sides_share_their_programs_while_the_checks_run_and_no_longer(monkeypatch):
    shared = []

    @contextmanager
    def sharing(directory):
        shared.append(directory)
        assert directory.parent.is_dir(), "removed with everything else that a check makes for itself"
        yield
        shared.remove(directory)

    side = SimpleNamespace(topology=lambda spec: {}, shared_programs=sharing)
    monkeypatch.setattr(sides, "load", lambda name: side)
    seen = []
    monkeypatch.setattr("parity.cli.check.run_checks", lambda request, *watching: seen.extend(shared) or [RECORD])
    assert main(["check", "--spec", "mlp-digits", "--sides", "a,b"]) == 0
    assert [directory.name for directory in seen] == ["programs-a", "programs-b"]
    assert shared == []
    assert not seen[0].parent.exists()


ALL = ("resume", "resume", "twins", "handover jax-torch", "handover torch-jax", "handover jax-torch-jax",
       "handover torch-jax-torch")  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "names"), [(["twins"], ("twins",)), pytest.param([], ALL, marks=pytest.mark.soak)], ids=["twins", "all"]
)
def test_json_is_one_document_on_stdout_and_fits_the_schema(asked, names, tmp_path):
    """All else goes to stderr; the report directory holds the same document and the resolved spec."""
    command = [
        sys.executable,
        "-m",
        "parity",
        "check",
        *asked,
        "--spec",
        "mlp-digits",
        "--precision",
        "float64",
        "--json",
    ]
    command += ["--steps", "20", "--set", "model.hidden=[8]", "--report", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema(), cls=jsonschema.Draft202012Validator)
    assert found["verdict"] == "holds"
    assert tuple(check["name"] for check in found["checks"]) == names
    assert all(check["max_rel_diff"] <= 1e-12 for check in found["checks"])
    assert "verdict: holds" in done.stderr
    assert json.loads((tmp_path / "check.json").read_text()) == found
    assert "hidden = [\n    8,\n]" in (tmp_path / "runs" / "mlp-digits-float64" / "spec.toml").read_text()


def test_a_broken_document_with_infinities_fits_the_schema_too():
    environment = describe_environment() | {"devices": {}}
    found = json.loads(encode(document([RECORD, BROKEN], environment)))
    jsonschema.validate(found, schema(), cls=jsonschema.Draft202012Validator)
    assert found["checks"][1]["max_abs_diff"] == "inf"
    assert found["checks"][1]["first_divergence"]["got"] == "nan"


@pytest.mark.parametrize("key", ["schema", "verdict", "environment", "checks"])
def test_the_schema_refuses_a_document_without(key):
    found = json.loads(encode(document([RECORD], describe_environment() | {"devices": {}})))
    found.pop(key)
    with pytest.raises(jsonschema.ValidationError, match=key):
        jsonschema.validate(found, schema())


def test_a_broken_check_shows_what_was_lost_and_where():
    out = io.StringIO()
    print_table([RECORD, BROKEN], out)
    text = out.getvalue()
    assert "suspects: optimizer.first_moment" in text
    assert "first divergence: step 7, loss: 1.0 became nan" in text
    assert "restored at step 6 is not what was saved" in text
    assert "verdict: broken (2 checks, 3 s)" in text


@pytest.mark.parametrize("colour", [True, False])
def test_no_color_is_honoured(colour):
    code = (
        "import sys; from parity.report.terminal import print_table;"
        "from parity.results.record import CheckRecord as C;"
        "print_table([C(name='resume', spec='s', precision='float32', sides=('jax',), verdict='holds',"
        "criterion='bitwise', steps_compared=1)], sys.stdout)"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"FORCE_COLOR": "1"} if colour else {"FORCE_COLOR": "1", "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert ("\x1b[32m" in done.stdout) == colour
