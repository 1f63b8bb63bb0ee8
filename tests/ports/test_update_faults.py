"""Faults of updates as ports have them: each has its cause, and no other; a table of them by `update_faults`."""

from collections import Counter
from types import SimpleNamespace

import pytest

from parity.checks.proving import bias_forms
from tests.ports.update_faults import FAULTS, answer_of, verdict_of
from tests.ports.update_products import cases

KNOWN = {
    "parts: sum": "vague",
}
"""Faults whose cause is not found yet, or is said in part: what their values show fits several."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_an_update_has_its_cause(name):
    said = answer_of(name)
    assert verdict_of(name, said) == KNOWN.get(name, "right"), said


@pytest.mark.soak
def test_no_fault_on_any_trainer_has_a_false_cause():
    said = [(name, *found) for name, found in cases()]
    counts = Counter(verdict for _, verdict, _ in said)
    assert not [one for one in said if one[1] == "false"]
    assert counts["right"] >= 0.9 * sum(counts.values()), counts


@pytest.mark.parametrize("kept", [1.0 - 1e-12, 0.9])
def test_a_sum_that_keeps_all_but_a_rounding_of_itself_has_no_correction(kept, monkeypatch):
    monkeypatch.setattr(bias_forms, "shares_of", lambda *_, **__: SimpleNamespace(kept=kept, taken=1.0))
    form = SimpleNamespace(top="", under="sum")
    made = bias_forms.corrections(SimpleNamespace(), form, [1, 2, 3])
    assert bool(made) == (kept == 0.9)
