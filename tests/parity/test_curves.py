"""Records read back bit for bit, torn files are mended, and curves part at a named step and quantity."""

import json
import math
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.contract import (
    QUANTITIES,
    StepRecord,
    Validation,
    first_divergence,
    read_records,
    record_line,
    same,
    splice,
)
from parity.errors import RunDirectoryError
from parity.storage import append, read_lines, repair
from tests.support.small import CHANGED, quick, record

doubles = st.floats() | st.sampled_from([math.inf, -math.inf, math.nan, -0.0, 5e-324, -5e-324, 2.0**-1040])
counts = st.integers(0, 2**53)
records = st.builds(
    StepRecord,
    attempt=counts,
    step=counts,
    loss=doubles,
    lr=doubles,
    grad_norm=doubles,
    loss_scale=doubles,
    skipped=st.booleans(),
    batch=st.text(max_size=8),
    epoch=counts,
    samples=counts,
    seconds=doubles,
)


def bits(value: Any) -> Any:
    """Return the bytes of a float, any NaN as one."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return (type(value), value)


def write(text: bytes) -> Path:
    file = Path(tempfile.mkdtemp()) / "steps.jsonl"
    file.write_bytes(text)
    return file


@pytest.mark.takes_seconds
@given(rows=st.lists(records, max_size=4))
@quick(150)
def test_records_read_back_bit_for_bit(rows: list[StepRecord]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps.jsonl"
        append(file, map(record_line, rows))
        again = read_records(file, StepRecord)
    assert len(again) == len(rows)
    for a, b in zip(rows, again, strict=True):
        for name in StepRecord._fields:
            assert bits(getattr(a, name)) == bits(getattr(b, name)), name


@given(row=records)
@quick(50)
def test_a_line_is_valid_json_without_a_break(row: StepRecord) -> None:
    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    line = record_line(row)
    assert "\n" not in line
    assert json.loads(line, parse_constant=refuse)["step"] == row.step


def test_a_validation_reads_back() -> None:
    row = Validation(attempt=1, step=5, metric="loss", value=math.nan, loss=-0.0)
    file = write((record_line(row) + "\n").encode())
    (again,) = read_records(file, Validation)
    assert record_line(again) == record_line(row)


def test_an_absent_file_has_no_lines(tmp_path: Path) -> None:
    assert read_lines(tmp_path / "steps.jsonl") == []
    repair(tmp_path / "steps.jsonl")
    assert not (tmp_path / "steps.jsonl").exists()


@pytest.mark.parametrize("cut", range(1, len('{"é": 2}'.encode())))
def test_a_torn_last_line_is_left_out_wherever_it_was_cut(cut: int) -> None:
    last = '{"é": 2}'.encode()[:cut]
    file = write(b'{"a": 1}\n' + last)
    assert read_lines(file) == [{"a": 1}]
    repair(file)
    assert file.read_bytes() == b'{"a": 1}\n'


def test_mending_a_whole_file_changes_nothing_and_a_torn_first_line_leaves_nothing() -> None:
    whole, torn = write(b'{"a": 1}\n{"a": 2}\n'), write(b'{"a"')
    repair(whole)
    repair(torn)
    assert whole.read_bytes() == b'{"a": 1}\n{"a": 2}\n'
    assert torn.read_bytes() == b""


@pytest.mark.parametrize("line", [b'{"a": ', b"[1]", b"17", b'"text"', b"\xff", b"NaN"])
def test_a_corrupt_line_with_others_behind_it_is_an_error_with_its_number(line: bytes) -> None:
    file = write(b'{"a": 1}\n' + line + b'\n{"a": 3}\n')
    with pytest.raises(RunDirectoryError, match=r"steps\.jsonl line 2: .*; restore or remove this line"):
        read_lines(file)


def test_a_complete_last_line_that_is_corrupt_is_an_error_too() -> None:
    with pytest.raises(RunDirectoryError, match="line 2: "):
        read_lines(write(b'{"a": 1}\n{"a": \n'))


WRONG: list[dict[str, Any]] = [
    {"step": "5"},
    {"step": 5.0},
    {"step": None},
    {"skipped": 1},
    {"batch": 3},
    {"loss": "fast"},
    {"loss": None},
    {"loss": [1.0]},
]


@pytest.mark.parametrize("change", WRONG)
def test_a_value_of_the_wrong_type_is_refused(change: dict[str, Any]) -> None:
    row = {**json.loads(record_line(record(1))), **change}
    with pytest.raises(RunDirectoryError, match=r"steps\.jsonl: not a StepRecord"):
        read_records(write((json.dumps(row) + "\n").encode()), StepRecord)


def test_a_missing_field_is_refused() -> None:
    row = json.loads(record_line(record(1)))
    del row["grad_norm"]
    with pytest.raises(RunDirectoryError, match=r"not a StepRecord: .*\(it has no 'grad_norm'\)"):
        read_records(write((json.dumps(row) + "\n").encode()), StepRecord)


@given(
    pairs=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 4)), unique=True),
    order=st.randoms(use_true_random=False),
)
@quick(100)
def test_a_splice_takes_the_highest_attempt_for_each_step(pairs: list[tuple[int, int]], order: Any) -> None:
    rows = [record(step, attempt) for step, attempt in pairs]
    order.shuffle(rows)
    spliced = splice(rows)
    assert list(spliced) == sorted({step for step, _ in pairs})
    for step, chosen in spliced.items():
        assert chosen.attempt == max(attempt for s, attempt in pairs if s == step)


def test_of_two_records_of_one_attempt_the_later_one_counts() -> None:
    rows = [record(1, 0, loss=1.0), record(1, 0, loss=2.0)]
    assert splice(rows)[1].loss == 2.0


def test_every_quantity_is_judged_in_the_order_in_which_a_step_decides_it() -> None:
    reference = {s: record(s) for s in (1, 2, 3)}
    assert set(CHANGED) == set(QUANTITIES)
    for place, name in enumerate(QUANTITIES):
        later = {q: CHANGED[q] for q in QUANTITIES[place:]}
        other = {**reference, 2: reference[2]._replace(**later), 3: reference[3]._replace(**CHANGED)}
        found = first_divergence(reference, other)
        assert found is not None
        assert (found.step, found.quantity) == (2, name)
        assert (found.expected, found.got) == (getattr(reference[2], name), CHANGED[name])


def test_attempt_and_seconds_are_not_judged() -> None:
    other = {1: record(1, attempt=3, seconds=9.0)}
    assert first_divergence({1: record(1)}, other) is None


@pytest.mark.parametrize("where", [1, 2, 3])
def test_a_step_that_only_one_curve_has_is_missing(where: int) -> None:
    whole = {s: record(s) for s in (1, 2, 3)}
    part = {s: r for s, r in whole.items() if s != where}
    lost, extra = first_divergence(whole, part), first_divergence(part, whole)
    assert lost is not None
    assert extra is not None
    assert (lost.step, lost.quantity, lost.expected, lost.got) == (where, "missing", True, False)
    assert (extra.expected, extra.got) == (False, True)


def test_only_the_named_quantities_are_looked_at() -> None:
    other = {1: record(1, **CHANGED)}
    assert first_divergence({1: record(1)}, other, ()) is None
    found = first_divergence({1: record(1)}, other, ("loss",))
    assert found is not None
    assert found.quantity == "loss"


@given(a=doubles, b=doubles)
@quick(200)
def test_same_is_equality_of_bits_with_any_nan_equal(a: float, b: float) -> None:
    assert same(a, a)
    assert same(a, b) == (bits(a) == bits(b))


def test_same_tells_zeros_apart_and_compares_other_values_as_they_are() -> None:
    assert not same(0.0, -0.0)
    assert same("ab", "ab")
    assert not same(True, False)
