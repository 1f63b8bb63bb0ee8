"""`parity bench run` measures from an installed package; two of its files are what `parity compare` takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from parity.cli import main
from parity.spec import RunSpec, override

pytestmark = pytest.mark.takes_seconds

TINY = ["--set", "model.hidden=[8]", "--set", "batch=16", "--steps", "10", "--rounds", "3"]
RUN = ["bench", "run", "--side", "jax", *TINY]


def test_it_prints_speeds_and_a_ratio_and_writes_what_compare_and_report_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    assert main([*RUN, "-o", old]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"mlp-digits.* jax scan +[\d,.]+ +[\d.e-]+ s +[\d.e-]+ s to [\d.e-]+ s, 3 rounds", out)
    assert re.search(r"scan over loop: [\d.]+ times \(95 % interval [\d.]+ to [\d.]+\)", out)
    assert f"wrote {old}" in out
    assert "round 3 of 3" in err
    file = json.loads(Path(old).read_text())
    file["benchmarks"][0]["extra_info"]["ratios"]["scan over loop"] |= {"low": 1e-3, "q1": 1e-3, "median": 1e-3}
    file["benchmarks"][0]["extra_info"]["ratios"]["scan over loop"] |= {"q3": 1e-3, "high": 1e-3}
    Path(new).write_text(json.dumps(file))
    assert main(["compare", old, old]) == 0
    assert main(["compare", old, new]) == 1
    assert main(["report", old]) == 4
    assert "scan over loop" in capsys.readouterr().out


def test_one_way_alone_has_no_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--mode", "loop", "-o", str(tmp_path / "one.json")]) == 0
    assert "times" not in capsys.readouterr().out
    (entry,) = json.loads((tmp_path / "one.json").read_text())["benchmarks"]
    assert entry["extra_info"]["trains"]["mode"] == "loop"
    assert main(["compare", str(tmp_path / "one.json"), str(tmp_path / "one.json")]) == 5


def test_two_ways_that_do_other_work_are_one_line_and_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The planted fault: a loop over steps of another learning rate, which is no faster or slower and no twin."""
    from parity.twins.speed import measure

    usual = measure._in_mode

    def planted(spec: RunSpec, name: str, mode: str, steps: int) -> RunSpec:
        found = usual(spec, name, mode, steps)
        return override(found, ["optimizer.lr=0.5"]) if mode == "loop" else found

    monkeypatch.setattr(measure, "_in_mode", planted)
    assert main(RUN) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("parity: error: loop: has another lr than scan at step 1")


def test_without_a_compiler_it_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert main(["bench", "run", "--side", "torch", *TINY]) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[-1].startswith(
        "parity: error: execution.torch: 'compile' needs a C++ compiler on the CPU, and there is"
    )


def test_it_needs_nothing_of_a_checkout(tmp_path: Path) -> None:
    """No module of `benchmarks/` and nothing of pytest is imported; the core imports no framework."""
    code = (
        "import sys\n"
        "from parity.cli import main, make_parser\n"
        "make_parser()\n"
        "import parity.twins.speed\n"
        "assert not {'torch', 'jax'} & {*sys.modules}\n"
        f"assert main({[*RUN, '--mode', 'scan']!r}) == 0\n"
        "print(sorted({'pytest', 'pytest_benchmark', 'benchmarks', 'torch'} & {*sys.modules}))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "[]"
