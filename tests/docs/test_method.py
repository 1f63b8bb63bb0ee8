"""docs/method.md: its tables are those of the record, and what it concludes from them is what they show."""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from inspect import getsource
from typing import Any

import pytest

from benchmarks.criteria_table import COMMAND, FAULTS, KEPT, LONG, PRECISIONS, STEPS, tables
from parity.checks import criteria
from parity.checks.criteria import ENVELOPE_LIMIT, FLOAT64_LIMIT, FLOAT64_NOISE_FLOOR
from parity.checks.noise import FLOOR_ULPS, SEEDS, WINDOW
from tests.docs.pages import read, words

PAGE = read("docs/method.md")
RECORD = json.loads(KEPT.read_text(encoding="utf-8"))
LOWER = PRECISIONS[1:]


def between(page: str, name: str) -> str:
    """Return what stands between two markers of a page."""
    found = re.search(rf"<!-- {name} -->\n\n(.*?)\n\n<!-- /{name} -->", page, re.DOTALL)
    assert found, name
    return found[1]


def number(pattern: str, text: str) -> float:
    """Return the one number that a sentence states; it may have commas, and end the sentence."""
    (found,) = re.findall(pattern, words(text))
    return float(found.replace(",", "").rstrip("."))


def complaints(record: Mapping[str, Any], page: str) -> list[str]:
    """Return what the page concludes from the tables and the record does not show."""
    clean = [row for row in record["ports"] if row["port"] == "clean"]
    faults = [row for row in record["ports"] if row["port"] != "clean"]
    factor = number(r"in float64 every fault is at least ([\d,]+) times the limit", page)
    margin = number(r"clean ports stay at least ([\d,]+) times below it", page)
    most = number(r"Below float64 clean ports stay at or under ([\d.]+),", page)
    named = set(re.findall(r"\*(.*?)\*", re.search(r"Some faults stay (.*?) lost in rounding", words(page))[1]))
    lost = {row["port"] for row in faults if any(row[name] <= ENVELOPE_LIMIT[name] for name in LOWER)}
    figures = [row["float64"] for row in clean] + [row["twins"] for row in record["presets"]]
    floors = [row["floor"] for row in record["presets"]]
    found = [
        (
            f"every fault is at least {factor:g} times the limit",
            min(row["float64"] for row in faults) / FLOAT64_LIMIT,
        ),
        (f"clean ports stay {margin:g} times below it", FLOAT64_LIMIT / max(figures)),
        (f"clean ports stay at or under {most:g}", max(row[name] for row in clean for name in LOWER)),
        ("noise floors let float64 judge", max(floors)),
        ("faults lost in rounding are those that are named", sorted(named ^ lost)),
    ]
    holds = [
        found[0][1] >= factor,
        found[1][1] >= margin,
        found[2][1] <= most < min(ENVELOPE_LIMIT.values()),
        found[3][1] < FLOAT64_NOISE_FLOOR,
        not found[4][1],
    ]
    return [f"{claim}: {value}" for (claim, value), fine in zip(found, holds, strict=True) if not fine]


def test_the_tables_are_those_of_the_record():
    """Otherwise: python -m benchmarks.criteria_table --kept --write docs/method.md"""
    for name, text in tables(RECORD).items():
        assert between(PAGE, name) == text


def test_the_record_has_every_port_and_preset():
    expected = [(port, name, STEPS[name]) for port, (_, names) in FAULTS.items() for name in names]
    assert [(row["port"], row["preset"], row["steps"]) for row in RECORD["ports"]] == expected
    assert [(row["preset"], row["steps"]) for row in RECORD["presets"]] == [(name, LONG) for name in STEPS]
    assert RECORD["seeds"] == SEEDS


def test_the_page_says_what_the_record_was_made_with():
    source = words(between(PAGE, "ports").rpartition("|\n\n")[2])
    environment = RECORD["environment"]
    assert environment["dirty"] is False, "measure what is committed"
    for part in (RECORD["measured"], environment["commit"], f"torch {environment['versions']['torch']}", COMMAND):
        assert part in source


def test_what_the_page_concludes_is_what_the_record_shows():
    assert complaints(RECORD, PAGE) == []


def test_the_limits_of_the_page_are_those_of_the_checks():
    assert number(r"\*\*float64\*\*: at most ([\d.e-]+) relative", PAGE) == FLOAT64_LIMIT
    assert number(r"moves the loss by ([\d.e-]+) or more", PAGE) == FLOAT64_NOISE_FLOOR
    assert number(r"at random, with (\d+) seeds", PAGE) == SEEDS
    assert number(r"Per window of (\d+) steps", PAGE) == WINDOW
    assert number(r"never less than (\d+) float32 ulp", PAGE) == FLOOR_ULPS
    assert {number(r"The limit is ([\d.]+);", PAGE)} == set(ENVELOPE_LIMIT.values())


def test_the_reasons_beside_the_limits_are_what_the_record_shows():
    text = getsource(criteria)
    clean = max(row["twins"] for row in RECORD["presets"])
    assert clean < number(r"Clean presets stay below ([\d.e-]+) over 1,000 steps", text) < 2 * clean
    lower = [(row["port"] == "clean", row[name]) for row in RECORD["ports"] for name in LOWER]
    assert max(value for clean, value in lower if clean) <= number(r"the presets reach at most ([\d.]+);", text)
    shown = min(value for clean, value in lower if not clean and value > 3)
    assert shown == pytest.approx(number(r"that show at all start at ([\d.]+),", text), abs=0.05)


def figures(text: str) -> list[re.Match[str]]:
    """Return the figures of a table's rows, from its third column on: digits with what stands before an exponent."""
    return [f for f in re.finditer(r"\d[\d.]*(?:e[+-]\d+)?(?= \|)", text) if f.start() > text.index("|---")]


@pytest.mark.parametrize(("name", "least"), [("presets", 9), ("ports", 110)])
def test_any_edited_figure_is_noticed(name, least):
    text = tables(RECORD)[name]
    found = figures(text)
    assert len(found) >= least
    for figure in found:
        last = re.search(r"\d(?=\D*$)", figure[0].partition("e")[0])
        edited = figure[0][: last.start()] + str((int(last[0]) + 1) % 10) + figure[0][last.end() :]
        page = PAGE.replace(text, text[: figure.start()] + edited + text[figure.end() :])
        assert page != PAGE
        assert between(page, name) != text, f"{figure[0]} became {edited}"


def planted(port: str, **changes: float) -> dict[str, Any]:
    """Return the record with other figures for a port, or for a preset over a long run."""
    record = deepcopy(RECORD)
    for row in [*record["ports"], *record["presets"]]:
        if port in (row.get("port"), row["preset"] if "twins" in row else None):
            row.update(changes)
    return record


@pytest.mark.parametrize(
    ("record", "claim"),
    [
        (planted("beta2 0.99", float64=6.5e-15), "every fault is at least"),
        (planted("clean", float64=1e-12), "clean ports stay"),
        (planted("cnn-digits", twins=9e-13), "clean ports stay"),
        (planted("clean", float16=2.0), "clean ports stay at or under"),
        (planted("gpt-text", floor=1e-13), "noise floors"),
        (planted("beta2 0.99", bfloat16=0.5), "faults lost in rounding are those that are named: ['beta2 0.99']"),
        (planted("GELU by tanh", float32=9, bfloat16=9, float16=9), "those that are named: ['GELU by tanh']"),
    ],
)
def test_a_record_that_shows_something_else_is_noticed(record, claim):
    (found,) = complaints(record, PAGE)
    assert claim in found


def test_figures_of_the_clean_ports_in_the_rows_of_the_faults_are_noticed():
    """As an edit by hand once left the page: every planted fault looked clean."""
    record = deepcopy(RECORD)
    clean = {row["preset"]: row for row in record["presets"]}
    for row in record["ports"]:
        row["float64"] = clean[row["preset"]]["twins"]
    assert any("every fault is at least" in complaint for complaint in complaints(record, PAGE))
    assert tables(record)["ports"] != between(PAGE, "ports")


@pytest.mark.parametrize(
    ("old", "new"),
    [("at least 10,000 times", "at least 100,000 times"), ("at least 30 times", "at least 300 times")],
)
def test_a_conclusion_that_promises_more_is_noticed(old, new):
    assert old in PAGE
    assert len(complaints(RECORD, PAGE.replace(old, new))) == 1
