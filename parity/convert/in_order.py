"""Which names of a model a row of shapes stands for, by the order of the model: one way, or none that is known.

Floating buffers, frozen parameters and names of one array stand among the names, and nothing tells them apart: the
names of a row are known where the shapes fit in one way alone. Two names of one array are one way: what is known of
the one is so of the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from parity.convert.torch_names import statistics
from parity.formats import Array
from parity.mapping import by_order

__all__ = ["floating", "in_order", "untied"]


def floating(model: Mapping[str, Array], *, ordered: bool) -> list[str]:
    """Return the names that may be of parameters with state: floating arrays, but for statistics of normalizations.

    Args:
        model: Arrays by name.
        ordered: As of `statistics`.
    """
    known = statistics(model, ordered=ordered)
    return [name for name, array in model.items() if name not in known and array.dtype.kind not in "iub"]


def untied(names: Sequence[str], model: Mapping[str, Array]) -> list[str]:
    """Return one name of each tied array, the first, in order."""
    first = {_array(name, model): name for name in reversed(names)}
    return [name for name in names if first[_array(name, model)] == name]


def in_order(
    shapes: Sequence[tuple[int, ...] | None], names: Sequence[str], model: Mapping[str, Array]
) -> tuple[list[str], bool] | None:
    """Return the names that some shapes stand for in the order of a model, and whether there is one way alone.

    Whoever makes a second parameter of the storage of a first one has two of them in the optimizer; who ties them has
    one. So both names count, and the shapes around decide.

    Args:
        shapes: Those of the optimizer's parameters, in its order; None where nothing tells one.
        names: Names of the model, in order, all names of tied arrays among them.
        model: Arrays by name.

    Example:
        >>> import numpy as np
        >>> from parity.formats import InMemory
        >>> sizes = {"embed": 2, "body": 3, "head": 2}
        >>> model = {name: InMemory(np.zeros(size)) for name, size in sizes.items()}
        >>> model["embed"].shared = model["head"].shared = "one storage"
        >>> in_order([(2,), (3,)], list(model), model), in_order([(2,)], ["embed", "head"], model)
        ((['embed', 'body'], True), (['embed'], True))
    """
    there = [model[name].shape for name in names]
    found = by_order(shapes, there)
    if found is None:
        return None
    places, alone = found
    last = [len(names) - 1 - at for at in reversed((by_order(shapes[::-1], there[::-1]) or ([], True))[0])]
    arrays = [_array(name, model) for name in names]
    # each shape stands at or between its earliest and its latest place: one array there is one way
    alone = alone or all(
        arrays[one] == arrays[place]
        for place, end, shape in zip(places, last, shapes, strict=True)
        for one in range(place, end + 1)
        if shape is None or there[one] == shape
    )
    # several values of one array are of several parameters on its storage: which of more names than values is theirs
    # nothing tells
    held, there_are = Counter(arrays[place] for place in places), Counter(arrays)
    alone = alone and not any(1 < count < there_are[array] for array, count in held.items())
    return [names[place] for place in places], alone


def _array(name: str, model: Mapping[str, Array]) -> object:
    array = model[name]
    return name if array.shared is None else (array.shared, array.shape)
