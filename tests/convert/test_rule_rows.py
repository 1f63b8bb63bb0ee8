"""RULES.toml that anyone may have written: a row with a value that no rule has is named, in one line."""

from pathlib import Path

import pytest

from parity.convert import parse_rules, read_rules
from parity.errors import CheckpointError, ParityError

ROW = 'torch = "a"\njax = "b"\n'
REFUSED = {
    f"{ROW}axis = -1": "rule 1: axis must be an axis, counted from 0, got -1",
    f"{ROW}axis = 0x{'f' * 5000}": "rule 1: axis must be an axis, counted from 0, got an integer of 20000 bits",
    f"{ROW}add = 1": "rule 1: add must be true or false, got 1",
    f"{ROW}permute = [0, 2]": r"rule 1: permute must be the axes in another order, got \[0, 2\]",
    f"{ROW}reshape = []": r"rule 1: reshape must be extents, got \[\]",
    f"{ROW}split = [1.0]": r"rule 1: split must be extents, got \[1\.0\]",
    f"{ROW}scale = inf": "rule 1: scale must be a finite number other than 0, got inf",
    f"{ROW}cast = 16": "rule 1: cast must be the name of a dtype, got 16",
    f'{ROW}collection = "a.b"': "rule 1: collection must be a key without dots, got 'a.b'",
    'torch = []\njax = "b"': r"rule 1: torch must be a name, or several, got \[\]",
    'torch = "a"': "rule 1 has no jax",
    f"{ROW}tranpose = true": r"unknown field of a rule \(.*: rule 1\) 'tranpose'; did you mean transpose",
    f"{ROW}stack = 0\nadd = true": "rule 1: join, stack, add and tie exclude each other, but for join with stack",
    f"{ROW}join = 0\nstack = 0": "rule 1: join, add and tie need several torch names",
    f"{ROW}permute = [0]\ntranspose = true": "rule 1: permute and transpose exclude each other",
}


@pytest.mark.parametrize("row", REFUSED)
def test_a_row_that_is_no_rule_is_refused_and_named(row: str, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(f"[[rule]]\n{row}\n")
    with pytest.raises(ParityError, match=REFUSED[row]) as refused:
        read_rules(tmp_path / "rules.toml")
    assert len(str(refused.value)) < 300 + len(str(tmp_path))


def test_a_row_that_is_no_table_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"^here: rule 2 is no table$"):
        parse_rules("here", [{"torch": "a", "jax": "b"}, 5])
