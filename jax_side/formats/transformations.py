"""The transformations of Optax that take part in an update of the user's own, by tracing one.

A state has no names. What runs has: an update is traced with shapes alone, and the functions of Optax that are called
are noted, through whatever wraps them.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

import jax
import optax

from jax_side.formats.optimizer_template import wide_types
from parity.errors import SpecError
from parity.formats import Tree, map_leaves

__all__ = ["transformations_of"]

_HOME = os.path.dirname(str(optax.__file__)) + os.sep


def transformations_of(option: str, tx: Any, params: Tree) -> frozenset[str]:
    """Return the names of the transformations of Optax that an update calls, such as `scale_by_adam`.

    Args:
        option: The option that names it, for messages.
        tx: A transformation, or a function without arguments that returns one.
        params: A tree of arrays, which are not read.

    Raises:
        SpecError: It is no transformation, or its update cannot be traced with these parameters.
    """
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_HOME) and code.co_name == "update_fn":
            name = code.co_qualname.partition(".")[0]
            found.add(name)
            if frame.f_locals.get("nesterov"):
                found.add(f"{name}.nesterov")

    before = sys.getprofile()
    try:
        with wide_types(params):
            tx = tx if hasattr(tx, "init") else tx()
            shapes = map_leaves(params, lambda _, one: jax.ShapeDtypeStruct(one.shape, one.dtype))
            state = jax.eval_shape(tx.init, shapes)
            sys.setprofile(note)
            jax.eval_shape(lambda *given: tx.update(*given), shapes, state, shapes)
    except Exception as error:  # anything that the user's code does
        sys.setprofile(before)
        lines = f"{type(error).__name__}: {error}".splitlines()
        raise SpecError(option, f"its update cannot take these parameters: {lines[0][:300]}") from error
    finally:
        sys.setprofile(before)
    return frozenset(found)
