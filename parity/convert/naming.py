"""Which parameter each number of an optimizer's state is of: by what the file says, or by a proof, else refused.

PyTorch numbers the parameters of an optimizer group by group. What decides, the strongest first:

1. names that were given, or that the state itself has (`param_names`, names as keys);
2. shapes: where no two parameters have one shape, each value fits one parameter alone, whatever the order;
3. the order of the model, for an optimizer of one group. `Optimizer(model.parameters())` has it, and so has one that
   leaves frozen parameters out; PyTorch itself matches states by it. Every shape must fit, in one way only, with all
   that may be a parameter among them: no name says that an array is a buffer or tied. Only the statistics that
   normalizations of `torch.nn` write are left out by their structure. The order must be that in which modules were
   registered: as the model that was given has it, or as the file has it where the format keeps the order of insertion
   (pickles do; safetensors, DCP, Orbax and sorted JSON do not).

With several groups the order says nothing: trainers fill groups from sets, from sorted names or from filters, and
each gives the same shapes. Where nothing decides, the state is refused: a moment at another parameter of its shape
is found by nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parity.convert.in_order import floating, in_order, untied
from parity.convert.torch_names import is_buffer, plain_name
from parity.errors import CheckpointError
from parity.formats import Array, Key, Source
from parity.mapping import by_shapes
from parity.state import OptimizerKind

__all__ = ["ADVICE", "Naming", "is_inferred", "keeps_order", "name_numbers"]

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
        return _counted(where, ids, [plain_name(str(number)) for number in ids], "its own names")
    if len(recorded) == len(ids) and ids:
        return _counted(where, ids, [plain_name(str(name)) for name in recorded], "param_names")
    every = floating(model, ordered=known.ordered)
    candidates = untied(every, model) if known.order is None else _given(where, ids, model, known.order)
    shapes = [value_shape(kind, entries.get(number, {})) for number in ids]
    if len(candidates) >= len(ids) and not _may_have_state(kind, groups, entries):
        likely = sorted(candidates, key=lambda name: is_buffer(name, model[name]))[: len(ids)]
        return [name for name in candidates if name in likely], "none, as no parameter has state"
    # of several values without a shape, what trains next in JAX would go to any of them
    proven = None if shapes.count(None) > 1 else by_shapes(shapes, {name: model[name].shape for name in candidates})
    if proven is not None:
        tied = any(name not in candidates for name in every)
        return proven, f"their shapes, each of which one parameter alone has{_ONE_STORAGE if tied else ''}"
    filled = [group for group in groups if group.get("params")]
    why = _no_order(candidates, model, known)
    if len(filled) > 1:
        why = f"it has {len(groups)} groups, and parameters are numbered group by group"
    elif not why:
        return _by_order(where, ids, shapes, every if known.order is None else candidates, model)
    alike = [one for one, count in Counter(model[name].shape for name in candidates).items() if count > 1]
    shown = f"; several parameters have the shape {list(alike[0])}" if alike else ""
    if (len(every) if known.order is None else len(candidates)) < len(ids):
        return _counted(where, ids, candidates, "the model")
    advice = ADVICE_OF_GROUPS if len(filled) > 1 else ADVICE
    raise CheckpointError(
        f"{where} {why.removeprefix('it ')}: nothing says which parameter each number is of{shown}; {advice}"
    )


_ONE_STORAGE = ", if the names on one storage are one parameter"


def is_inferred(named_by: str) -> bool:
    """Return whether what the names of an optimizer's parameters are known by is no proof of them.

    Args:
        named_by: As `name_numbers` says it.

    Example:
        >>> is_inferred("param_names"), is_inferred("the order of the model, and tied names")
        (False, True)
    """
    return "order" in named_by or named_by.endswith(_ONE_STORAGE)


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
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise CheckpointError(f"{where}: {source} gives {twice} twice, and each parameter is in an optimizer once")
    return names, source


def _given(
    where: str, ids: Sequence[Key], model: Mapping[str, Array], order: Sequence[tuple[str, bool]]
) -> list[str]:
    """Return the names that the optimizer's parameters may have, in the order of the model that was given.

    Raises:
        CheckpointError: That model has others than the file.
    """
    lacking = [name for name, _ in order if name not in model]
    if lacking:
        raise CheckpointError(
            f"{where}: the model that was given has {lacking[0]}, and the checkpoint has not; it has "
            f"{', '.join(list(model)[:4])}, ...: give the model that was saved"
        )
    trained = [name for name, trains in order if trains]
    return trained if len(trained) == len(ids) else [name for name, _ in order]


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
    chosen, source = untied(names, model), "the order of the model"
    if any(is_buffer(name, array) for name, array in model.items() if name not in names):
        source += ", statistics of normalizations and other buffers left out"
    if len(names) <= len(ids):
        return _counted(where, ids, list(names), source)  # their shapes are checked next
    found = in_order(shapes, names, model)
    if found is None:
        raise CheckpointError(
            f"{where} has {len(ids)} parameters, and the order of the model, {len(names)} names, has no such shapes "
            f"in it; {ADVICE}"
        )
    if not found[1]:
        raise CheckpointError(
            f"{where} has {len(ids)} parameters and the model {len(names)} names that may be theirs, and the shapes "
            f"fit in several ways: nothing says which were trained, or are buffers or tied; {ADVICE}"
        )
    if found[0] == chosen:
        return chosen, f"{source}, and tied names"
    return found[0], "the one place in the order of the model where all shapes fit"
