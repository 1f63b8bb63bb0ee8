"""`parity check policy`: both sides hold the table on disk, and a side with a wrong policy turns red by its rule."""

import json

import pytest

from parity import policy, sides
from parity.cli import main
from parity.policy import cases
from parity.reference import check_twin_policy
from tests.support.policy_plants import PLANTS, KeepingBy

pytestmark = pytest.mark.processes

SIDES = ["torch", "jax"]


@pytest.mark.parametrize("side", SIDES)
def test_a_side_holds_every_case_on_disk(side):
    record = check_twin_policy(side, sides.load(side))
    assert record.notes == ()
    assert record.verdict == "holds"
    assert record.steps_compared == sum(len(case.rows) for case in cases()) > 250


def only(monkeypatch, group):
    monkeypatch.setattr(
        "parity.reference.policy.cases", lambda: tuple(case for case in cases() if case.group == group)
    )


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("plant", "group"),
    [
        ("best is evicted by age", "age"),
        ("latest is evicted by metric", "metric"),
        ("every k-th is off by one", "every"),
        ("a clock set back is waited for", "time"),
    ],
)
def test_a_side_that_keeps_by_a_wrong_rule_is_broken(side, plant, group, monkeypatch):
    wrong = PLANTS[plant][0](policy.Rules(mode="max"))
    assert isinstance(wrong, KeepingBy)
    right, nested = policy.kept, []

    def kept(saved, rules):
        if nested:  # the plant asks for what the other rules keep
            return right(saved, rules)
        nested.append(True)
        try:
            return wrong.choose(sorted(saved, key=lambda s: s.step), rules)
        finally:
            nested.pop()

    only(monkeypatch, group)
    monkeypatch.setattr(policy, "kept", kept)
    record = check_twin_policy(side, sides.load(side))
    assert record.verdict == "broken"
    assert record.suspects == (f"policy.{group}",)


@pytest.mark.parametrize("side", SIDES)
def test_a_side_that_forgets_late_metrics_is_broken(side, monkeypatch):
    only(monkeypatch, "late")
    monkeypatch.setattr("parity.checkpoints.store.CheckpointStore.late_metrics", lambda self: {})
    record = check_twin_policy(side, sides.load(side))
    assert record.suspects == ("policy.late",)


@pytest.mark.parametrize("side", SIDES)
def test_a_side_that_goes_back_beside_what_is_newer_is_broken(side, monkeypatch):
    only(monkeypatch, "back")
    monkeypatch.setattr("parity.runs.directory.RunDirectory.abandon_after", lambda self, step, attempt, records: [])
    record = check_twin_policy(side, sides.load(side))
    assert (record.verdict, record.suspects) == ("broken", ("policy.back",))


def test_the_command_runs_the_table_once_for_each_side_and_for_the_pure_function(monkeypatch, capsys):
    only(monkeypatch, "ties")
    assert main(["check", "policy", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(c["name"], c["sides"], c["verdict"]) for c in found["checks"]] == [
        ("policy", ["memory"], "holds"),
        ("policy", ["jax"], "holds"),
        ("policy", ["torch"], "holds"),
    ]
    assert main(["check", "policy", "--sides", "torch", "--spec", "cnn-digits"]) == 0
    assert capsys.readouterr().out.count("policy ") == 2


def test_a_side_that_cannot_save_is_a_crash_not_a_verdict(monkeypatch, capsys):
    monkeypatch.setattr("parity.reference.policy.OnDisk.save", lambda *_: 1 / 0)
    assert main(["check", "policy", "--sides", "torch"]) == 3
    assert "ZeroDivisionError" in capsys.readouterr().out
