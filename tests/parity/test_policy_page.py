"""docs/policy.md says what the code does: its tables are those of the command, its example is what is printed."""

import re
from pathlib import Path

import pytest

from benchmarks.peers_policy import cases_table, cell, fill, judge, peers_table
from benchmarks.policy_loops import NoSuchOption
from parity.cli import main
from parity.policy import GROUPS, PolicyInMemory, cases
from parity.spec import SaveSpec
from tests.support.policy_plants import PLANTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")


def between(name):
    found = re.search(rf"<!-- {name} -->\n\n(.*?)\n\n<!-- /{name} -->", PAGE, re.DOTALL)
    assert found, name
    return found[1]


def test_the_page_shows_the_table_of_cases_as_it_is():
    """Otherwise: python -m benchmarks.peers_policy --cases --write docs/policy.md"""
    assert between("cases") == cases_table()


def test_every_group_is_a_numbered_rule_that_can_be_linked():
    numbers = [int(number) for number in re.findall(r'<a id="rule-(\d+)"></a>\n\*\*\1\. ', PAGE)]
    assert numbers == list(range(1, len(GROUPS) + 1))


def test_every_rule_is_a_row_of_the_peers_table_and_our_own_columns_hold():
    head, _, *rows = [line.strip("| ").split(" | ") for line in between("peers").splitlines() if line.startswith("|")]
    assert head[:3] == ["rule", "parity, jax", "parity, torch"]
    assert [row[0] for row in rows[:-1]] == [f"{n} {title}" for n, title in enumerate(GROUPS.values(), 1)]
    assert {cell for row in rows[:-1] for cell in row[1:3]} == {"holds"}
    assert rows[-1][:3] == [f"of {len(cases())} cases", f"holds {len(cases())}", f"holds {len(cases())}"]
    assert all(len(row) == len(head) == 7 for row in rows)
    for name in ("orbax-checkpoint", "lightning", "transformers"):
        assert re.search(rf"{name} \d+\.\d+", between("peers"))


def test_our_column_comes_out_as_holds():
    found = {
        group: [judge(case, lambda case: PolicyInMemory) for case in cases() if case.group == group]
        for group in GROUPS
    }
    assert {cell(findings) for findings in found.values()} == {"holds"}


def of(plant, group):
    make = PLANTS[plant][0]
    return cell([judge(case, lambda case: make) for case in cases() if case.group == group])


def test_a_manager_that_loses_fails_and_one_that_keeps_more_only_does_that():
    assert of("best is evicted by age", "age") == "fails: lost 10 after `save 30 0.2` of *the first of a long run*"
    assert of("one latest more", "best") == "keeps more (3 of 4): keeps 40 after `save 50 0.8` of *larger is better*"


def test_a_case_that_cannot_be_asked_for_says_why():
    def refuse(case):
        raise NoSuchOption("nothing of the kind")

    findings = [judge(case, refuse) for case in cases() if case.group == "late"]
    assert cell(findings) == "no such option: nothing of the kind"
    held = judge(findings[0].case, lambda case: PolicyInMemory)
    assert cell([*findings, held]) == "no such option (8 of 9): nothing of the kind"


def test_a_page_without_markers_is_refused():
    with pytest.raises(SystemExit, match="no markers <!-- cases -->"):
        fill("# a page", "cases", "table")
    assert fill("<!-- x -->\nold\n<!-- /x -->", "x", "new") == "<!-- x -->\n\nnew\n\n<!-- /x -->"
    assert peers_table([]).startswith("| rule |")


def test_the_example_is_what_is_printed(capsys):
    command, *lines = re.search(r"```\n\$ parity (policy simulate .*?)```", PAGE, re.DOTALL)[1].splitlines()
    assert main(command.split()) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == lines


def test_the_defaults_are_those_of_the_spec():
    rows = dict(re.findall(r"^\| `save\.(\w+)` \| ([\d.]+) \|", PAGE, re.MULTILINE))
    spec = SaveSpec()
    assert rows == {name: str(getattr(spec, name)) for name in rows}
    assert set(rows) == {"keep_latest", "keep_best", "keep_every", "keep_seconds"}
    assert '| `save.on_best` | `"auto"` |' in PAGE
    assert spec.on_best == "auto"
