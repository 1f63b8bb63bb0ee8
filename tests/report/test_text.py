"""Terminal, Markdown, step summary and annotations: the same words, and nothing of a file that steers them."""

import io
import re
from dataclasses import replace

import pytest

from parity.report import (
    MARKS,
    MOST_SUMMARY,
    annotate,
    append_summary,
    cell,
    check_markdown,
    clean,
    exact,
    meaning,
    print_table,
    quoted,
    short,
    sides,
    table,
)
from parity.report.html import check_page
from parity.results import EXIT_CODES
from tests.report.samples import ALL, BROKEN, ENVIRONMENT, HANDOVER, HOSTILE, RESUME, TWINS, of_every_verdict


def rows(markdown):
    """Return the cells of the first table of a Markdown text, split as GitHub does."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.mark.parametrize("verdict", EXIT_CODES)
def test_markdown_tells_each_verdict_by_word_and_mark(verdict):
    markdown = check_markdown([replace(RESUME, verdict=verdict)], ENVIRONMENT)
    assert markdown.startswith(f"## {MARKS[verdict]} parity check: {verdict}\n")
    assert rows(markdown)[2][4] == f"{MARKS[verdict]} {verdict}"
    assert (meaning(replace(RESUME, verdict=verdict)) in markdown) == (verdict != "holds")


def test_markdown_has_a_row_for_each_check_with_the_figures_of_the_record():
    found = rows(check_markdown(ALL, ENVIRONMENT))
    assert found[0] == [
        *("check", "spec", "precision", "sides", "verdict", "criterion", "steps"),
        *("max rel diff", "x envelope", "seconds"),
    ]
    for row, record in zip(found[2 : 2 + len(ALL)], ALL, strict=True):
        assert row == [
            record.name.partition(" ")[0],
            record.spec,
            record.precision,
            sides(record).replace(">", "&gt;"),
            f"{MARKS[record.verdict]} {record.verdict}",
            record.criterion,
            str(record.steps_compared),
            short(record.max_rel_diff),
            short(record.envelope_multiple),
            f"{record.seconds:.1f}",
        ]


def test_markdown_names_what_was_lost():
    markdown = check_markdown([RESUME, BROKEN], ENVIRONMENT)
    assert "- suspects: optimizer.first_moment, schedule.step" in markdown
    assert "- first divergence: step 7, loss:" in markdown
    assert "- restored at step 6 is not what was saved" in markdown


def test_an_empty_result_is_reported_as_such():
    assert "Nothing was compared. That is not a success." in check_markdown([], ENVIRONMENT)
    out = io.StringIO()
    print_table([], out)
    assert "verdict: empty (0 checks, 0 s)" in out.getvalue()


def test_nothing_of_a_file_becomes_markdown():
    record = replace(BROKEN, name=HOSTILE, spec=HOSTILE, sides=(HOSTILE,), suspects=(HOSTILE,), notes=(HOSTILE,))
    markdown = check_markdown([record], {HOSTILE: HOSTILE})
    assert len(rows(markdown)[2]) == 10, "no cell was split"
    assert len(markdown.splitlines()) == len(check_markdown([BROKEN], {"a": "b"}).splitlines()), "nor any line"
    assert set(re.findall(r"</?\w+>", markdown)) == {"<details>", "<summary>", "</summary>", "</details>"}
    assert not re.search(r"(?<!\\)[`\[\]]", markdown)
    assert "http:" not in markdown, "no text becomes a link"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("optimizer.first_moment", "optimizer.first_moment"),
        ("_start and end_", r"\_start and end\_"),
        ("a|b", r"a\|b"),
        ("a\\|b", r"a\\\|b"),
        ("*a* `b` ~c~ $d$", r"\*a\* \`b\` \~c\~ \$d\$"),
        ("![x](y)", r"!\[x\](y)"),
        ("a\n\nb", "a b"),
        ("@team", "@<!-- -->team"),
    ],
)
def test_a_cell_shows_text_as_it_is(text, shown):
    assert cell(text) == shown


def test_a_table_sets_its_last_columns_to_the_right():
    assert table(("a", "b"), [("1", "2")], right=1) == "| a | b |\n| --- | --: |\n| 1 | 2 |"


@pytest.mark.parametrize(("value", "text"), [(0.1 + 0.2, "0.30000000000000004"), (5.0, "5"), (None, "–")])
def test_exact_figures_have_every_digit(value, text):
    assert exact(value) == text


def test_the_terminal_shows_no_markup_and_no_control_characters_of_a_file():
    record = replace(BROKEN, spec="[red]x[/red]", notes=("\x1b]0;title\x07 [bold]y[/bold]",), suspects=("a\u202eb",))
    out = io.StringIO()
    print_table([record], out)
    text = out.getvalue()
    assert text.count("[red]x[/red]") == 2, "in the table and above the findings"
    assert r"\x1b]0;title\x07 [bold]y[/bold]" in text
    assert r"a\u202eb" in text
    assert "\x1b" not in text


def test_the_terminal_shows_a_bounded_number_of_lines():
    out = io.StringIO()
    print_table([replace(BROKEN, notes=("a",) * 500)], out)
    assert "and 452 more" in out.getvalue()
    assert len(out.getvalue().splitlines()) < 70


def test_clean_text_is_one_line():
    assert clean("a\r\nb\tc \x00 \x9b") == r"a b c \x00 \x9b"


def test_the_order_of_a_handover_is_shown():
    assert sides(HANDOVER) == "jax > torch"
    assert sides(TWINS) == "jax, torch"


@pytest.fixture
def actions(monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")


def annotations(records):
    out = io.StringIO()
    annotate(records, out)
    return out.getvalue().splitlines()


def test_a_summary_is_appended_where_the_variable_is_set(monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    append_summary("one")
    append_summary("two")
    assert (tmp_path / "summary").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("value", [None, ""])
def test_no_summary_is_written_where_it_is_not(value, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    if value is not None:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", value)
    append_summary("one")
    assert list(tmp_path.iterdir()) == []


def test_a_summary_that_cannot_be_written_costs_a_warning_only(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    append_summary("one")
    assert "parity: warning: no summary was written" in capsys.readouterr().err


def test_a_summary_that_is_too_long_is_cut(monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    append_summary("é" * MOST_SUMMARY)
    text = (tmp_path / "summary").read_bytes()
    assert MOST_SUMMARY - 2 < len(text) < 1 << 20
    assert text.decode().endswith("The rest was cut: it is too long.\n")


def test_each_check_that_does_not_hold_is_annotated(actions):
    levels = [line.partition(" ")[0] for line in annotations(of_every_verdict())]
    assert levels == ["::error", "::error", "::warning", "::warning"], "broken, crashed, inconclusive, empty"
    assert annotations([BROKEN]) == [
        "::error title=resume mlp-digits float32 (torch)%3A broken::"
        "suspects: optimizer.first_moment, schedule.step%0A"
        "first divergence: step 7, loss: 0.2857142857142857 became 0.3%0Arestored at step 6 is not what was saved"
    ]


def test_nothing_is_annotated_outside_of_actions(monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert annotations([BROKEN]) == []
    out = io.StringIO()
    with quoted(out):
        print("table", file=out)
    assert out.getvalue() == "table\n"


def test_an_annotation_stays_one_command_whatever_a_note_says(actions):
    lines = annotations([replace(BROKEN, name="a\n::error::b", spec="x,line=1::", notes=("50%\n::error::no",))])
    assert len(lines) == 1
    head, title, message = re.fullmatch(r"::(\w+) title=([^,:]*)::(.*)", lines[0]).groups()
    assert head == "error"
    assert title == "a %3A%3Aerror%3A%3Ab x%2Cline=1%3A%3A float32 (torch)%3A broken"
    assert message.endswith("50%25 ::error::no")


def test_in_actions_a_table_is_quoted_with_a_token_that_cannot_be_guessed(actions):
    tokens = set()
    for _ in range(2):
        out = io.StringIO()
        with quoted(out):
            print("::error::from a note", file=out)
        first, inside, last = out.getvalue().splitlines()
        token = re.fullmatch(r"::stop-commands::([0-9a-f]{32})", first)[1]
        assert (inside, last) == ("::error::from a note", f"::{token}::")
        tokens.add(token)
    assert len(tokens) == 2


def test_the_time_of_all_checks_is_by_the_clock_and_without_one_their_sum():
    records = [replace(RESUME, seconds=40.0), replace(TWINS, seconds=30.0)]
    for environment, seconds in (
        ({"seconds": 45.2}, 45),
        ({}, 70),
        ({"seconds": "x"}, 70),
        ({"seconds": float("nan")}, 70),
    ):
        assert f"2 checks in {seconds} s" in check_markdown(records, environment)
        assert f"2 checks in {seconds} s" in check_page(records, environment)
        print_table(records, out := io.StringIO(), environment)
        assert f"(2 checks, {seconds} s)" in out.getvalue()


def test_one_check_is_one():
    for made in (check_markdown([RESUME], {"seconds": 4.0}), check_page([RESUME], {"seconds": 4.0})):
        assert "1 check in 4 s" in made
