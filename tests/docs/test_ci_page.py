"""The workflow of docs/ci.md is YAML that GitHub would take; its options, extras and actions are there."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT, read

PAGE = "docs/ci.md"
PINNED = re.compile(r"[\w.-]+/[\w.-]+@v\d+")


def workflow(page: str) -> dict[str, Any]:
    """Return the workflow of the page; every value is a text."""
    found = re.search(r"<!-- workflow:begin -->\n```yaml\n(.*?)```\n<!-- workflow:end -->", page, re.DOTALL)
    assert found
    read_as: dict[str, Any] = yaml.load(found[1], Loader=yaml.BaseLoader)
    return read_as


def problems(page: str) -> Iterator[str]:
    """Yield what would not work in the workflow of a page."""
    found = workflow(page)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    options = set(re.findall(r"`(--parity-[a-z]+)`", page))
    if found.get("permissions") != {"contents": "read"}:
        yield "permissions: more than reading"
    if set(found) != {"name", "on", "permissions", "jobs"}:
        yield f"keys: {sorted(found)}"
    for job in found["jobs"].values():
        if not {"runs-on", "timeout-minutes", "steps"} <= set(job):
            yield f"job: {sorted(job)}"
        for step in job["steps"]:
            if ("uses" in step) == ("run" in step):
                yield f"step: either uses or run: {step}"
            if "uses" in step and not PINNED.fullmatch(step["uses"]):
                yield f"action without a version: {step['uses']}"
            words = shlex.split(step.get("run", ""))
            for name in re.findall(r"parity-suite\[(\w+)\]", " ".join(words)):
                if name not in extras:
                    yield f"no extra is called {name}"
            for word in words:
                option, _, value = word.partition("=")
                if option.startswith("--parity-") and option not in options:
                    yield f"no option is called {option}"
                if option == "--parity-mode" and value not in ("auto", "process", "inline"):
                    yield f"no mode is called {value}"


def test_the_workflow_is_one_that_works() -> None:
    assert list(problems(read(PAGE))) == []


def test_it_is_installed_and_run_for_pull_requests_and_every_night() -> None:
    found = workflow(read(PAGE))
    assert set(found["on"]) == {"pull_request", "schedule"}
    (job,) = found["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert [run.split()[0] for run in runs] == ["pip", "pytest", "pytest"]
    assert "pip install 'parity-suite[torch]' pytest" in read(PAGE)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "parity-suite[torch]' pytest\n      - if",
            "parity-suite[pytorch]' pytest\n      - if",
            "no extra is called pytorch",
        ),
        (
            "--parity-scenarios=quick --parity-mode=inline --parity-report=resume",
            "--parity-roads=quick",
            "no option is",
        ),
        ("--parity-mode=process --parity", "--parity-mode=processes --parity", "no mode is called processes"),
        ("uses: actions/checkout@v5", "uses: actions/checkout", "action without a version"),
        ("contents: read", "contents: write", "more than reading"),
        ("    timeout-minutes: 30\n", "", "job: "),
    ],
)
def test_a_workflow_that_does_not_work_is_found(old: str, new: str, problem: str) -> None:
    page = read(PAGE)
    assert page.count(old) == 1
    assert any(problem in found for found in problems(page.replace(old, new)))
