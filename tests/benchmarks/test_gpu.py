"""`make bench-gpu`: figures of a CPU never stand under the name of a GPU."""

import json

import pytest

from benchmarks import gpu
from tests.report.samples import ENVIRONMENT, bench_written, benchmark, ratio, written


def test_without_a_gpu_nothing_is_measured_and_the_page_stays(tmp_path, capsys):
    page, ran = tmp_path / "page.md", []
    page.write_text("as it was")
    code = gpu.main(["--page", str(page)], found=lambda: {"jax": "cpu", "torch": "cpu"}, run=ran.append)
    assert (code, ran, page.read_text()) == (4, [], "as it was")
    assert "no GPU here (jax: cpu, torch: cpu); nothing was measured" in capsys.readouterr().err


def test_the_platforms_are_those_of_the_sides():
    assert set(gpu.platforms()) == {"jax", "torch"}


def run_of(devices, fails=""):
    """Return what writes the results of commands as they would on such a device."""

    def run(command):
        command.result.parent.mkdir(parents=True, exist_ok=True)
        if "check" in command.words:
            written(command.result)
            return 1
        speed = {"model": "gpt-text", "side": "torch", "mode": "eager"}
        figures = benchmark("a", steps_per_second=200.0, trains=speed), benchmark("b", ratios={"r": ratio(1.0, 1.02)})
        bench_written(command.result, *(figures if "speed" in command.result.name else figures[1:]))
        document = json.loads(command.result.read_text())
        document["machine_info"] |= {"torch": {"devices": [devices]}, "jax": {"devices": [devices]}}
        command.result.write_text(json.dumps(document))
        return 2 if fails and fails in command.result.name else 0

    return run


@pytest.mark.parametrize("fails", ["", "speed", "saves"])
def test_with_one_the_page_has_the_figures_and_says_what_made_it(tmp_path, fails):
    given = ["--reports", str(tmp_path / "reports"), "--page", str(tmp_path / "page.md")]
    page = tmp_path / "page.md"
    code = gpu.main(given, found=lambda: {"torch": "A GPU"}, run=run_of("A GPU", fails))
    assert (code, page.exists()) == ((2, False) if fails else (0, True))
    if not fails:
        assert "Made by `make bench-gpu`" in page.read_text()
        assert "| PyTorch eager | not measured | not measured | 200 (5 s) |" in page.read_text()
        assert page.read_text().count("| resume |") >= len(gpu.MATRIX)
        assert (tmp_path / gpu.CHART).exists()


@pytest.mark.parametrize("devices", ["cpu", "A GPU"])
def test_a_page_of_results_that_are_there_needs_those_of_a_gpu(tmp_path, capsys, devices):
    reports, page = tmp_path / "reports", tmp_path / "page.md"
    for command in [*gpu.checks(reports), *gpu.benchmarks(reports)]:
        run_of(devices)(command)
    code = gpu.main(["--reports", str(reports), "--page", str(page), "--page-only"], run=pytest.fail)
    assert (code, page.exists()) == ((4, False) if devices == "cpu" else (0, True))
    assert ("measured without a GPU" in capsys.readouterr().err) == (devices == "cpu")


def test_checks_of_other_code_are_not_joined(tmp_path, capsys):
    reports, page = tmp_path / "reports", tmp_path / "page.md"
    first, *_ = made = [*gpu.checks(reports), *gpu.benchmarks(reports)]
    for command in made:
        run_of("A GPU")(command)
    document = json.loads(first.result.read_text())
    assert document["environment"]["versions"] == ENVIRONMENT["versions"]
    document["environment"]["versions"]["torch"] = "2.11.0"
    first.result.write_text(json.dumps(document))
    assert gpu.main(["--reports", str(reports), "--page", str(page), "--page-only"]) == 2
    assert not page.exists()
    assert "the checks are not of one environment: versions differ" in capsys.readouterr().err


def test_quick_is_a_part_of_all():
    whole, quick = (gpu.benchmarks(gpu.PAGE, quick=quick) for quick in (False, True))
    assert [command.result for command in whole] == [command.result for command in quick]
    assert all("PARITY_BENCH_MOST_TIMES" in command.environment for command in quick)
    assert not any("PARITY_BENCH_MOST_TIMES" in command.environment for command in whole)


def test_a_page_of_nothing_is_not_written(tmp_path, capsys):
    page = tmp_path / "page.md"
    assert gpu.main(["--reports", str(tmp_path / "none"), "--page", str(page), "--page-only"], run=pytest.fail) == 4
    assert not page.exists()
    assert "no checks and figures" in capsys.readouterr().err
