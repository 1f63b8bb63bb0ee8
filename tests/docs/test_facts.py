"""What the tables of the pages say of the code is so; so are the samples, the exit codes and the examples."""

import errno
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from parity.checkpoints import Seal, seal_text
from parity.checkpoints.seal import SCHEMAS as SEAL_SCHEMAS
from parity.checks.criteria import FLOAT64_LIMIT
from parity.cli import make_parser
from parity.results import EXIT_CODES
from parity.results.documents import SCHEMA as CHECK_SCHEMA
from parity.runs import DEADLINE_SECONDS, RunDirectory
from parity.spec import load, preset
from parity.state import SCHEMA as DIGEST_SCHEMA
from parity.storage import digests as digest
from parity.storage import untrusted
from tests.docs import pages
from tests.docs.pages import ROOT, expect_failure, words
from tests.docs.sources import codes, constants, one
from tests.storage.disk import FAULTS

SIDES = 2
CODES = {**{verdict: str(code) for verdict, code in EXIT_CODES.items()}, "usage": "2"}


# docs/commands.md


def test_the_columns_of_the_table_of_checks_are_explained():
    explained = pages.table("docs/commands.md", "column", "meaning")
    named = [name for cell in explained.column("column") for name in cell.split(", ")]
    heads = pages.table("docs/results.md", "check", "spec").head
    assert sorted(named) == sorted({*named} & {*heads})
    meaning = dict(explained.rows)
    assert set(codes(meaning["verdict"])) < set(EXIT_CODES)
    assert float(one(r"`float64`: ([\d.e-]+) relative", meaning["criterion"])) == FLOAT64_LIMIT
    assert codes(meaning["check, sides"]) == ["policy", "resume", "twins", "handover", "topology"]


def test_the_exit_codes_of_the_page_are_those_of_the_commands():
    sentence = one(r"Exit codes, everywhere: (.*?)\. 2 is every", words(pages.read("docs/commands.md")))
    found = dict(re.findall(r"(\d) ([a-z ]+)", sentence))
    assert found == {code: {"empty": "nothing compared"}.get(name, name) for name, code in CODES.items()}


@pytest.mark.parametrize(
    "page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/checkpoints.md", "docs/commands.md"]
)
def test_every_file_that_a_page_links_is_there(page):
    links = re.findall(r"\]\((?!http)([^)#]+)", pages.read(page))
    assert links
    assert [link for link in links if not (ROOT / Path(page).parent / link).exists()] == []


# README.md


def is_short(text: str) -> bool:
    """Tell whether a front page is read in five minutes: below 1,200 words, as `wc -w` counts them."""
    return len(text.split()) < 1200


def test_the_front_page_is_short():
    front = pages.read("README.md")
    assert is_short(front)
    assert not is_short(front + " word" * (1200 - len(front.split())))


# ARCHITECTURE.md and CONTRIBUTING.md


def test_the_dependencies_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {extra: names_of(lines) for extra, lines in project["optional-dependencies"].items() if extra != "all"}
    wanted[""] = names_of(project["dependencies"])
    found: dict[str, set[str]] = {}
    for cell in pages.table("ARCHITECTURE.md", "what", "why").column("what"):
        for part in cell.split(";"):
            names, _, extra = part.partition("(extra ")
            found.setdefault(extra.strip("` )"), set()).update(name.strip() for name in names.split(","))
    assert found == wanted
    reasons = dict(pages.table("ARCHITECTURE.md", "what", "why").rows)
    assert f"wandb>={one(r'([0-9.]+) is the first', reasons['wandb (extra `wandb`)'])},<1" in str(project)


def names_of(lines: list[str]) -> set[str]:
    return {re.match(r"[\w-]+", line)[0] for line in lines if not line.startswith("parity-suite[")}


def test_the_commands_for_contributors_exist():
    commands = dict(pages.table("CONTRIBUTING.md", "wish", "command").rows)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(one(r"\.PHONY: (.*)", makefile).split())
    named = [code for row in commands.items() for cell in row for code in codes(cell)]
    assert {name.split()[1] for name in named if name.startswith("make ")} == targets - {"packages", "clean"}
    assert all((ROOT / path).exists() for path in re.findall(r"(?:pytest|bash) ([\w./]+)", " ".join(named)))
    crashes = 10 * sum(constants("tests/crash/test_crash_states.py")["ENOUGH"].values())
    (wish,) = (wish for wish, command in commands.items() if "`make soak`" in command)
    assert f"; {kills_of_soak()} kills, {crashes:,} crashes," in wish


def kills_of_soak() -> int:
    """Return how often `make soak` kills a run at random."""
    text = (ROOT / "tests/soak/test_random_kills.py").read_text(encoding="utf-8")
    first, behind = map(int, re.search(r'"seed", range\((\d+), (\d+)\)', text).groups())
    return SIDES * (behind - first) * int(one(r"kills=(\d+)", text))


def test_the_errors_that_are_shown_are_those_that_are_raised():
    page = pages.read("CONTRIBUTING.md")
    shown = one(r"(?s)An error says what.*?```\n(.*?)\n```", page).splitlines()
    with pytest.raises(ValueError, match=r"mesh\.data") as first:
        load("mlp-digits", None, ["mesh.data=3"])
    with pytest.raises(ValueError, match="unknown preset") as second:
        preset("mlp")
    assert shown == [str(first.value), str(second.value)]


def test_the_samples_of_style_are_code_of_this_project():
    samples = re.findall(r"```python\n(.*?)\n```", pages.read("CONTRIBUTING.md"), re.DOTALL)
    packages = ("parity", "jax_side", "torch_side", "tests")
    sources = [path.read_text(encoding="utf-8") for name in packages for path in (ROOT / name).rglob("*.py")]
    assert len(samples) == 3
    assert [sample for sample in samples if not any(sample in source for source in sources)] == []


# docs/checkpoints.md


def test_the_fields_of_the_seal_are_those_that_are_written():
    cells = pages.table("docs/checkpoints.md", "field", "what").column("field")
    shown = [name for cell in cells for name in codes(cell)]
    sealed = seal_text(Seal(step=1, metric=None, saved_at=0.0, side="torch", spec_hash=""))
    written = re.findall(r'^ "(\w+)":', sealed, re.MULTILINE)
    assert sorted(shown) == sorted(set(written) - {"schema", "algorithm"})


def test_what_goes_wrong_ends_as_the_page_says():
    happens = dict(pages.table("docs/checkpoints.md", "what goes wrong", "what happens").rows)
    save = happens["a save fails (full disk, I/O error)"]
    assert set(re.findall(r"exit (\d)|exits with (\d)", save)) == {(CODES["crashed"], ""), ("", CODES["crashed"])}
    assert f"`--deadline` ({DEADLINE_SECONDS:g} s)" in happens["SIGTERM, SIGINT, SIGHUP"]
    assert f"exit {CODES['usage']}." in happens["a second process on the same run"]


def test_the_limits_of_untrusted_files_are_those_of_the_code():
    refused = dict(pages.table("docs/checkpoints.md", "of", "what is refused").rows)["any"]
    assert f"over {untrusted.MAX_BYTES >> 20} MiB" in refused
    assert f"more than {digest.MAX_DEPTH} levels or a million files" in refused
    assert digest.MAX_FILES == 1_000_000


def test_what_is_proved_is_tested_as_often_as_the_page_says():
    proved = pages.table("docs/checkpoints.md", "claim", "test", "cases")
    for cell in proved.column("test"):
        folder = Path()
        for path in codes(cell):
            folder = Path(path).parent if "/" in path else folder
            assert (ROOT / folder / Path(path).name).exists() or (ROOT / path).is_dir(), path
    cases = dict(zip(proved.column("claim"), proved.column("cases"), strict=True))
    catalogue = (ROOT / "tests/hostile/test_catalogue.py").read_text(encoding="utf-8")
    crashes = (ROOT / "tests/crash/test_crash_states.py").read_text(encoding="utf-8")
    apart = SIDES * int(one(r"found\.apart > ([\d_]+)", crashes))
    kills = SIDES * constants("tests/storage/test_random_kills.py")["KILLS"]
    failures = {errno.errorcode[fault.error] for fault in FAULTS.values()}
    assert failures == {"ENOSPC", "EIO", "EROFS"}
    assert {fault.persistent for fault in FAULTS.values()} == {True, False}
    for claim, words_of_it in {
        "hostile files run nothing": f"over {one(r'len.refused. >= (.*)', catalogue)}",
        "every crash leaves": f"over {apart:,} distinct directories, each",
        "the n-th file operation": "ENOSPC, EIO, EROFS; once and from then on",
        "SIGKILL": f"{kills}; {kills_of_soak()} in `make soak`",
        "two writers": f"{constants('tests/storage/test_two_writers.py')['RACES']} races",
    }.items():
        (cell,) = (cell for name, cell in cases.items() if name.startswith(claim))
        assert cell.startswith(words_of_it), claim


# docs/versions.md


def test_the_schemas_are_those_that_are_written_and_read():
    shown = {
        cell: (now, codes(read)) for cell, now, read in pages.table("docs/versions.md", "file", "schema now").rows
    }
    assert shown == {
        "`checkpoints/<step>/seal.json`": (f"`parity.seal/{DIGEST_SCHEMA}`", list(SEAL_SCHEMAS)),
        "`check.json`": (f"`{CHECK_SCHEMA}`", [CHECK_SCHEMA]),
    }


# docs/policy.md


def test_the_fields_of_the_policy_have_these_defaults():
    shown = pages.table("docs/policy.md", "field of the spec", "default")
    spec = load("mlp-digits")
    for name, default in zip(shown.column("field of the spec"), shown.column("default"), strict=True):
        value: Any = spec
        for part in codes(name)[0].split("."):
            value = getattr(value, part)
        assert default.strip('`"') == str(value), name


def test_the_names_of_a_run_directory_are_those_in_use():
    shown = pages.table("docs/policy.md", "name in the run directory", "what it is")
    run = RunDirectory(Path("run"))
    assert (run.checkpoints.name, run.metrics.name) == ("checkpoints", "metrics.jsonl")
    files = ("parity/runs/directory.py", "parity/checkpoints/pointers.py", "parity/checkpoints/store.py")
    source = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    for name in (name for row in shown.rows for name in codes(row[0])):
        stem = name.partition("/")[0].removesuffix(".json")
        assert f'"{stem}' in source, name


def test_the_commands_of_the_policy_exist():
    for (command,) in map(codes, pages.table("docs/policy.md", "command", "what it does").column("command")):
        words_of_it = {"STEP": "10", "VALUE": "0.5", "...": ""}
        asked = [words_of_it.get(word, word) for word in command.split()[1:]]
        assert make_parser().parse_args([word for word in asked if word]).run, command


PLANTS = {
    test_the_columns_of_the_table_of_checks_are_explained: [
        ("docs/commands.md", "`float64`: 1e-12 relative", "`float64`: 1e-11 relative"),
        ("docs/commands.md", "| x envelope | the", "| envelope | the"),
        ("docs/commands.md", "`crashed`; `inc", "`dead`; `inc"),
    ],
    test_the_exit_codes_of_the_page_are_those_of_the_commands: [
        ("docs/commands.md", "3 crashed, 4", "4 crashed, 4"),
    ],
    test_the_dependencies_are_those_of_the_package: [
        ("ARCHITECTURE.md", "tensorboard, crc32c (", "tensorboard ("),
        ("ARCHITECTURE.md", "0.31 is the first", "0.30 is the first"),
        ("ARCHITECTURE.md", "| numpy | arrays", "| numpy, scipy | arrays"),
    ],
    test_the_commands_for_contributors_exist: [
        ("CONTRIBUTING.md", "`make types`", "`make mypy`"),
        ("CONTRIBUTING.md", "500 kills", "600 kills"),
        ("CONTRIBUTING.md", "120,000 crashes", "100,000 crashes"),
    ],
    test_the_errors_that_are_shown_are_those_that_are_raised: [
        ("CONTRIBUTING.md", "devices leaves 1", "devices leave 1"),
    ],
    test_the_samples_of_style_are_code_of_this_project: [
        ("CONTRIBUTING.md", "every: int = 100", "every: int = 50"),
    ],
    test_the_fields_of_the_seal_are_those_that_are_written: [
        ("docs/checkpoints.md", "| `self` |", "| `own` |"),
        ("docs/checkpoints.md", "`step`, `metric`, ", "`step`, "),
    ],
    test_what_goes_wrong_ends_as_the_page_says: [
        ("docs/checkpoints.md", "`--deadline` (60 s)", "`--deadline` (30 s)"),
        ("docs/checkpoints.md", "and exits with 3 at", "and exits with 1 at"),
    ],
    test_the_limits_of_untrusted_files_are_those_of_the_code: [
        ("docs/checkpoints.md", "16 levels", "32 levels"),
        ("docs/checkpoints.md", "over 64 MiB", "over 32 MiB"),
    ],
    test_what_is_proved_is_tested_as_often_as_the_page_says: [
        ("docs/checkpoints.md", "| over 400 |", "| over 500 |"),
        ("docs/checkpoints.md", "| 200 races |", "| 300 races |"),
        ("docs/checkpoints.md", "| 40; 500 in", "| 50; 500 in"),
        ("docs/checkpoints.md", "/test_random_kills", "/test_kills"),
        ("docs/checkpoints.md", "over 10,000 distinct", "over 20,000 distinct"),
    ],
    test_the_schemas_are_those_that_are_written_and_read: [
        ("docs/versions.md", "| `parity.seal/2` |", "| `parity.seal/3` |"),
        ("docs/versions.md", "| `parity.seal/1`, ", "| "),
        ("docs/versions.md", "| `check.json` | `parity.check/1` |", "| `check.json` | `parity.check/2` |"),
    ],
    test_the_fields_of_the_policy_have_these_defaults: [
        ("docs/policy.md", "| `save.keep_latest` | 3 |", "| `save.keep_latest` | 2 |"),
        ("docs/policy.md", '| `"accuracy"` |', '| `"loss"` |'),
    ],
    test_the_names_of_a_run_directory_are_those_in_use: [
        ("docs/policy.md", "| `metrics.jsonl` |", "| `late.jsonl` |"),
    ],
    test_the_commands_of_the_policy_exist: [
        ("docs/policy.md", "`parity export RUN", "`parity ship RUN"),
    ],
}
"""What a page might say instead: by the test that must notice, the page, its words and others."""


@pytest.mark.parametrize(("test", "plant"), [(test, plant) for test, plants in PLANTS.items() for plant in plants])
def test_a_page_that_says_something_else_is_noticed(test, plant, monkeypatch):
    expect_failure(test, *plant, monkeypatch)
