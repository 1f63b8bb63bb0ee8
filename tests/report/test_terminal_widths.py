"""Tables on terminals of every width from 40 to 200 columns, and on a pipe: no number is cut, no line is too long."""

import io
import random
import re
from dataclasses import replace

import pytest

from parity.policy import Rules, Saved, simulate
from parity.report import print_benchmarks, print_changes, print_moments, print_ratios, print_table
from parity.report.words import row
from parity.results import compare_benchmarks, compare_records, compare_verdicts, read_benchmarks
from tests.report.samples import ALL, HANDOVER, RESUME, TWINS, bench_written, benchmark, ratio

WIDTHS = range(40, 201)

VERDICTS = ("holds", "broken", "crashed", "inconclusive", "empty")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def records():
    """Return checks of every kind, with figures of every length."""
    draw = random.Random(7)
    out = []
    for number in range(40):
        one = draw.choice((RESUME, TWINS, HANDOVER, replace(HANDOVER, sides=("jax", "torch", "jax"))))
        out.append(
            replace(
                one,
                spec=draw.choice(("mlp-digits", "cnn-digits", "gpt-text")),
                precision=draw.choice(("float64", "bfloat16")),
                verdict=draw.choice(VERDICTS),
                notes=(f"step {draw.randrange(10**9)} became {draw.random()!r}",) * (number % 3),
                steps_compared=draw.choice((0, 7, 200, 123_456_789)),
                max_rel_diff=draw.choice((None, 0.0, 1e-300, 2.7e-15, 0.016, 1234.5)),
                envelope_multiple=draw.choice((None, 0.98, 12345.6)),
                seconds=draw.choice((0.04, 161.2, 98765.4)),
            )
        )
    return out


def ratios(tmp_path):
    names = ("test_save_every_10_steps[jax-100000000-linear]", "test_a", "test_restore[torch-12]")
    made = [
        benchmark(name, ratios={f"x {n} of the loop": ratio(1.0 + n / 7000, 1.0203) for n in range(1, 4)})
        for name in names
    ]
    other = [
        benchmark(name, ratios={f"x {n} of the loop": ratio(1.1 + n / 7000, 1.0203) for n in range(2, 5)})
        for name in names
    ]
    return [read_benchmarks(bench_written(tmp_path / f"{n}.json", *some)) for n, some in enumerate((made, other))]


def moments():
    rules = Rules(mode="max", keep_latest=3, keep_best=2, keep_every=1000)
    draw = random.Random(3)
    return simulate(
        [Saved(step=n * 125, metric=draw.random(), saved_at=float(n)) for n in range(1, 60)], rules
    ), rules


def tables(tmp_path):
    """Return name to what prints a table, and the numbers that it must show."""
    checks = records()
    old, new = ratios(tmp_path)
    compared = compare_benchmarks(old, new, 0.05)
    changes = compare_records(checks, [replace(one, verdict="crashed") for one in checks])
    there, rules = moments()
    figures = [f"{figure:.3g}" for c in compared.changes for r in (c.old, c.new) if r for figure in (r.median, r.q1)]
    return {
        "checks": (
            lambda file: print_table(checks, file),
            [cell for one in checks for cell in row(one)[-4:] if cell]
            + [n for one in checks if one.verdict != "holds" for n in _in(one.notes)],
        ),
        "changes": (lambda file: print_changes(changes, compare_verdicts(changes), file), []),
        "benchmarks": (
            lambda file: print_benchmarks(old, file),
            [f"{r.median:.4g}" for b in old.benchmarks for r in b.ratios] + ["1.02"],
        ),
        "ratios": (lambda file: print_ratios(compared, 0.05, file), figures),
        "policy": (
            lambda file: print_moments(there, rules, file),
            [str(m.saved.step) for m in there] + [f"{m.saved.metric:.6g}" for m in there],
        ),
    }


def _in(notes):
    return [number for note in notes for number in re.findall(r"\d+(?:\.\d+)?(?:e[-+]\d+)?", note)]


def seen(text, width):
    """Return the lines as a terminal shows them, and the numbers in them."""
    lines = [line[at : at + width] for line in text.splitlines() for at in range(0, max(len(line), 1), width)]
    return lines, {number for line in lines for number in re.findall(r"\d+(?:\.\d+)?(?:e[-+]\d+)?", line)}


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


@pytest.mark.takes_seconds
@pytest.mark.parametrize("name", ["checks", "changes", "benchmarks", "ratios", "policy"])
def test_every_number_is_whole_at_every_width(name, plain, tmp_path):
    show, numbers = tables(tmp_path)[name]
    for width in WIDTHS:
        plain.setenv("COLUMNS", str(width))
        show(file := Terminal())
        lines, found = seen(file.getvalue(), width)
        missing = {number.removeprefix("-") for number in numbers} - found
        assert not missing, (width, sorted(missing)[:5])
        assert max(map(len, file.getvalue().splitlines())) <= width
        assert "…" not in "".join(lines)


@pytest.mark.parametrize("name", ["checks", "benchmarks", "ratios", "policy"])
def test_on_a_pipe_a_row_is_one_line(name, plain, tmp_path):
    plain.setenv("COLUMNS", "40")
    show, numbers = tables(tmp_path)[name]
    show(file := io.StringIO())
    assert {number.removeprefix("-") for number in numbers} <= seen(file.getvalue(), 10_000)[1]
    heads = file.getvalue().splitlines()
    if name == "checks":
        start = next(n for n, line in enumerate(heads) if line.startswith("check"))
        assert all(line.startswith(("resume", "twins", "handover")) for line in heads[start + 1 : start + 41])


def test_columns_give_way_by_importance_and_then_rows_become_blocks(plain):
    shown = {}
    for width in (200, 80, 60, 40):
        plain.setenv("COLUMNS", str(width))
        print_table([replace(HANDOVER, verdict="inconclusive"), TWINS], file := Terminal())
        shown[width] = file.getvalue().splitlines()
    assert shown[200][0].split() == ["check", "spec", "precision", "sides", "verdict", "criterion", "steps",
                                     "max", "rel", "diff", "x", "envelope", "seconds"]  # fmt: skip
    below = [line for line in shown[80] if line.startswith("    ") and "criterion" in line]
    assert below, "what identifies a check stays in its line; the criterion is the first to leave it"
    assert any("seconds" in line for line in shown[60] if line.startswith("    "))
    assert shown[40][0].split() == ["check", "handover"]
    assert shown[40][1].split()[0] == "spec"


@pytest.mark.parametrize("width", [60, 200])
@pytest.mark.parametrize("name", ["checks", "changes", "benchmarks", "ratios", "policy"])
def test_no_color_means_no_escape_code(name, width, plain, tmp_path):
    show, _ = tables(tmp_path)[name]
    plain.setenv("COLUMNS", str(width))
    show(file := Terminal())
    assert "\x1b" not in file.getvalue()
    plain.delenv("NO_COLOR")
    show(file := Terminal())
    assert "\x1b" in file.getvalue(), "the test can fail"


def test_a_hostile_name_widens_no_table_beyond_its_bound(plain):
    print_table([replace(ALL[0], spec="x" * 5000), *ALL], file := io.StringIO())
    assert max(map(len, file.getvalue().splitlines())) < 6000
    assert sum(map(len, file.getvalue().splitlines())) < 12_000
