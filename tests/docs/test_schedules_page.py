"""docs/schedules.md: its tables are those of the record, the record is what is measured, and its code runs."""

import json
import re
from importlib.metadata import version

import jax
import pytest

from benchmarks.equivalence_schedules import COMMAND, KEPT, LONG, measure, tables
from benchmarks.schedule_rows import ROWS
from parity.schedules import RULES
from tests.docs.pages import read
from tests.docs.test_method import between
from torch_side.schedules import read as reader

PAGE = read("docs/schedules.md")
RECORD = json.loads(KEPT.read_text(encoding="utf-8"))


def test_the_tables_are_those_of_the_record() -> None:
    """Otherwise: python -m benchmarks.equivalence_schedules --kept --write docs/schedules.md"""
    for name, text in tables(RECORD).items():
        assert between(PAGE, name) == text
    assert f"`{COMMAND}`" in PAGE


def test_the_record_is_of_the_installed_versions_and_has_every_scheduler() -> None:
    assert RECORD["versions"] == {name: version(name).partition("+")[0] for name in RECORD["versions"]}
    found = [row["scheduler"] for row in RECORD["rows"]]
    assert found == [row.torch.partition("(")[0] for row in ROWS]
    assert set(found) == {cls.__name__ for cls in reader.KNOWN}
    assert len(RULES) == len(found) + 1, "and Beside, which is several schedulers"
    assert {row["exact"] for row in RECORD["rows"]} == {LONG}


@pytest.mark.takes_seconds
@pytest.mark.parametrize("number", [4, 13])
def test_the_record_is_what_is_measured(number: int) -> None:
    with jax.enable_x64(True):
        assert measure(ROWS[number]) == RECORD["rows"][number]


@pytest.mark.soak
@pytest.mark.parametrize("number", range(len(ROWS)))
def test_every_row_is_what_is_measured(number: int) -> None:
    with jax.enable_x64(True):
        found, kept = measure(ROWS[number]), RECORD["rows"][number]
    rounding = {"bits", "short", "long", "traced"}
    assert {k: v for k, v in found.items() if k not in rounding} == {
        k: v for k, v in kept.items() if k not in rounding
    }
    for name in ("short", "long", "traced"):
        assert (found[name] or 0) == pytest.approx(kept[name] or 0, rel=0.5, abs=1e-14)


def test_the_code_of_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/schedules.md", "exec"), names)
    assert names["chunk"].rates.shape == (100, 2)  # type: ignore[attr-defined]
