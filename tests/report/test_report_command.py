"""`parity report`: what it writes and prints, how it exits, and what it says of files that are no results."""

import json
from dataclasses import replace

import pytest

from parity.cli import main
from parity.environment import compare_environments
from parity.report import check_markdown
from parity.report.html import check_page
from parity.results import EXIT_CODES, compare_records, compare_verdicts
from tests.report.samples import (
    ALL,
    BARE,
    BROKEN,
    ENVIRONMENT,
    HOSTILE,
    RESUME,
    TWINS,
    bench_written,
    benchmark,
    ratio,
    written,
)


@pytest.fixture(autouse=True)
def no_ci(monkeypatch):
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("verdict", EXIT_CODES)
def test_the_verdict_of_the_result_decides_the_exit_code(verdict, tmp_path, capsys):
    path = written(tmp_path / "check.json", [RESUME, replace(RESUME, verdict=verdict)])
    assert main(["report", str(path)]) == EXIT_CODES[verdict]
    assert f"verdict: {verdict}" in capsys.readouterr().out


def test_an_empty_result_exits_with_5(tmp_path, capsys):
    assert main(["report", str(written(tmp_path / "check.json", []))]) == 5
    assert "verdict: empty (0 checks" in capsys.readouterr().out
    assert main(["report", str(bench_written(tmp_path / "b.json"))]) == 5
    assert "No benchmark was run" in capsys.readouterr().out


def test_both_files_are_written_as_the_renderers_make_them(tmp_path, capsys):
    path, html, markdown = written(tmp_path / "check.json"), tmp_path / "a.html", tmp_path / "a.md"
    assert main(["report", str(path), "--html", str(html), "--markdown", str(markdown)]) == 1
    assert html.read_text() == check_page(ALL, ENVIRONMENT)
    assert markdown.read_text() == check_markdown(ALL, ENVIRONMENT)
    assert capsys.readouterr().out == f"wrote {html} (broken)\nwrote {markdown} (broken)\n"


def test_the_table_of_a_result_read_back_is_the_one_that_was_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("parity.cli.check.run_checks", lambda request, *watching: list(ALL))
    assert main(["check", "--spec", "mlp-digits", "--report", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert main(["report", str(tmp_path / "check.json")]) == 1
    assert capsys.readouterr().out == printed


def test_a_check_writes_all_of_its_renderings(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("parity.cli.check.run_checks", lambda request, *watching: list(ALL))
    main(["check", "--spec", "mlp-digits", "--report", str(tmp_path)])
    environment = json.loads((tmp_path / "check.json").read_text())["environment"]
    assert (tmp_path / "index.html").read_text() == check_page(ALL, environment)
    assert (tmp_path / "check.md").read_text() == check_markdown(ALL, environment)


def test_json_stays_one_document_on_stdout_in_actions(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setattr("parity.cli.check.run_checks", lambda request, *watching: [RESUME, BROKEN])
    assert main(["check", "--spec", "mlp-digits", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["verdict"] == "broken"
    assert "::error title=resume mlp-digits float32 (torch)%3A broken::suspects" in captured.err
    assert (tmp_path / "summary").read_text().startswith("## ✗ parity check: broken")


def test_a_report_in_actions_appends_a_summary_and_annotates(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    (tmp_path / "summary").write_text("before\n")
    evil = replace(BROKEN, notes=("::error::planted",))
    main(["report", str(written(tmp_path / "check.json", [evil]))])
    lines = capsys.readouterr().out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("::stop-commands::"))
    end = lines.index(f"::{lines[start].removeprefix('::stop-commands::')}::")
    own = [line for line in [*lines[:start], *lines[end + 1 :]] if line.lstrip().startswith("::")]
    assert len(own) == 1
    assert own[0].startswith("::error title=resume")
    assert (tmp_path / "summary").read_text().startswith("before\n## ✗ parity check: broken")


def test_a_file_of_benchmarks_is_reported_by_its_bars(tmp_path, capsys):
    met = bench_written(tmp_path / "met.json", benchmark("a", ratios={"r": ratio(1.0, 1.02)}))
    missed = bench_written(tmp_path / "missed.json", benchmark("a", ratios={"r": ratio(1.1, 1.02)}))
    assert main(["report", str(met)]) == 0
    assert main(["report", str(missed), "--html", str(tmp_path / "b.html")]) == 1
    assert "bars missed" in (tmp_path / "b.html").read_text()


@pytest.mark.parametrize("text", ["", "{", "{}", '{"schema": "other/1"}', '{"benchmarks": 3}'])
def test_a_file_that_is_no_result_is_one_error_and_exit_2(text, tmp_path, capsys):
    path = tmp_path / "r.json"
    path.write_text(text)
    assert main(["report", str(path), "--html", str(tmp_path / "a.html")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"parity: error: {path}")
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "a.html").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["r.json", "--compare", "a.json", "b.json"],
        ["--compare", "a.json", "b.json", "--html", "x.html"],
        ["r.json", "--fail-on", "ratio:5%"],
    ],
)
def test_either_one_result_or_two_are_given(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["report", *arguments])
    assert "usage: parity report" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--html", "--markdown"])
@pytest.mark.parametrize("where", [".", "/", "", "there"])
def test_a_directory_is_no_file_to_write(option, where, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(SystemExit, match="2"):
        main(["report", str(written(tmp_path / "r.json")), option, where])
    assert "is a directory; name a file in it" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.json", "there"]


def compared(tmp_path, old, new, environment=ENVIRONMENT):
    return main(
        [
            *("report", "--compare"),
            str(written(tmp_path / "old.json", old)),
            str(written(tmp_path / "new.json", new, environment)),
        ]
    )


WORSE = replace(TWINS, verdict="inconclusive")
COMPARISONS = {
    "equal": ([RESUME, TWINS], [RESUME, TWINS], "holds", "no verdict got worse (2 as they were, 0 not)"),
    "worse": ([RESUME, TWINS], [RESUME, WORSE], "broken", "worse"),
    "better": ([BROKEN, TWINS], [RESUME, TWINS], "holds", "better"),
    "gone": ([RESUME, TWINS], [RESUME], "inconclusive", "gone"),
    "new": ([RESUME], [RESUME, TWINS], "holds", "new"),
    "new and broken": ([TWINS], [TWINS, BROKEN], "broken", "a new check does not hold"),
    "nothing shared": ([RESUME], [TWINS], "empty", "the two results share no check"),
    "both empty": ([], [], "empty", "the two results share no check"),
    "a second of one name": ([RESUME, RESUME], [BROKEN, RESUME], "broken", "worse"),
    "still broken": ([BROKEN], [BROKEN], "holds", "no verdict got worse"),
}


@pytest.mark.parametrize("case", COMPARISONS)
def test_comparing_two_results_tells_what_changed(case, tmp_path, capsys):
    old, new, verdict, words = COMPARISONS[case]
    assert compare_verdicts(compare_records(old, new)) == verdict
    assert compared(tmp_path, old, new) == EXIT_CODES[verdict]
    assert words in capsys.readouterr().out


def test_other_surroundings_are_a_warning(tmp_path, capsys):
    other = ENVIRONMENT | {"versions": {"jax": "0.11.0", "torch": "2.13.0"}, "cpus": 4, "commit": "abc"}
    assert compared(tmp_path, [RESUME], [RESUME], other) == 0
    assert capsys.readouterr().err.splitlines() == [
        "parity: warning: the environments differ: cpus was 2, is 4",
        "parity: warning: the environments differ: versions.jax was 0.10.2, is 0.11.0",
    ]
    assert compare_environments(ENVIRONMENT, ENVIRONMENT) == []


def test_a_comparison_shows_no_markup_of_a_file(tmp_path, capsys):
    compared(tmp_path, [BARE], [BARE, replace(BARE, spec=HOSTILE, name="[red]x[/red]")])
    captured = capsys.readouterr()
    assert "[red]x[/red]" in captured.out
    assert "\x1b" not in captured.out


def test_benchmarks_are_compared_as_compare_does(tmp_path, capsys):
    old = bench_written(tmp_path / "old.json", benchmark("a", ratios={"r": ratio(1.0, 1.02)}))
    new = bench_written(
        tmp_path / "new.json", benchmark("a", ratios={"r": ratio(1.5, 1.02)}), machine={"cpu": {"brand_raw": "Other"}}
    )
    assert main(["report", "--compare", str(old), str(new)]) == 1
    captured = capsys.readouterr()
    assert main(["compare", str(old), str(new)]) == 1
    assert capsys.readouterr() == captured
    assert "the machines differ: cpu.brand_raw was CPU, is Other" in captured.err


def test_what_is_allowed_is_an_option_of_both_spellings(tmp_path, capsys):
    old = bench_written(tmp_path / "old.json", benchmark("a", ratios={"r": ratio(1.0, 1.02)}))
    new = bench_written(tmp_path / "new.json", benchmark("a", ratios={"r": ratio(1.1, 1.02)}))
    for command in (["report", "--compare"], ["compare"]):
        assert main([*command, str(old), str(new)]) == 1
        assert "worse by more than 5 %" in capsys.readouterr().out
        assert main([*command, str(old), str(new), "--fail-on", "ratio:20%"]) == 0
        assert "worse by more than 20 %" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["report", "--fail-on", "ratio:5%", "--compare"]])
def test_checks_are_not_judged_by_ratios(command, tmp_path, capsys):
    path = str(written(tmp_path / "c.json"))
    assert main([*command, path, path]) == 2
    assert "give two files of benchmarks, whose ratios are judged" in capsys.readouterr().err


def test_results_of_two_kinds_are_not_compared(tmp_path, capsys):
    checks, benchmarks = written(tmp_path / "c.json"), bench_written(tmp_path / "b.json")
    assert main(["report", "--compare", str(checks), str(benchmarks)]) == 2
    assert "holds checks" in (error := capsys.readouterr().err)
    assert "give two results of one kind" in error
