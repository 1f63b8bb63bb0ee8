"""Two models of users opened: of PyTorch, of JAX, or two of one framework, with the inputs of both."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from parity import sides
from parity.checks.models.draws import drawn, weights
from parity.checks.models.inputs import BothInputs, both_inputs, described
from parity.checks.models.subjects import Subjects
from parity.contract import ModelProbe
from parity.errors import SpecError

__all__ = ["ModelSource", "arguments", "open_subjects"]


@dataclass(frozen=True)
class ModelSource:
    """A user's object that makes a model, and what it is called with."""

    option: str
    """`--torch` or `--jax`, for messages."""
    name: str
    made: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def framework(self) -> str:
        """Return the framework that the option says."""
        return self.option.removeprefix("--")


def open_subjects(first: ModelSource, second: ModelSource, inputs: object = None) -> Subjects:
    """Return two models with their inputs.

    Args:
        first: The one that counts as the reference, whose names a rule has as `torch`.
        second: The other, whose names a rule has as `jax`.
        inputs: Texts such as `i[2,16]<65` (`parity.checks.models.inputs`), a value or a function of the user, or
            None: those of the user's own module, `inputs`, or else what the first layer of the first model takes.

    Raises:
        SpecError: A model cannot be built, or nothing says what the models are called with.
        MissingFrameworkError: A framework is not installed.
    """
    given = inputs if inputs is not None else _of_modules(first, second)
    if given is not None:
        both = _both(given)
        return _stopped(Subjects(_open(first, both.first), _open(second, both.second), both))
    model = _open(first, ())
    text = getattr(model, "assumed_inputs", lambda: None)()
    if text is None:
        raise SpecError(
            "inputs",
            f"nothing says what {first.name} is called with; give --inputs, such as 'i[2,16]<65' or mine:inputs",
        )
    if first.framework != second.framework and text.count(",") == 3:
        text += "->[0,2,3,1]"
    both = replace(described([text]), note=f"assumed: called with {text}, after the first layer of {first.name}")
    return _stopped(Subjects(model, _open(second, both.second), both))


def _stopped(subjects: Subjects) -> Subjects:
    """Take no gradient of parameters that one model freezes where the other has no gradient of as many numbers.

    What PyTorch marks at a parameter, JAX can only stop on the way: a frozen teacher is one in both.
    """
    for (one, _), (other, inputs) in (subjects.both, subjects.both[::-1]):
        if not one.frozen or other.frozen:
            continue
        values = {
            leaf: drawn(value.shape, "statistic" if leaf in other.statistics else "parameter", (17, at))
            for at, (leaf, value) in enumerate(other.leaves.items())
        }
        grads = other.evaluate(values, inputs, weights).gradients
        silent = sum(grad.size for grad in grads.values() if not np.any(grad))
        if silent and silent == sum(one.leaves[leaf].size for leaf in one.frozen):
            one.stopped = one.frozen
    return subjects


def _both(given: object) -> BothInputs:
    if isinstance(given, BothInputs):
        return given
    if isinstance(given, str):
        return described([given])
    if isinstance(given, Sequence) and given and all(isinstance(one, str) for one in given):
        return described([str(one) for one in given])
    return both_inputs(given)


def _of_modules(*models: ModelSource) -> object:
    """Return `inputs` of the module in which a model is defined, a function without arguments or a value."""
    for one in models:
        module = inspect.getmodule(one.made if isinstance(one.made, Callable) else type(one.made))  # type: ignore[arg-type]
        found = getattr(module, "inputs", None)
        if found is not None and not inspect.ismodule(found):
            return found
    return None


def _open(one: ModelSource, inputs: Any) -> ModelProbe:
    probes = sides.probes(one.framework)
    model = probes.open_model(one.option, one.name, one.made, one.args, one.kwargs, inputs)
    if not model.leaves:
        raise SpecError(one.option, f"{one.name} has no parameter")
    return model


def arguments(option: str, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments that a text gives, as they would stand in a call, or an object of the user.

    Args:
        option: The option that gives them, for messages.
        text: Such as `64, layers=2`, of literals alone; or MODULE:NAME, of a mapping of names, a tuple, or anything
            else, which is the one argument.

    Raises:
        SpecError: It is neither.

    Example:
        >>> arguments("--torch-args", "64, layers=2, norm='rms'")
        ((64,), {'layers': 2, 'norm': 'rms'})
    """
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if isinstance(call, ast.Call) and all(word.arg for word in call.keywords):
            args = tuple(ast.literal_eval(one) for one in call.args)
            return args, {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        pass
    if ":" not in text:
        raise SpecError(option, f"expected literals as in a call, such as 64, layers=2, or MODULE:NAME, got {text!r}")
    found = sides.named_object(option, text)
    found = found() if callable(found) and not isinstance(found, type) else found
    if isinstance(found, Mapping):
        return (), dict(found)
    return (tuple(found) if isinstance(found, tuple) else (found,)), {}
