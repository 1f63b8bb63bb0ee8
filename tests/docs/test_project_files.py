"""What a stranger expects of a project says the same everywhere: license, citation, hooks, workflow, site."""

import re
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs import reference
from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
APACHE = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of https://www.apache.org/licenses/LICENSE-2.0.txt."""

PACKAGES = ("parity", "jax_side", "torch_side")


def read_yaml(path: str) -> dict[str, Any]:
    return yaml.load((ROOT / path).read_text(encoding="utf-8"), Loader=yaml.BaseLoader)


def recipe(target: str) -> list[str]:
    """Return the commands of a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert found, target
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_the_license_is_apache_2_word_for_word_and_the_package_names_it():
    assert sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE
    assert (PROJECT["license"], PROJECT["license-files"]) == ("Apache-2.0", ["LICENSE"])
    # With an SPDX expression, the packaging standard forbids the classifier.
    assert [name for name in PROJECT["classifiers"] if name.startswith("License ::")] == []


def test_the_citation_is_of_this_version():
    citation = read_yaml("CITATION.cff")
    required = {"cff-version", "message", "title", "authors"}
    assert required <= citation.keys()
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert citation["authors"] == PROJECT["authors"]


def test_the_hooks_run_what_lint_and_types_run():
    (local,) = read_yaml(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local", "a hook from elsewhere would have a version of its own"
    hooks = local["hooks"]
    assert [hook["entry"] for hook in hooks] == recipe("lint") + recipe("types")
    assert {(hook["language"], hook["pass_filenames"]) for hook in hooks} == {("system", "false")}


def test_the_workflow_runs_what_everybody_runs_with_the_least_rights():
    workflow = read_yaml(".github/workflows/ci.yml")
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["cancel-in-progress"] == "true"
    (job,) = workflow["jobs"].values()
    assert job["timeout-minutes"] == "90"
    assert job["steps"][-1] == {"run": "bash .ci/run"}
    (python,) = (step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", ""))
    assert PROJECT["requires-python"] == f">={python}"


def test_ci_builds_the_site_and_a_warning_is_an_error():
    commands = [line.split("#")[0].split() for line in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()]
    made = {word for command in commands if command[:1] == ["make"] for word in command[1:]}
    assert {"lint", "types", "docs", "test"} <= made
    assert "--fail-on-warning" in recipe("docs")[-1]


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        *(
            ("parity/runs/drive.py", False),
            ("tests/reports/test_html.py", False),
            ("parity/build/__init__.py", False),
        ),
        *(("runs/a/spec.toml", True), ("reports/site/index.html", True), ("docs/api/parity.md", True)),
        *((".venv", True), ("parity/__pycache__/cli.pyc", True)),
    ],
)
def test_git_ignores_what_is_made_and_no_package(tmp_path, path, ignored):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_bytes((ROOT / ".gitignore").read_bytes())
    asked = subprocess.run(["git", "check-ignore", "--quiet", "--no-index", path], cwd=tmp_path, check=False)
    assert asked.returncode == (0 if ignored else 1)


# The API reference


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.pages(ROOT)


def public_modules() -> set[str]:
    """Return the dotted names of the modules whose path has no leading underscore, from the file system alone."""
    found = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if not any(part.startswith("_") for part in parts):
            found.add(".".join(parts))
    return found


@pytest.mark.takes_seconds
def test_every_public_module_has_a_page(pages):
    assert pages.keys() - {"index"} == public_modules()


@pytest.mark.takes_seconds
def test_every_page_is_reached_from_the_index(pages):
    trees = {name: re.findall(r"(?s)```\{toctree\}\n:hidden:\n(.*?)\n```", text) for name, text in pages.items()}
    reached, waiting = set(), ["index"]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting += [child for tree in trees[name] for child in tree.splitlines()]
    assert reached == pages.keys()


@pytest.mark.takes_seconds
def test_everything_that_a_module_exports_is_on_its_page(pages):
    for module in reference.modules(ROOT):
        for name in map(str, module.exports or []):
            shown = re.search(rf"{{py:(\w+)}}[ `~\w.]*\b{name}\b", pages[module.path])
            assert shown, f"{module.path}: {name}"


SAMPLE = '''
"""A module."""
from parity.spec import RunSpec
class Broken(ValueError):
    """An error.

    Attributes:
        field: Its name.
    """
    def __init__(self, field: str) -> None:
        self.field = field
def shown(spec: RunSpec, *, n: int = 1) -> RunSpec:
    """Do it.

    Args:
        spec: The run,
            over two lines.

    Raises:
        Broken: It cannot be done.

    Example:
        >>> shown(1)
        1
    """
def _hidden() -> None:
    """Never shown."""
'''


def write_sample(root: Path, text: str) -> None:
    """Write a project of one module."""
    (root / "pyproject.toml").write_text('[tool.mypy]\npackages = ["parity"]\n')
    (root / "parity").mkdir()
    (root / "parity" / "__init__.py").write_text(text)


def sample_page(root: Path, text: str) -> str:
    write_sample(root, text)
    return reference.pages(root)["parity"]


def test_a_page_shows_signatures_sections_and_sessions_but_nothing_private(tmp_path):
    page = sample_page(tmp_path, SAMPLE)
    assert "{py:function} shown(spec: ~parity.spec.RunSpec, *, n: int = 1) -> ~parity.spec.RunSpec\n" in page
    assert ":param spec: The run, over two lines.\n" in page
    assert ":raises Broken: It cannot be done.\n" in page
    assert "```pycon\n>>> shown(1)\n1\n```\n" in page
    assert "{py:exception} Broken(field: str)\n" in page
    assert page.count("field") == 2, "an attribute of the docstring is not listed again as a member"
    assert "hidden" not in page


def test_a_section_that_cannot_be_shown_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"parity\.f: section 'warns' of the docstring: docs/reference\.py cannot"):
        sample_page(tmp_path, 'def f() -> None:\n    """Do.\n\n    Warns:\n        UserWarning: Always.\n    """\n')


@pytest.mark.takes_seconds
@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("", "", None),
        ("        spec: The run,", "        spc: The run,", "'spc'"),
        ("Do it.", "Do {py:fun}`it`.", "py:fun"),
        ("A guide", "[A guide](missing.md)", "missing.md"),
    ],
)
def test_the_site_is_built_and_what_is_wrong_in_a_docstring_or_page_fails_the_build(tmp_path, old, new, problem):
    write_sample(tmp_path, SAMPLE.replace(old, new))
    (tmp_path / "docs").mkdir()
    for page in ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "docs/guide"):
        (tmp_path / f"{page}.md").write_text(f"# {page}\n\nA guide\n".replace(old, new))
    (tmp_path / "docs" / "resume-bugs.md").write_text(
        "# Bugs\n\n| bug | lost |\n|---|---|\n| `sched_lost` | `lr` |\n"
    )
    with (tmp_path / "docs" / "guide.md").open("a") as guide:
        guide.write("\n`sched_lost` and `lr`.\n\n```\nresume is broken: for def in class\n```\n")
    site = tmp_path / "reports" / "site"
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "-c", ROOT / "docs", tmp_path, site]
    built = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if problem:
        assert (built.returncode, problem in built.stderr) == (1, True), built.stderr
    else:
        assert (built.returncode, built.stderr) == (0, "")
        assert {"index.html", "docs/guide.html", "docs/api/parity.html"} <= {
            str(path.relative_to(site)) for path in site.rglob("*.html")
        }
        guide, bugs = ((site / f"docs/{name}.html").read_text() for name in ("guide", "resume-bugs"))
        assert '<a class="reference internal" href="resume-bugs.html#sched_lost"><code' in guide
        assert guide.count("resume-bugs.html#") == 1
        assert re.search('<tr class="[^"]*" id="sched_lost">', bugs)
        assert "resume is broken: for def in class" in guide, "a verdict is no Python, and has no colours in it"
        assert "site.css" in guide


def test_the_navigation_leads_through_every_page_your_trainer_first():
    from docs import conf

    listed = [page for pages in conf.JOURNEY.values() for page in pages]
    assert listed[0] == "docs/your-trainer"
    pages = {str(path.relative_to(ROOT).with_suffix("")) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))}
    assert sorted(listed) == sorted({*pages, "docs/api/index"} - {"README"})


def test_the_navigation_is_there_on_a_screen_of_1280_pixels():
    """The theme hides it where the screen is not wider than the page; its browsers take 16 pixels for 1em."""
    from docs import conf

    assert 16 * int(conf.html_theme_options["page_width"].removesuffix("em")) < 1280
