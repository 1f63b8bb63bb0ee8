"""State of this process that a check puts aside: random generators that all code shares, settings of frameworks."""

from __future__ import annotations

import ast
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from parity import sides

__all__ = ["fresh_process", "save_process_state", "seeds_on_import"]


def save_process_state() -> Callable[[], None]:
    """Return a function that puts generators and settings of this process back as they are now."""
    python, shared = random.getstate(), np.random.get_state()  # noqa: NPY002 - the state that all code shares
    frameworks = [adapter.set_aside() for adapter in sides.adapters().values()]

    def put_back() -> None:
        random.setstate(python)
        np.random.set_state(shared)  # noqa: NPY002
        for restore in frameworks:
            restore()

    return put_back


def fresh_process() -> None:
    """Seed what all code shares as a new process does: Python's and NumPy's generators from the system."""
    random.seed()
    np.random.seed()  # noqa: NPY002
    for adapter in sides.adapters().values():
        adapter.fresh_process()


def seeds_on_import(train: Any) -> bool:
    """Return whether the module of a function seeds a generator outside its functions: then each process does.

    Told from its source: a call there whose function has `seed` in its name, such as `torch.manual_seed(0)`.
    """
    try:
        source = inspect.getsource(sys.modules[train.__module__])
        return any("seed" in ast.unparse(call.func).rpartition(".")[2] for call in _calls(ast.parse(source)))
    except (AttributeError, KeyError, OSError, TypeError, SyntaxError):
        return False


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    """Return the calls that importing a module makes itself."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child)
