"""The order of suspects where the first mark of a resumed run lies behind its first step."""

from types import SimpleNamespace
from typing import Any

from parity.capture import Leaf, StateSnapshot
from parity.checks.judging.evidence import Evidence
from parity.checks.judging.ordering import restored_last

SAVED = "saver.last_saved_step"
BATCH = Evidence("data.position", "batch", 11, "float32[4] aa", "float32[4] bb", "one step after the resume")
NUMBER = Evidence("counters.step", SAVED, 10, "10", "0", "at the resume")
AVERAGE = Evidence("ema", "shadow", 10, "float32[4] aa", "absent", "at the resume")


def order(found: list[Evidence], reads: set[str], entry: dict[str, Leaf]) -> list[str]:
    saved = {SAVED: Leaf("scalar", "counters.step", "int", "10"), "shadow": Leaf("array", "ema", "float32[4]", "aa")}
    uninterrupted: Any = SimpleNamespace(use=SimpleNamespace(reads=reads.__contains__))
    ordered = restored_last(found, [BATCH], StateSnapshot(saved), StateSnapshot(entry), uninterrupted)
    return [e.path for e in ordered]


def test_a_number_that_no_code_of_the_user_takes_comes_behind_what_is_known_to_be_lost() -> None:
    """Such as the step of a library's last save; what is neither there nor a step later was lost for sure."""
    entry = {SAVED: Leaf("scalar", "counters.step", "int", "0")}
    assert order([NUMBER, AVERAGE], set(), entry) == ["shadow", SAVED, "batch"]


def test_a_number_that_is_taken_keeps_its_place() -> None:
    entry = {SAVED: Leaf("scalar", "counters.step", "int", "0")}
    assert order([NUMBER, AVERAGE], {".last_saved_step"}, entry) == [SAVED, "shadow", "batch"]


def test_what_was_restored_comes_last() -> None:
    entry = {SAVED: Leaf("scalar", "counters.step", "int", "10")}
    assert order([NUMBER, AVERAGE], {".last_saved_step"}, entry) == ["shadow", "batch", SAVED]
