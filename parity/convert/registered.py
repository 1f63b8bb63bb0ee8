"""Names of parameters from a module that the user's own code builds, or from its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from parity.convert.torch_names import plain_name
from parity.errors import SpecError

__all__ = ["Registered", "registered"]

MAKER = "give a function without arguments that makes it"


@dataclass(frozen=True)
class Registered:
    """What a module says of its parameters, and an optimizer of which it has."""

    order: tuple[tuple[str, bool], ...]
    """Names as the modules register them, wrappers removed, and whether each is trained."""
    kind: str
    """Class of its optimizer; empty where there is none, or it is not of torch.optim."""
    names: tuple[str, ...] | None
    """Names in the order of the optimizer, by the identity of its parameters; None where there is no optimizer."""


def registered(option: str, made: Any, groups: Callable[[Any], Any] | None = None) -> Registered:
    """Return the names of a model.

    Args:
        option: The option that names it, for messages.
        made: A module, a class or function that makes one without arguments, or that makes a module and its
            optimizer; anything with `named_parameters` and with `param_groups` is taken for these.
        groups: Function of the module that makes its optimizer; None where `made` gives one or there is none.

    Raises:
        SpecError: It cannot be built without arguments, is no module, or the optimizer has parameters of none; there
            are two optimizers, or `groups` makes none.
    """
    if isinstance(made, type) or not hasattr(made, "named_parameters"):
        made = _built(option, made)
    parts = list(made) if isinstance(made, tuple | list) else [made]
    if groups is not None:
        modules = [one for one in parts if hasattr(one, "named_parameters")]
        if len(parts) > 1 or not modules:
            raise SpecError("--groups", f"makes the optimizer of a module; {option} gave {_kinds(parts)}")
        parts.append(_built("--groups", partial(groups, modules[0]), "give a function of the module that makes it"))
        if not hasattr(parts[-1], "param_groups"):
            raise SpecError("--groups", f"expected an optimizer, got {type(parts[-1]).__name__}")
    models = [one for one in parts if hasattr(one, "named_parameters")]
    optimizers = [one for one in parts if hasattr(one, "param_groups")]
    if len(models) != 1 or len(optimizers) > 1:
        raise SpecError(option, f"expected a module, or a module and its optimizer, got {_kinds(parts)}")
    own = [(plain_name(name), value) for name, value in models[0].named_parameters()]
    order = tuple((name, bool(value.requires_grad)) for name, value in own)
    if not optimizers:
        return Registered(order, "", None)
    by_id = {id(value): name for name, value in own}
    given = [value for group in optimizers[0].param_groups for value in group["params"]]
    if any(id(value) not in by_id for value in given):
        raise SpecError(option, "its optimizer has a parameter that is not the module's")
    kind = type(optimizers[0])
    own_class = kind.__name__ if kind.__module__.startswith("torch.optim.") else ""
    return Registered(order, own_class, tuple(by_id[id(value)] for value in given))


def _kinds(parts: Sequence[Any]) -> str:
    return ", ".join(type(one).__name__ for one in parts)


def _built(option: str, maker: Callable[[], Any], hint: str = MAKER) -> Any:
    if not callable(maker):
        raise SpecError(option, f"expected a module, or what makes one, got {type(maker).__name__}")
    try:
        return maker()
    except Exception as error:  # anything that the user's code does
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SpecError(option, f"it cannot be built: {why}; {hint}") from error
