"""The plugin in the test suites of others: what a check says, keeps and reports."""

import importlib.util
import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest

import parity as suite
from parity import checks, pytest_plugin  # noqa: F401 - loaded here, so that sessions within this process share them
from parity.checks.resume import ResumeBrokenError
from parity.results import CheckResult, read_result, schema
from tests.plugin.sources import CRASH, GREEN, RED, TRAINER

pytest_plugins = ["pytester"]
INLINE = "--parity-mode=inline"


def failure_of(test: str, lines: list[str]) -> list[str]:
    """Return what pytest shows of a failed test."""
    begin = next(at for at, line in enumerate(lines) if line.strip("_ ") == test and line.startswith("_"))
    rest = lines[begin + 1 :]
    return rest[: next((at for at, line in enumerate(rest) if line.startswith(("=====", "_____"))), len(rest))]


def message_of(test: str, lines: list[str]) -> list[str]:
    return [line for line in failure_of(test, lines) if line.startswith("E  ")]


def report_in(directory: Path) -> CheckResult:
    result = read_result(directory / "check.json")
    assert isinstance(result, CheckResult)
    jsonschema.validate(json.loads((directory / "check.json").read_text(encoding="utf-8")), schema())
    assert (directory / "index.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    return result


def test_a_red_check_says_what_was_lost_and_shows_nothing_of_the_suite(pytester):
    pytester.makepyfile(TRAINER + GREEN + RED)
    ran = pytester.runpytest_inprocess(INLINE)
    ran.assert_outcomes(passed=1, failed=1)
    shown, message = failure_of("test_red", ran.outlines), message_of("test_red", ran.outlines)
    assert "resume is broken: " in message[0]
    assert "lost: optimizer.momentum" in message[1]
    assert any("expected" in line for line in message)
    assert any("got" in line for line in message)
    assert len(message) <= 25
    assert not [line for line in shown if "parity/checks" in line or "pytest_plugin/" in line]


@pytest.mark.parametrize("style", ["long", "short", "native"])
def test_a_function_that_cannot_be_judged_is_one_error_without_frames_of_the_suite(pytester, style):
    pytester.makepyfile(TRAINER + CRASH)
    ran = pytester.runpytest_inprocess(INLINE, f"--tb={style}")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["*TrainerError: nothing was saved in the folder before step 6*"])
    assert "parity/checks" not in ran.stdout.str()
    assert "parity/checks" in pytester.runpytest_inprocess(INLINE, "--full-trace").stdout.str()


def test_the_message_has_25_lines_where_the_function_fails_as_it_is_resumed(pytester):
    pytester.makepyfile("""
        def deep(count):
            if count:
                deep(count - 1)
            raise ValueError("weight\\n" * 60 + "is missing")

        def train(folder):
            total = 0.0
            if (folder / "state").exists():
                deep(40)
            for step in range(9):
                yield step
                total += 1.5
                (folder / "state").write_text(str(total))

        def test_red(parity):
            parity.resumes(train, steps=9)
    """)
    ran = pytester.runpytest_inprocess(INLINE)
    ran.assert_outcomes(failed=1)
    message = message_of("test_red", ran.outlines)
    assert any("got       is missing" in line for line in message)
    assert len(message) == 25


def test_settings_of_a_call_go_before_its_marker_then_the_option_then_the_ini_file(pytester):
    pytester.makeini("[pytest]\nparity_scenarios = again\nparity_mode = inline\n")
    pytester.makepyfile(
        TRAINER
        + """
@pytest.mark.parity(scenarios="third")
class TestMarked:
    def test_class(self, parity):
        assert parity.resumes(train, steps=9, stop_at=6).scenarios == ("third",)

    @pytest.mark.parity(scenarios=["kill"])
    def test_nearest(self, parity):
        assert parity.resumes(train, steps=9, stop_at=6).scenarios == ("kill",)

    def test_call(self, parity):
        assert parity.resumes(train, steps=9, stop_at=6, scenarios="kill,again").scenarios == ("kill", "again")

def test_default(parity, pytestconfig):
    found = parity.resumes(train, steps=9, stop_at=6)
    assert found.mode == "inline"
    assert found.scenarios == (pytestconfig.option.parity_scenarios or "again",)
    assert found.name.endswith("::test_default")
"""
    )
    pytester.runpytest_inprocess("--strict-markers", "--strict-config").assert_outcomes(passed=4)
    pytester.runpytest_inprocess("--parity-scenarios=first-save").assert_outcomes(passed=4)


def test_without_a_setting_the_quick_scenarios_are_driven_in_processes(pytester):
    pytester.makepyfile(
        TRAINER
        + """
def test_default(parity):
    found = parity.resumes(train, steps=9, stop_at=6)
    assert (found.mode, found.scenarios) == ("process", ("kill", "again", "third", "intervals"))
"""
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "given"),
    [("'all'", "'all'"), ("scenario='all'", "scenario"), ("scenarios='all', mode='inline', x=1", "x")],
)
def test_a_marker_that_cannot_be_used_is_an_error(pytester, marker, given):
    pytester.makepyfile(TRAINER + f"@pytest.mark.parity({marker})" + GREEN)
    ran = pytester.runpytest_inprocess(INLINE)
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines([f"*the marker parity takes scenarios=... and mode=..., got *{given}*"])


@pytest.mark.parametrize(
    ("ini", "options", "complaint"),
    [
        ("parity_mode = fast", [], "*parity_mode must be auto, process, inline, got 'fast'*"),
        ("", ["--parity-mode=fast"], "*--parity-mode: invalid choice: 'fast'*"),
        ("", ["--parity-report=taken"], "*--parity-report: taken is no directory*"),
        ("parity_report = taken", [], "*--parity-report: *taken is no directory*"),
        ("", ["--parity-repro=taken"], "*--parity-repro: taken is no directory*"),
    ],
)
def test_a_setting_that_cannot_be_used_ends_pytest_at_once(pytester, ini, options, complaint):
    pytester.makeini(f"[pytest]\n{ini}\n")
    pytester.makepyfile("def test_nothing():\n    pass\n")
    Path("taken").touch()
    ran = pytester.runpytest_inprocess(*options)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines([complaint])


def test_an_unknown_scenario_names_those_that_there_are(pytester):
    pytester.makepyfile(TRAINER + GREEN)
    ran = pytester.runpytest_inprocess(INLINE, "--parity-scenarios=kil")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(["*unknown scenario 'kil'*kill*"])


def test_the_report_has_every_check_that_was_run_also_one_that_crashed_and_one_of_a_fixture(pytester):
    early = "@pytest.fixture\ndef early(parity):\n    parity.resumes(train, steps=9, stop_at=6, name='early')\n\n"
    pytester.makepyfile(TRAINER + early + GREEN + RED + CRASH + "def test_early(early):\n    pass\n")
    ran = pytester.runpytest_inprocess(INLINE, "--parity-report=out/report")
    ran.assert_outcomes(passed=2, failed=2)
    result = report_in(pytester.path / "out" / "report")
    found = {record.spec.rpartition("::")[2]: record for record in result.records}
    assert {name: record.verdict for name, record in found.items()} == {
        "test_green": "holds", "test_red": "broken", "test_crash": "crashed", "early": "holds"
    }  # fmt: skip
    assert found["test_red"].suspects[0] == "optimizer.momentum"
    assert found["test_crash"].notes[0].startswith("TrainerError: nothing was saved")
    assert result.environment["command"].startswith("pytest ")
    ran.stdout.fnmatch_lines([f"4 checks, crashed: {pytester.path}/out/report/index.html"])


def test_a_report_of_no_check_says_so_and_the_ini_file_may_ask_for_it(pytester):
    pytester.makeini("[pytest]\nparity_report = kept\n")
    pytester.makepyfile("def test_nothing():\n    pass\n")
    pytester.runpytest_inprocess("--collect-only")
    assert not (pytester.path / "kept").exists()
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    assert report_in(pytester.path / "kept").verdict == "empty"


def test_the_figures_are_properties_in_the_junit_file(pytester):
    pytester.makepyfile(TRAINER + GREEN + RED + CRASH)
    pytester.runpytest_inprocess(INLINE, "--junitxml=junit.xml")
    found = {
        case.attrib["name"]: {one.attrib["name"]: one.attrib["value"] for one in case.iter("property")}
        for case in ET.parse(pytester.path / "junit.xml").iter("testcase")
    }
    assert found["test_crash"] == {"parity_verdict": "crashed"}
    green, red = found["test_green"], found["test_red"]
    assert list(green) == [f"parity_{n}" for n in ("verdict", "seconds", "compared", "leaves", "components")]
    assert (green["parity_verdict"], green["parity_components"]) == ("holds", "")
    assert (red["parity_verdict"], red["parity_components"].partition(",")[0]) == ("broken", "optimizer.momentum")
    assert float(green["parity_seconds"]) > 0
    assert int(green["parity_compared"]) > 3
    assert int(green["parity_leaves"]) > 3


def test_what_workers_of_xdist_found_reaches_the_report(pytester):
    several = GREEN.replace("def ", "@pytest.mark.parametrize('n', range(3))\ndef ").replace(
        "(parity)", "(parity, n)"
    )
    pytester.makepyfile(TRAINER + several + RED + "def test_curve(parity):\n    parity.curve('c', [1.0])\n")
    options = ("--parity-report=report", "--parity-repro=repro", "--parity-update", "--junitxml=junit.xml")
    ran = pytester.runpytest_subprocess("-n2", INLINE, *options)
    ran.assert_outcomes(passed=4, failed=1)
    assert sorted(r.verdict for r in report_in(pytester.path / "report").records) == ["broken", *["holds"] * 3]
    (repro,) = (pytester.path / "repro").iterdir()
    ran.stdout.fnmatch_lines([f"to run it again: python {repro}/repro.py", "4 checks, broken: *"])
    ran.stdout.fnmatch_lines(["baseline written, nothing compared: *c.json"])
    assert (pytester.path / "junit.xml").read_text(encoding="utf-8").count('name="parity_verdict"') == 4


def test_a_repro_directory_has_what_it_takes_and_is_red_again_elsewhere(pytester):
    pytester.makepyfile(TRAINER + GREEN + RED)
    ran = pytester.runpytest_inprocess(INLINE, "--parity-repro=repro")
    (repro,) = (pytester.path / "repro").iterdir()
    assert f"to run it again: python {repro}/repro.py" in failure_of("test_red", ran.outlines)
    assert sorted(path.name for path in repro.iterdir()) == [
        "folder", "repro.py", "requirements.txt", "source.py", "verdict.json", "verdict.txt"
    ]  # fmt: skip
    assert [path.name for path in (repro / "folder").iterdir()] == ["state.npz"]
    kept = json.loads((repro / "verdict.json").read_text(encoding="utf-8"))
    assert kept["verdict"] == "broken"
    assert kept["resumption"]["suspects"][0]["component"] == "optimizer.momentum"
    assert kept["environment"]["versions"]["numpy"]
    assert "optimizer.momentum" in (repro / "verdict.txt").read_text(encoding="utf-8")
    assert any(line.startswith("numpy==") for line in (repro / "requirements.txt").read_text("utf-8").splitlines())

    elsewhere = pytester.path.with_name(f"{pytester.path.name}-elsewhere")
    shutil.copytree(repro, elsewhere)
    here = run_again(repro / "repro.py")
    assert here.stdout.splitlines()[0] == f"checking train of {next(pytester.path.glob('test_*.py'))}"
    shutil.rmtree(repro)
    there = run_again(elsewhere / "repro.py", str(elsewhere / "no repository"))
    for again in (here, there):
        assert again.returncode == 1, again.stderr
        assert "lost: optimizer.momentum" in again.stdout


def run_again(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=False, timeout=300
    )


def test_the_test_itself_runs_again_where_its_function_is_made_in_it(pytester):
    pytester.makepyfile(TRAINER + RED.replace("(train,", "(lambda folder, **options: train(folder, **options),"))
    pytester.runpytest_inprocess(INLINE, "--parity-repro=repro").assert_outcomes(failed=1)
    (repro,) = (pytester.path / "repro").iterdir()
    assert not (repro / "source.py").exists()
    again = run_again(repro / "repro.py")
    assert again.returncode == 1
    assert "lost: optimizer.momentum" in again.stdout


def test_a_second_red_check_of_a_test_and_names_that_look_alike_keep_directories_of_their_own(pytester):
    body = "    with pytest.raises(AssertionError):\n    " + RED.strip().splitlines()[1] + "\n"
    pytester.makepyfile(
        TRAINER + f"@pytest.mark.parametrize('n', ['a/b', 'a-b'])\ndef test_red(parity, n):\n{body}{body}"
    )
    for _ in range(2):  # what an earlier session left is replaced
        pytester.runpytest_inprocess(INLINE, "--parity-repro=repro").assert_outcomes(passed=2)
        assert len(list((pytester.path / "repro").iterdir())) == 4


def test_without_the_plugin_nothing_of_it_is_there(pytester):
    pytester.makepyfile("import sys\ndef test_nothing():\n    assert 'parity' not in sys.modules\n")
    pytester.runpytest_subprocess("-p", "no:parity").assert_outcomes(passed=1)
    pytester.makepyfile(test_uses="def test_uses(parity):\n    pass\n")
    ran = pytester.runpytest_subprocess("-p", "no:parity", "test_uses.py")
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["*fixture 'parity' not found*"])
    assert "--parity-report" not in pytester.runpytest_subprocess("-p", "no:parity", "--help").stdout.str()


def test_it_loads_no_framework_and_little_else_until_a_check_runs(pytester):
    pytester.makeconftest("""
        import sys

        def pytest_unconfigure(config):
            print("loaded", *sorted(name for name in sys.modules if name.split(".")[0] in
                  ("parity", "jax_side", "torch_side", "jax", "jaxlib", "torch", "numpy", "flax", "rich", "xxhash")))
    """)
    pytester.makepyfile("def test_nothing(parity):\n    pass\n")
    options = ("--parity-repro=out", "--parity-scenarios=all", INLINE)
    ran = pytester.runpytest_subprocess(*options, "-s", "-p", "no:jaxtyping")  # equinox's, which loads NumPy
    ran.assert_outcomes(passed=1)
    assert ran.outlines[-1] == "loaded parity parity.pytest_plugin parity.pytest_plugin.checker"


def test_the_fixture_has_the_mark_and_the_plugin_is_declared(pytester, parity):
    assert parity.mark is suite.mark
    ran = pytester.runpytest_inprocess("--markers")
    ran.stdout.fnmatch_lines(["@pytest.mark.parity(scenarios=..., mode=...): *"])
    assert importlib.util.find_spec("parity.pytest_plugin") is not None
    assert issubclass(ResumeBrokenError, AssertionError)
