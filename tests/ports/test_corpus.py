"""The corpus of ports: the table is true without the command, and the command says what the table does."""

from functools import cache

import pytest

from parity.checks.proving import STAGES
from tests.ports.corpus.catalog import CORPUS, RIGHT, WRONG
from tests.ports.proved import prove_entry
from tests.ports.truth import rules_of, stage_of

QUICK = (
    "gpt: batch order",
    "policy: time is drawn before the noise",
    "gpt, PyTorch, separate projections, AdamW by hand",
    "llama, PyTorch, fused, complex turns",
)
"""Entries of the gate: two of PyTorch alone, and two that need no map."""


def cases(quick):
    return [name if name in quick else pytest.param(name, marks=pytest.mark.soak) for name in CORPUS]


@cache
def map_of(first, right):
    return rules_of(first, right)


def test_the_corpus_has_six_models_twenty_right_ports_and_forty_wrong_ones():
    assert len(RIGHT) >= 20
    assert len(WRONG) >= 40
    assert len(CORPUS) == len(RIGHT) + len(WRONG)
    assert len({type(entry.first) for entry in CORPUS.values()}) == 6
    stages = {entry.stage for entry in WRONG}
    assert stages == {"batches", "forward", "loss", "gradients", "update", "steps", "initial values"}
    assert stages < set(STAGES)
    assert all(entry.words for entry in WRONG)


@pytest.mark.parametrize("name", cases(QUICK[2:]))
def test_the_table_says_where_two_trainers_part(name):
    entry = CORPUS[name]
    found = map_of(entry.first, entry.right)
    stage, what = stage_of(entry.first, entry.second, found.rules)
    assert (stage, found.proof.verdict) == (entry.stage, "holds"), f"{what}\n{found.text()}"


@pytest.mark.parametrize("name", cases(QUICK))
def test_the_command_says_what_the_table_says(name):
    entry = CORPUS[name]
    found = prove_entry(entry, until="initial values")
    said = found.error or found.proof.text()
    assert found.verdict == ("broken" if entry.stage else "holds"), said
    assert found.stage == entry.stage, said
