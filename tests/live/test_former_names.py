"""The former name of scenarios, `roads`, is still taken wherever it was."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import parity
from parity.cli.main import main

pytest_plugins = ["pytester"]


def train(folder: Path) -> Iterator[int]:
    w, start, file = np.full(2, 3.0), 0, folder / "state.npz"
    if file.exists():
        with np.load(file) as saved:
            w, start = saved["w"], int(saved["step"])
    for step in range(start, 8):
        yield step
        w = w * 0.9
        np.savez(file, w=w, step=step + 1)


def test_the_check_takes_it_and_the_verdict_gives_it() -> None:
    found = parity.resumes(train, steps=8, stop_at=5, mode="inline", roads="third")
    assert found.roads == found.scenarios == ("third",)
    with pytest.raises(ValueError, match="unknown scenario 'thrid'; did you mean third"):
        parity.resumes(train, steps=8, stop_at=5, mode="inline", roads="thrid")


def test_the_command_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "resume", "--spec", "mlp-digits", "--roads", "nowhere"]) == 2
    assert "unknown scenario 'nowhere'" in capsys.readouterr().err


def test_marker_option_and_ini_file_take_it(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nparity_roads = again\nparity_mode = inline\n")
    pytester.makepyfile(
        f"""
        import pytest, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_former_names import train

        @pytest.mark.parity(roads="third")
        def test_marker(parity):
            assert parity.resumes(train, steps=8, stop_at=5).scenarios == ("third",)

        def test_call(parity):
            assert parity.resumes(train, steps=8, stop_at=5, roads="kill").scenarios == ("kill",)

        def test_ini(parity, pytestconfig):
            expected = pytestconfig.option.parity_scenarios or "again"
            assert parity.resumes(train, steps=8, stop_at=5).scenarios == (expected,)
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=3)
    pytester.runpytest_inprocess("--parity-roads=first-save").assert_outcomes(passed=3)


def test_names_that_moved_out_of_the_contract_are_given_there() -> None:
    from parity import contract, state

    assert contract.GroupRule is state.GroupRule
    assert not hasattr(contract, "Nothing")
