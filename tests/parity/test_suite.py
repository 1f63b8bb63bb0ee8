"""What a check is going to do is known before it begins, so that what a signal leaves undone can be told."""

from dataclasses import replace

import pytest

from parity import sides
from parity.errors import StateError, UnknownNameError
from parity.reference import SuiteRequest, list_tasks, run_checks, suite, unfinished
from parity.results import EXIT_CODES, overall
from parity.spec import load
from tests.support.small import small


def request(workdir, *specs, checks=suite.CHECKS):
    both = {name: sides.load(name) for name in ("torch", "jax")}
    return SuiteRequest(checks=checks, specs=specs, sides=both, steps=10, workdir=workdir / "runs")


def test_every_task_is_named_before_anything_is_built_or_written(tmp_path):
    tasks = list_tasks(request(tmp_path, small("mlp-digits"), small("gpt-text", "float64")))
    one = ["resume", "resume", "twins", *(f"handover {path}" for path in PATHS)]
    assert [task.name for task in tasks] == ["policy"] * 3 + one * 2
    assert [task.spec.name for task in tasks[3:]] == ["mlp-digits"] * 7 + ["gpt-text"] * 7
    assert tasks[-1].sides == ("jax", "torch", "jax")
    assert list(tmp_path.iterdir()) == []


PATHS = ("torch-jax", "jax-torch", "torch-jax-torch", "jax-torch-jax")


def test_a_check_without_its_verdict_is_inconclusive_and_says_why(tmp_path):
    asked = request(tmp_path, small("mlp-digits", "float64"), checks=("twins", "handover"))
    left = unfinished(asked, 3, "stopped by SIGTERM before it finished")
    assert [(record.name, record.verdict, record.notes) for record in left] == [
        (f"handover {path}", "inconclusive", ("stopped by SIGTERM before it finished",)) for path in PATHS[2:]
    ]
    assert EXIT_CODES[overall(left)] != 0
    assert unfinished(asked, 5, "") == []


def test_a_pair_that_cannot_be_handed_over_is_tried_once_and_no_check_of_it_is_judged(tmp_path, monkeypatch):
    built, right = [], suite.TwinPair
    monkeypatch.setattr(suite, "TwinPair", lambda *args, **more: built.append(args) or right(*args, **more))
    native = load("mlp-digits", None, ["dropout.rate=0.5", "dropout.generator=native"])
    told = []
    records = run_checks(request(tmp_path, native, checks=("twins", "handover")), told.append)
    assert told == records
    assert [record.name for record in records] == ["twins", *(f"handover {path}" for path in PATHS)]
    assert {record.verdict for record in records} == {"inconclusive"}
    assert all("native dropout streams" in record.notes[0] and record.resolved is not None for record in records)
    assert len(built) == 1


def test_a_pair_that_cannot_be_built_is_tried_once_and_crashes_each_of_its_checks(tmp_path, monkeypatch):
    tried = []

    def differing(*args, **more):
        tried.append(args)
        raise StateError("model.params.head.weight", "the sides start differently: differs by up to 1")

    monkeypatch.setattr(suite, "TwinPair", differing)
    asked = request(tmp_path, small("mlp-digits"), checks=("twins", "handover"))
    records = run_checks(asked, lambda record: None)
    assert [record.name for record in records] == ["twins", *(f"handover {path}" for path in PATHS)]
    assert {record.verdict for record in records} == {"crashed"}
    assert all("start differently" in record.notes[0] and record.resolved is not None for record in records)
    assert len(tried) == 1


def test_a_check_that_raises_is_crashed_and_costs_no_other_its_record(tmp_path, monkeypatch):
    def explode():
        raise RuntimeError("planted")

    monkeypatch.setattr(suite, "check_policy", explode)
    asked = replace(request(tmp_path, checks=("policy",)), sides={})
    (record,) = run_checks(asked, lambda record: None)
    assert (record.name, record.spec, record.sides, record.verdict) == (
        "policy",
        "mlp-digits",
        ("memory",),
        "crashed",
    )
    assert record.notes == ("RuntimeError: planted",)
    assert record.steps_compared == 0
    assert overall([record]) == "crashed"


def test_an_unknown_check_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(UnknownNameError, match="unknown check 'resumes'"):
        request(tmp_path, checks=("resume", "resumes"))


def test_one_side_alone_leaves_the_checks_across_inconclusive(tmp_path):
    spec = small("mlp-digits", "float64")
    asked = replace(request(tmp_path, spec, checks=("twins", "handover")), sides={"torch": sides.load("torch")})
    records = run_checks(asked, lambda record: None)
    assert [(record.name, record.verdict, record.criterion) for record in records] == [
        ("twins", "inconclusive", "float64"),
        ("handover", "inconclusive", "float64"),
    ]


def test_overflows_fall_on_a_save_unless_the_spec_names_its_own():
    spec = small("mlp-digits", "float16", "save.every=9")
    assert suite.with_overflows(spec).scaler.overflow_steps == (3, 17, 18)
    own = small("mlp-digits", "float16", "scaler.overflow_steps=[5]")
    assert suite.with_overflows(own) == own
    plain = small("mlp-digits", "float32")
    assert suite.with_overflows(plain) == plain
