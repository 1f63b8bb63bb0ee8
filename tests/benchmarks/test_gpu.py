"""`make bench-gpu`: figures of a CPU never stand under the name of a GPU."""

import pytest

from benchmarks import gpu
from tests.report.samples import bench_written, benchmark, ratio, written


def test_without_a_gpu_nothing_is_measured_and_the_page_stays(tmp_path, capsys):
    page, ran = tmp_path / "page.md", []
    page.write_text("as it was")
    code = gpu.main(["--page", str(page)], found=lambda: {"jax": "cpu", "torch": "cpu"}, run=ran.append)
    assert (code, ran, page.read_text()) == (4, [], "as it was")
    assert "no GPU here (jax: cpu, torch: cpu); nothing was measured" in capsys.readouterr().err


def test_the_platforms_are_those_of_the_sides():
    assert set(gpu.platforms()) == {"jax", "torch"}


@pytest.mark.parametrize("fails", [False, True])
def test_with_one_the_page_has_the_figures_and_says_what_made_it(tmp_path, fails):
    reports, page = tmp_path / "reports", tmp_path / "page.md"

    def run(words):
        if "check" in words:
            written(reports / "check.json")
            return 1
        speed = {"model": "gpt-text", "side": "torch", "mode": "eager"}
        figures = benchmark("a", steps_per_second=200.0, trains=speed), benchmark("b", ratios={"r": ratio(1.0, 1.02)})
        bench_written(reports / "bench.json", *figures)
        return 2 if fails else 0

    given = ["--reports", str(reports), "--page", str(page)]
    code = gpu.main(given, found=lambda: {"torch": "A GPU"}, run=run)
    assert (code, page.exists()) == ((2, False) if fails else (0, True))
    if not fails:
        assert "Made by `make bench-gpu`" in page.read_text()
        assert "| PyTorch eager | not measured | not measured | 200 (5 s) |" in page.read_text()
        assert (tmp_path / gpu.CHART).exists()
