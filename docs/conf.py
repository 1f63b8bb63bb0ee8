"""Settings of `make docs`: README, guides and API reference as one site, by Sphinx; the source folder is the root.

Pages stay where GitHub shows them, so their links hold in both places.
"""

import logging
import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx
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
html_theme_options = {"page_width": "80em", "sidebar_width": "15em"}
html_copy_source = False
smartquotes = False
toc_object_entries = False

TREE = """
```{toctree}
:hidden:
:glob:
docs/*
ARCHITECTURE
CONTRIBUTING
CHANGELOG
docs/api/index
```
"""


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
    """Add the tree of pages to the README, where GitHub would show it as code."""
    if name == root_doc:
        source[0] += TREE


def write_index(app: Sphinx, error: Exception | None) -> None:
    """Make the README what a web server shows first."""
    if error is None:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> None:
    """Connect what is above."""
    app.connect("builder-inited", write_reference)
    app.connect("source-read", add_tree)
    app.connect("build-finished", write_index)
