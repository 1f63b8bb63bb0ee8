"""A call of PyTorch with something of it changed: its plain arguments, what its tensors hold, or what it makes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from parity.contract import OperationArrays, OperationEdit

__all__ = ["array_of", "called_with", "edited", "filled", "named_arguments", "tensors_in"]


def named_arguments(func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are no tensors, by name, or by place where the function has no names."""
    names = _names(func) if inspect.isfunction(func) else ()
    found = {names[at] if at < len(names) else str(at): one for at, one in enumerate(args)}
    return {**found, **given}


@functools.lru_cache(maxsize=1024)
def _names(func: Any) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(func).parameters)
    except (TypeError, ValueError):
        return ()


def called_with(
    func: Any, args: tuple[Any, ...], given: Mapping[str, Any], edit: OperationEdit, held: Sequence[OperationArrays]
) -> Any:  # fmt: skip
    """Return what a call makes of changed arguments.

    Args:
        func: What is called.
        args: Its arguments by position.
        given: Those by name.
        edit: What is changed of them.
        held: What the operations hold that the edit asks for.
    """
    named = named_arguments(func, args, given)
    new_args, new_given = _replaced(args, given, {**edit.numbers, **edit.settings}, named)
    if edit.given is not None:
        new_args, new_given = _refilled(new_args, new_given, partial(_given, edit.given, held))
    return func(*new_args, **new_given)


def edited(
    made: Any, args: tuple[Any, ...], given: Mapping[str, Any], edit: OperationEdit, held: Sequence[OperationArrays]
) -> Any:  # fmt: skip
    """Return what is returned in place of what a call made, as `called_with` takes its arguments."""
    assert edit.after is not None
    tensors = tensors_in(made)
    outputs, inputs = (tuple(map(array_of, one)) for one in (tensors, tensors_in([*args, *given.values()])))
    new = edit.after(outputs, inputs, held)
    fresh = [torch.from_numpy(np.array(one)).to(old.dtype) for one, old in zip(new, tensors, strict=True)]
    if isinstance(made, torch.Tensor):
        if any(made is one for one in args):  # in place
            made.copy_(fresh[0])
            return made
        return fresh[0]
    return filled(made, iter(fresh))


def _replaced(
    args: tuple[Any, ...], given: Mapping[str, Any], settings: Mapping[str, Any], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with some replaced, by the keys of `named_arguments`."""
    places = list(named)[: len(args)]
    new_args, new_given = list(args), dict(given)
    for key, value in settings.items():
        if key in places:
            new_args[places.index(key)] = value
        else:
            new_given[key] = value
    return tuple(new_args), new_given


def _refilled(
    args: tuple[Any, ...], given: dict[str, Any], change: Callable[[OperationArrays], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with the tensors replaced by what a change makes of them."""
    old = tensors_in([*args, *given.values()])
    new = change(tuple(map(array_of, old)))
    fresh = iter([torch.from_numpy(np.array(one)).to(was.dtype) for one, was in zip(new, old, strict=True)])
    new_args = tuple(filled(one, fresh) for one in args)
    return new_args, {name: filled(one, fresh) for name, one in given.items()}


def _given(change: Any, held: Any, old: Any) -> Any:
    return change(old, held)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in what a call takes or makes, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [one for held in value for one in tensors_in(held)]
    return []


def filled(value: Any, fresh: Iterator[torch.Tensor]) -> Any:
    """Return containers with other tensors in the same places."""
    if isinstance(value, torch.Tensor):
        return next(fresh)
    if isinstance(value, list | tuple):
        new = [filled(one, fresh) for one in value]
        return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)  # of `min` both have names
    return value


def array_of(one: torch.Tensor) -> NDArray[Any]:
    """Return the numbers of a tensor, floating ones in float64."""
    one = one.detach()
    if one.is_floating_point():
        one = one.double()
    return np.array(one.resolve_conj().resolve_neg().numpy())
