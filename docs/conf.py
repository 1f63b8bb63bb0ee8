"""Settings of `make docs`: README, guides and API reference as one site, by Sphinx; the source folder is the root.

Pages stay where GitHub shows them, so their links hold in both places.
"""

import logging
import re
import shutil
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment.adapters.toctree import global_toctree_for_doc
from sphinx.util.logging import getLogger

sys.path.insert(0, str(Path(__file__).parent))

from reference import pages

project = "parity"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/api/*.md"]
exclude_patterns = [".*", "reports", "runs", "build", "tests", "parity", "jax_side", "torch_side"]
"""Folders without pages: Sphinx would walk them all, the environment too."""

myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 3
html_theme = "alabaster"
html_theme_options = {"page_width": "74em", "sidebar_width": "15em", "body_max_width": "none"}
"""The navigation is there from this width on, 1,184 pixels; below, it follows the page."""

html_static_path = ["site.css"]
html_css_files = ["site.css"]
highlight_language = "none"
"""A block without a language is what a command prints, or a verdict: no Python."""

html_copy_source = False
smartquotes = False
toc_object_entries = False

JOURNEY = {
    "Your trainer": ("docs/your-trainer", "docs/resume-bugs", "docs/ci", "docs/loading"),
    "Your checkpoints": ("docs/save-anything", "docs/formats", "docs/checkpoints", "docs/remote", "docs/policy"),
    "PyTorch and JAX": (
        "docs/migrate",
        "docs/your-port",
        "docs/differences",
        "docs/optimizers",
        "docs/compositions",
        "docs/schedules",
    ),
    "The reference twins": (
        "docs/commands",
        "docs/scale",
        "docs/results",
        "docs/results-gpu",
        "docs/results-gpu-h200",
        "docs/benchmarks",
    ),
    "How it works": (
        "docs/method",
        "docs/peers",
        "docs/other-tools",
        "docs/decisions",
        "docs/versions",
        "ARCHITECTURE",
    ),
    "The project": ("CONTRIBUTING", "CHANGELOG", "docs/api/index"),
}
"""Caption to pages, in the order in which somebody needs them who comes with a trainer."""

OTHERS = "More"
"""Caption of pages that have no place there."""

TREE = """
```{{toctree}}
:hidden:
:caption: {caption}
{pages}
```
"""

BUGS = "docs/resume-bugs"
"""The page whose table has a row for each bug."""


class ToSphinx(logging.Handler):
    """Hands what Griffe finds wrong in a docstring to Sphinx, which makes it an error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Hand one message on."""
        getLogger(__name__).warning(record.getMessage())


def write_reference(app: Sphinx) -> None:
    """Write the pages of the API reference, which git ignores."""
    folder = Path(app.srcdir, "docs", "api")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    logger, handler = logging.getLogger("griffe"), ToSphinx(logging.WARNING)
    logger.addHandler(handler)
    try:
        for name, text in pages(Path(app.srcdir)).items():
            (folder / f"{name}.md").write_text(text, encoding="utf-8")
    finally:
        logger.removeHandler(handler)


def add_tree(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the trees of pages to the README, where GitHub would show them as code."""
    if name != root_doc:
        return
    there = app.env.found_docs
    trees = {caption: [page for page in listed if page in there] for caption, listed in JOURNEY.items()}
    placed = {root_doc, *(page for listed in trees.values() for page in listed)}
    trees[OTHERS] = sorted(page for page in there - placed if not page.startswith("docs/api/"))
    for caption, listed in trees.items():
        if listed:
            source[0] += TREE.format(caption=caption, pages="\n".join(listed))


def take_whole_names(app: Sphinx, tree: nodes.document) -> None:
    """Let types be looked up as they are written; annotations have their full path (`reference.py`), errors have not.

    What is not found so, such as `int`, Sphinx compares with the end of every name there is, which takes half of the
    whole time and finds an attribute of that name, as for `type`.
    """
    for name in tree.findall(addnodes.pending_xref):
        if name.get("refdomain") == "py" and name["reftype"] != "exc" and name.hasattr("refspecific"):
            del name["refspecific"]


def link_bugs(app: Sphinx, tree: nodes.document, name: str) -> None:
    """Give each row of the page of bugs its name, and make the names of bugs on other pages links to it."""
    known = bug_names(app)
    if name == BUGS:
        for row in tree.findall(nodes.row):
            first = next(iter(row.findall(nodes.literal)), None)
            if first is not None and first.astext() in known:
                row["ids"].append(first.astext())
        return
    page = app.builder.get_relative_uri(name, BUGS)
    for literal in list(tree.findall(nodes.literal)):
        if literal.astext() in known and not isinstance(literal.parent, nodes.reference):
            link = nodes.reference("", "", internal=True, refuri=f"{page}#{literal.astext()}")
            literal.replace_self(link)
            link += literal


def bug_names(app: Sphinx) -> set[str]:
    """Return the names of all bugs, from the page that lists them."""
    page = Path(app.srcdir, f"{BUGS}.md")
    return set(re.findall(r"(?m)^\| `([^`]+)` \|", page.read_text(encoding="utf-8"))) if page.exists() else set()


def share_tree(app: Sphinx, name: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    """Give a module without modules of its own the navigation of its package.

    Sphinx resolves the whole tree anew for each page: for hundreds of modules that takes most of the time.
    """
    home = name.rpartition(".")[0]
    if home.startswith("docs/api/") and name not in packages(app):
        context["toctree"] = partial(tree_of, app, home)


@cache
def packages(app: Sphinx) -> set[str]:
    """Return the pages of modules that have modules of their own."""
    return {name.rpartition(".")[0] for name in app.env.found_docs if name.startswith("docs/api/")}


@cache
def tree_of(app: Sphinx, home: str, **options: Any) -> str:
    """Return the navigation of the page of a package, for a page beside it in the same folder."""
    tree = global_toctree_for_doc(app.env, home, app.builder, tags=app.tags, **options)
    text = app.builder.render_partial(tree)["fragment"]
    return text.replace('href="#"', f'href="{app.builder.get_target_uri(home).rpartition("/")[2]}"')


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Make the README what a web server shows first."""
    if error is None:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """Connect what is above."""
    app.connect("builder-inited", write_reference)
    app.connect("source-read", add_tree)
    app.connect("doctree-read", take_whole_names)
    app.connect("doctree-resolved", link_bugs)
    app.connect("html-page-context", share_tree)
    app.connect("build-finished", write_index)
