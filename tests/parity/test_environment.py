"""The environment of a result: what is recorded, and every difference between two named once."""

import os
from typing import Any

import pytest

from parity.environment import compare_environments, describe_environment, usable_cpus, versions

OLD: dict[str, Any] = {"cpus": 2, "python": "3.11.2", "versions": {"jax": "0.10", "torch": "2.13"}, "devices": {}}


@pytest.mark.parametrize(
    ("changes", "sentences"),
    [
        ({}, []),
        ({"cpus": 4}, ["cpus was 2, is 4"]),
        ({"versions": {"jax": "0.11"}}, ["versions.jax was 0.10, is 0.11", "versions.torch was 2.13, is nothing"]),
        ({"versions": None}, ["versions was {'jax': '0.10', 'torch': '2.13'}, is nothing"]),
        ({"commit": "abc"}, []),
    ],
)
def test_every_difference_that_matters_is_one_sentence(changes: dict[str, Any], sentences: list[str]) -> None:
    expected = [f"the environments differ: {sentence}" for sentence in sentences]
    assert compare_environments(OLD, OLD | changes) == expected


def test_names_are_dotted_and_what_is_no_table_holds_nothing() -> None:
    names = ("cpu.count", "cpu.brand")
    found = compare_environments({"cpu": {"count": 2, "brand": "a"}}, {"cpu": "b"}, names, "machines")
    assert found == [
        "the machines differ: cpu.count was 2, is nothing",
        "the machines differ: cpu.brand was a, is nothing",
    ]


def test_a_value_is_shown_in_part_if_it_is_long() -> None:
    (sentence,) = compare_environments({"python": "3"}, {"python": "x" * 10_000})
    assert len(sentence) < 200


def test_the_processors_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 7}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert usable_cpus() == 3
    assert describe_environment()["cpus"] == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cpus() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus() == 1


def test_versions_are_of_what_is_installed() -> None:
    assert {"numpy", "jax", "torch"} <= set(versions())
    assert versions(("no-such-distribution", "numpy")) == {"numpy": versions()["numpy"]}


def test_the_commit_is_that_of_the_source_tree() -> None:
    found = describe_environment()
    assert found["commit"] is None or len(found["commit"]) == 40
    assert found["dirty"] in (True, False)
