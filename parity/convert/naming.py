"""Which parameter each number of an optimizer's state is of: by what the file says, or by a proof, else refused.

PyTorch numbers the parameters of an optimizer group by group. What decides, the strongest first:

1. names that were given, or that the state itself has (`param_names`, names as keys);
2. shapes: where no two parameters have one shape, each value fits one parameter alone, whatever the order;
3. the order of the model, for an optimizer of one group. `Optimizer(model.parameters())` has it, and so has one that
   leaves frozen parameters out; PyTorch itself matches states by it. Every shape must fit, in one way only. The order
   must be that in which modules were registered: as the model that was given has it, or as the file has it where the
   format keeps the order of insertion (pickles do; safetensors, DCP, Orbax and sorted JSON do not).

With several groups the order says nothing: trainers fill groups from sets, from sorted names or from filters, and
each gives the same shapes. Where nothing decides, the state is refused: a moment at another parameter of its shape
is found by nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parity.convert.torch_names import is_buffer, plain_name
from parity.errors import CheckpointError
from parity.formats import Array, Key, Source
from parity.mapping import by_order, by_shapes
from parity.state import OptimizerKind

__all__ = ["ADVICE", "Naming", "keeps_order", "name_numbers"]

ADVICE = (
    "give the names in the order of the optimizer with --names FILE, one a line, or --model mine:Model to build the "
    "module and ask it"
)

ADVICE_OF_GROUPS = (
    "give the names group by group with --names FILE, one a line, or --model mine:both, a function that returns the "
    "model and its optimizer; the model alone (mine:Model) decides for one group"
)

_WEIGHTS = ("pytorch_model.bin", "adapter_model.bin")
"""Files of Hugging Face that are pickles of one state dict."""


@dataclass(frozen=True)
class Naming:
    """What is known of the names of an optimizer's parameters, beside its own state."""

    given: Sequence[str] | None = None
    """All names, in the order of the optimizer."""
    order: Sequence[tuple[str, bool]] | None = None
    """Names of the model's parameters as its modules register them, and whether each is trained."""
    ordered: bool = False
    """Whether the tree has the names of the model in the order in which they were put there."""
    kind: str = ""
    """Class of the optimizer, where it is stated."""
    elsewhere: str = ""
    """Key of parameters beside the model, which the optimizer may have among its own."""


def keeps_order(source: Source) -> bool:
    """Return whether the state dict of a model has the order of insertion in a file: pickles of one file keep it.

    Args:
        source: The checkpoint. Of the directories of Hugging Face only those count whose weights are one pickle.
    """
    if source.format != "hugging-face":
        return source.format == "torch.save"
    names = [entry.name for entry in source.path.iterdir()] if source.path.is_dir() else []
    safe = any(name.endswith((".safetensors", ".safetensors.index.json", ".bin.index.json")) for name in names)
    return not safe and any(name in _WEIGHTS for name in names)


def name_numbers(
    where: str,
    kind: OptimizerKind,
    groups: Sequence[Mapping[str, Any]],
    entries: Mapping[Key, Mapping[str, Any]],
    model: Mapping[str, Array],
    known: Naming,
) -> tuple[list[str], str]:
    """Return the names of the parameters in the order of an optimizer, and what they are known by.

    Args:
        where: The optimizer, for messages.
        kind: Its class.
        groups: Its groups.
        entries: The state of each parameter, by number; none for those without one.
        model: The arrays of the model, in the order of the file.
        known: What else is known.

    Raises:
        CheckpointError: The names that there are do not fit, or nothing decides; says what would.
    """
    ids = [number for group in groups for number in group.get("params", ())]
    recorded = [name for group in groups for name in group.get("param_names", ())]
    if known.given is not None:
        return _counted(where, ids, list(known.given), "the names that were given")
    if ids and all(isinstance(number, str) for number in ids):
        return [plain_name(str(number)) for number in ids], "its own names"
    if len(recorded) == len(ids) and ids:
        return [plain_name(str(name)) for name in recorded], "param_names"
    candidates = _candidates(where, ids, model, known)
    shapes = [value_shape(kind, entries.get(number, {})) for number in ids]
    if len(candidates) >= len(ids) and not _may_have_state(kind, groups, entries):
        return candidates[: len(ids)], "none, as no parameter has state"
    # of several values without a shape, what trains next in JAX would go to any of them
    proven = None if shapes.count(None) > 1 else by_shapes(shapes, {name: model[name].shape for name in candidates})
    if proven is not None:
        return proven, "their shapes, each of which one parameter alone has"
    filled = [group for group in groups if group.get("params")]
    why = _no_order(candidates, model, known)
    if len(filled) > 1:
        why = f"it has {len(groups)} groups, and parameters are numbered group by group"
    elif not why:
        return _by_order(where, ids, shapes, candidates, model)
    alike = [one for one, count in Counter(model[name].shape for name in candidates).items() if count > 1]
    shown = f"; several parameters have the shape {list(alike[0])}" if alike else ""
    if len(candidates) < len(ids):
        return _counted(where, ids, candidates, "the model")
    advice = ADVICE_OF_GROUPS if len(filled) > 1 else ADVICE
    raise CheckpointError(
        f"{where} {why.removeprefix('it ')}: nothing says which parameter each number is of{shown}; {advice}"
    )


def _may_have_state(
    kind: OptimizerKind, groups: Sequence[Mapping[str, Any]], entries: Mapping[Key, Mapping[str, Any]]
) -> bool:
    """Return whether a parameter has state, or gets some with its first update: SGD without momentum never does."""
    if any(entries.values()):
        return True
    return any(kind.kept({**kind.arguments, **group}, ndim) for group in groups for ndim in (1, 2))


def value_shape(kind: OptimizerKind, entry: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the shape of the parameter that a state is of, as its values tell; None if they do not.

    Args:
        kind: Class of the optimizer.
        entry: State of one parameter, by torch's keys.

    Example:
        >>> import numpy as np
        >>> from parity.state import OPTIMIZERS
        >>> from parity.formats import InMemory
        >>> entry = {"row_var": InMemory(np.zeros((3, 1))), "col_var": InMemory(np.zeros((1, 4)))}
        >>> value_shape(OPTIMIZERS["Adafactor"], entry)
        (3, 4)
    """
    held = {slot.form: entry[slot.key] for slot in kind.slots if isinstance(entry.get(slot.key), Array)}
    for form in ("same", "unfactored"):
        if form in held:
            return tuple(held[form].shape)
    if "rows" in held and "columns" in held and min(len(held[form].shape) for form in ("rows", "columns")) > 1:
        return (*held["rows"].shape[:-1], held["columns"].shape[-1])
    return None


def _counted(where: str, ids: Sequence[Key], names: list[str], source: str) -> tuple[list[str], str]:
    if len(names) != len(ids):
        raise CheckpointError(f"{where} has {len(ids)} parameters, and {source} gives {len(names)} names; {ADVICE}")
    return names, source


def _candidates(where: str, ids: Sequence[Key], model: Mapping[str, Array], known: Naming) -> list[str]:
    """Return the names that the optimizer's parameters may have, in the order of the model.

    Raises:
        CheckpointError: The model that was given has others than the file.
    """
    if known.order is None:
        return trainable(model)
    lacking = [name for name, _ in known.order if name not in model]
    if lacking:
        raise CheckpointError(
            f"{where}: the model that was given has {lacking[0]}, and the checkpoint has not; it has "
            f"{', '.join(list(model)[:4])}, ...: give the model that was saved"
        )
    trained = [name for name, trains in known.order if trains]
    return trained if len(trained) == len(ids) else [name for name, _ in known.order]


def trainable(model: Mapping[str, Array]) -> list[str]:
    """Return the names of a model without buffers, and one name of each tied array, in order.

    Args:
        model: Arrays by name.
    """
    names, seen = [], set()
    for name, array in model.items():
        tied = (array.shared, array.shape) if array.shared is not None else None
        if is_buffer(name, array) or (tied and tied in seen):
            continue
        seen.add(tied)
        names.append(name)
    return names


def _no_order(names: Sequence[str], model: Mapping[str, Array], known: Naming) -> str:
    """Return why the order of the names is not that in which modules register them; empty if it can be."""
    if known.order is not None:
        return ""
    if not known.ordered:
        return "has its parameters by number, and the format of the model keeps no order of names"
    if known.elsewhere:
        return f"may have parameters of {known.elsewhere} too, which is beside the model"
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in names:
        kinds[model[name].dtype.name].append(name)
    # a safetensors file that was read and saved again has the names of each type sorted; the order of a model is
    # hardly ever so, as `weight` is registered before `bias`
    if len(names) > 1 and all(own == sorted(own) for own in kinds.values()):
        return (
            "has its parameters by number, and the names of the model are sorted, which no longer tells their order"
        )
    if not _is_registered(list(model)):
        return "has its parameters by number, and the names of the model are not in an order of modules"
    return ""


def _is_registered(names: Sequence[str]) -> bool:
    """Return whether the names of each module stand together, its own before those of the modules in it."""
    left: set[str] = set()
    within: set[str] = set()
    current: list[str] = []
    for name in names:
        *modules, _ = name.split(".")
        shared = 0
        while shared < min(len(modules), len(current)) and modules[shared] == current[shared]:
            shared += 1
        left |= {".".join(current[:depth]) for depth in range(shared + 1, len(current) + 1)}
        paths = [".".join(modules[:depth]) for depth in range(1, len(modules) + 1)]
        if left.intersection(paths) or (paths[-1] if paths else "") in within:
            return False
        within |= {"", *paths[:-1]} if paths else set()
        current = modules
    return True


def _by_order(
    where: str,
    ids: Sequence[Key],
    shapes: Sequence[tuple[int, ...] | None],
    names: Sequence[str],
    model: Mapping[str, Array],
) -> tuple[list[str], str]:
    """Return the names that have the shapes of the values in the order of the model, if there is one way alone.

    Raises:
        CheckpointError: There is none, or several.
    """
    if len(names) <= len(ids):
        source = "the order of the model, buffers and tied names left out,"
        return _counted(where, ids, list(names), source)[0], source.rstrip(",")  # their shapes are checked next
    found = by_order(shapes, [model[name].shape for name in names])
    if found is None:
        raise CheckpointError(
            f"{where} has {len(ids)} parameters, and the order of the model, {len(names)} names, has no such shapes "
            f"in it; {ADVICE}"
        )
    places, alone = found
    if not alone:
        raise CheckpointError(
            f"{where} has {len(ids)} parameters and the model {len(names)}, and the shapes fit in several ways: "
            f"nothing says which were trained; {ADVICE}"
        )
    return [names[place] for place in places], "the one place in the order of the model where all shapes fit"
