"""Two checkpoints of two frameworks under one set of names: PyTorch's, by the document that a conversion left."""

from __future__ import annotations

from dataclasses import replace

from parity.convert.ledger import Ledger
from parity.convert.to_jax import DOCUMENT, Options
from parity.convert.to_torch import to_torch
from parity.errors import CheckpointError
from parity.formats import FAMILIES, Source

__all__ = ["aligned"]


def aligned(a: Source, b: Source) -> tuple[Source, Source, str]:
    """Return two checkpoints so that they can be compared by names, and what was done, as a sentence.

    Where one is of PyTorch and the other of JAX and has the document of a conversion, it is led back by the rules in
    it, unread; where that fails, both stay as they are, and the sentence says why.

    Args:
        a: The first.
        b: The second.
    """
    families = [FAMILIES.get(one.format, "torch") for one in (a, b)]
    if families[0] == families[1]:
        return a, b, ""
    one = a if families[0] == "jax" else b
    if not isinstance(one.tree, dict) or DOCUMENT not in one.tree:
        return a, b, ""
    try:
        back = replace(one, tree=to_torch(one.tree, Options(), Ledger(), None, str(one.path)), digests={})
    except CheckpointError as error:
        return a, b, f"names are those of the files, as the conversion cannot be led back: {error}"
    note = f"{one.path.name} was led back to PyTorch by the rules of its conversion"
    return (back, b, note) if one is a else (a, back, note)
