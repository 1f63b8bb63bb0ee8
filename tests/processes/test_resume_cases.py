"""Real processes, SIGKILL and restart, at the moments that break resumes; every case twice, on both sides."""

import pytest

from parity import sides
from parity.reference import check_twin_resume, train_command
from parity.reference.planned import judge, run_processes
from parity.spec import load

pytestmark = pytest.mark.processes

# 1,437 training samples in batches of 128 are 11 steps to an epoch.
SMALL = (
    "model.hidden=[32]",
    "batch=128",
    "execution.chunk=5",
    "steps=40",
    "save.every=10",
    "validate_every=10",
)

CASES = {
    "before the first checkpoint": (SMALL, "float32", (5, 25)),
    "inside an accumulation, in an epoch after the first": ((*SMALL, "accumulation=4"), "float32", (15, 35)),
    "at an exact epoch end": ((*SMALL, "save.every=11", "execution.chunk=11"), "float32", (22, 33)),
    "right after a skipped fp16 step": ((*SMALL, "scaler.overflow_steps=[10, 20, 21]"), "float16", (15, 25)),
}


@pytest.mark.parametrize("side", ["jax", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_killed_run_resumes_bitwise(case, side, tmp_path):
    overrides, precision, kills = CASES[case]
    spec = load("mlp-digits", precision, overrides)
    command = train_command(spec, side, tmp_path / "spec.toml")

    reference, resumed, expected = run_processes(command, spec.plan, tmp_path, kills)
    findings = judge(reference, resumed, expected)

    assert not findings.broken, findings.notes
    assert findings.steps_compared == spec.steps
    assert expected[0] is None
    assert len(expected) == 3
    assert {r.attempt for r in resumed.records} == {0, 1, 2}, "the second kill and restart fall in the same run"
    if case.startswith("before"):
        assert expected[1] is None, "nothing was saved when it was killed: it starts from step 0"
    if precision == "float16":
        skipped = [s for s, r in reference.curve.items() if r.skipped]
        assert {10, 20, 21} <= set(skipped)
        assert 20 in expected, "it resumed right behind a skipped step"


@pytest.mark.parametrize("kill", [21, 22])
def test_killed_while_a_save_is_under_way_in_the_background(kill, tmp_path):
    """Orbax saves asynchronously: the kill falls right behind the records after a save; old or new, never neither."""
    spec = load("mlp-digits", None, [*SMALL, "execution.chunk=1"])
    command = train_command(spec, "jax", tmp_path / "spec.toml")
    reference, resumed, expected = run_processes(command, spec.plan, tmp_path, (kill,), durable=False)
    findings = judge(reference, resumed, expected)
    assert not findings.broken, findings.notes
    assert expected[1] in (10, 20)


@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_trainer_that_quietly_starts_from_zero_is_red(side, tmp_path, monkeypatch):
    """The curve is the same; only the start gives it away."""
    spec = load("mlp-digits", None, SMALL)
    monkeypatch.setattr(
        "parity.reference.planned.drive.newest_checkpoint", lambda path: 10
    )  # what a checkpoint would promise
    record = check_twin_resume(spec, side, sides.load(side), tmp_path, (5, 8))
    assert record.verdict == "broken"
    assert record.suspects[0] == "counters.step"
    assert record.max_abs_diff == 0.0
    assert record.first_divergence is None
