"""Facts of the sources that pages repeat, read without importing anything."""

import ast
import functools
import re
from typing import Any

from tests.docs.pages import ROOT


@functools.cache  # the sources stay as they are while the tests run
def constants(file: str) -> dict[str, Any]:
    """Return the plain constants of a module, without importing it."""
    found = {}
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


@functools.cache
def functions(file: str) -> dict[str, str]:
    """Return the source of each function of a module."""
    text = (ROOT / file).read_text(encoding="utf-8")
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.get_source_segment(text, node) or "" for node in nodes}


def one(pattern: str, text: str) -> str:
    """Return the only match of a pattern in a text."""
    (found,) = re.findall(pattern, text)
    return found


def codes(cell: str) -> list[str]:
    """Return what stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)
