"""`make results`: the page and the README's figures come from a result; without its markers nothing is written."""

import json

import pytest

from benchmarks.results import BEGIN, CHART, END, chart_fits, main, readme_block, replaced
from parity.errors import ResultError
from tests.report.samples import ALL, bench_written, benchmark, ratio, written

README = f"# parity\n\nbefore\n\n{BEGIN}\nan earlier table\n{END}\n\nafter\n"


@pytest.fixture
def made(tmp_path):
    """Return the arguments that write below a directory."""
    (tmp_path / "README.md").write_text(README)
    check = written(tmp_path / "check.json")
    return [str(check), "--page", str(tmp_path / "results.md"), "--readme", str(tmp_path / "README.md")]


def test_the_figures_of_the_readme_are_replaced_and_nothing_else(made, tmp_path):
    assert main(made) == 0
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("# parity\n\nbefore\n\n")
    assert text.endswith("\n\nafter\n")
    assert "an earlier table" not in text
    assert text == replaced(README, readme_block((tmp_path / "results.md").read_text()), "README.md")
    assert "- **Checks** ✗ broken. 5 checks in" in text
    assert "1 broken, 4 holds." in text


def test_making_it_again_changes_nothing(made, tmp_path):
    main(made)
    first = (tmp_path / "README.md").read_text(), (tmp_path / "results.md").read_text()
    main(made)
    assert ((tmp_path / "README.md").read_text(), (tmp_path / "results.md").read_text()) == first


def test_the_page_names_the_command_and_holds_checks_and_benchmarks(made, tmp_path):
    bench = bench_written(tmp_path / "b.json", benchmark("a", ratios={"r": ratio(1.0, 1.02)}))
    assert main([*made, "--bench", str(bench), "--bench", str(tmp_path / "absent.json")]) == 0
    page = (tmp_path / "results.md").read_text()
    assert "Made by `make results`" in page
    assert "parity check: broken" in page
    assert "## Other benchmarks: 1 met" in page
    assert "Of 1 ratios with a bar, 1 meet it and 0 miss it; 0 are undecided" in page
    assert "versions.jax" in page
    assert "| platform |" not in page, "the build of a kernel says nothing about the result"
    assert page.count("| --- |") >= len(ALL) // 2


def test_steps_per_second_stand_on_the_page_in_the_readme_and_as_a_chart(made, tmp_path):
    speed = {"model": "gpt-text", "side": "torch", "mode": "compiled"}
    arms = [benchmark("a", steps_per_second=200.0, trains=speed), benchmark("b", ratios={"r": ratio(1.0, 1.02)})]
    bench = bench_written(tmp_path / "b.json", *arms)
    old = benchmark("a", steps_per_second=100.0, trains=speed)
    before = bench_written(tmp_path / "old.json", old)
    assert main([*made, "--bench", str(bench), "--before", str(before)]) == 0
    page, readme = (tmp_path / "results.md").read_text(), (tmp_path / "README.md").read_text()
    row = "| PyTorch compiled | not measured | not measured | 200 (5 s, before 100) |"
    assert page.count(row) == 1
    assert page.index(row) < page.index("parity check:") < page.index("## Other benchmarks")
    assert f"]({CHART})" in page
    assert f"](docs/{CHART})" in readme
    chart = (tmp_path / CHART).read_text()
    assert chart_fits(page, chart)
    assert not chart_fits(page, chart.replace("200", "201"))
    assert not chart_fits(page, None)


def test_what_was_not_measured_is_said_and_an_earlier_chart_is_removed(made, tmp_path):
    (tmp_path / CHART).write_text("earlier")
    assert main(made) == 0
    page = (tmp_path / "results.md").read_text()
    assert "Steps per second: not measured; `make bench` measures them." in page
    assert f"]({CHART})" not in (tmp_path / "README.md").read_text()
    assert not (tmp_path / CHART).exists()
    assert chart_fits(page, None)
    assert not chart_fits(page, "earlier")


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_readme_without_the_markers_is_an_error(text, made, tmp_path, capsys):
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(ResultError, match="once each and in this order"):
        replaced(text, "x", "README.md")
    assert main(made) == 2
    assert "needs the lines" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == text
    assert not (tmp_path / "results.md").exists()


def test_a_readme_that_is_not_there_is_an_error(made, tmp_path, capsys):
    (tmp_path / "README.md").unlink()
    assert main(made) == 2
    assert "README.md" in capsys.readouterr().err
    assert not (tmp_path / "results.md").exists()


@pytest.mark.parametrize(("dirty", "words"), [(True, "commit abc with uncommitted changes;"), (False, "commit abc;")])
def test_uncommitted_changes_are_told(dirty, words, made, tmp_path):
    path = written(tmp_path / "check.json")
    value = json.loads(path.read_text())
    value["environment"] |= {"commit": "abc", "dirty": dirty}
    path.write_text(json.dumps(value))
    main(made)
    assert words in (tmp_path / "results.md").read_text()


def test_benchmarks_in_the_place_of_checks_are_an_error(made, tmp_path, capsys):
    bench = bench_written(tmp_path / "b.json", benchmark("a"))
    assert main([str(bench), *made[1:]]) == 2
    assert "must be a result of `parity check`" in capsys.readouterr().err
    assert main([*made, "--bench", made[0]]) == 2
    assert "holds checks, not benchmarks" in capsys.readouterr().err
