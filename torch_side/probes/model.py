"""A module of PyTorch as a function of its parameters and running statistics, in float64 and in evaluation mode."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from parity.contract import Evaluation, Inputs, Weigh, call_with
from parity.errors import SpecError
from torch_side.probes.calls import Calls, arrays_in
from torch_side.probes.islands import Islands
from torch_side.probes.programs import TorchProgram
from torch_side.probes.statistics import statistics_of

__all__ = ["open_model"]


def open_model(option: str, name: str, made: Any, args: Sequence[Any], kwargs: Mapping[str, Any], inputs: Inputs
               ) -> TorchProbe:  # fmt: skip
    """Return a model of PyTorch.

    Args:
        option: The option that names it, for messages.
        name: As it was named.
        made: A module, a class of modules, or a function that returns one.
        args: What a class or a function is called with; it is built in float64.
        kwargs: The same, by name.
        inputs: It is called with them once: buffers that a normalisation takes then are running statistics. A module
            is built without them, and where there are none yet, such buffers are known by PyTorch's names.

    Raises:
        SpecError: It cannot be built, or is no module.
    """
    module = made
    notes: list[str] = []
    if not isinstance(made, nn.Module):
        if not callable(made):
            raise SpecError(
                option, f"{name} is {type(made).__name__}; expected a module of PyTorch, or what makes one"
            )
        before = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float64)  # tables that it computes once are of float64 then, as elsewhere
            with torch.random.fork_rng(devices=[]), Islands(lift=True):
                module = made(*args, **kwargs)
        except Exception as error:  # anything that the user's code does
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise SpecError(
                option, f"{name} cannot be built: {why}; give its arguments with {option}-args"
            ) from error
        finally:
            torch.set_default_dtype(before)
    elif args or kwargs:
        raise SpecError(f"{option}-args", f"{name} is a module that is built already and takes no arguments")
    if module is made:
        module = copy.deepcopy(made)  # it is made float64 and put into evaluation, and the user's stays as it is
    if isinstance(module, tuple) and module and isinstance(module[0], nn.Module):
        module = module[0]
    if not isinstance(module, nn.Module):
        raise SpecError(option, f"{name} made {type(module).__name__}; expected a module of PyTorch")
    for path, parameter in module.named_parameters():
        if parameter.is_complex():
            raise SpecError(
                option, f"{name} has a complex parameter, {path}: complex leaves are not compared; "
                "hold its real and imaginary parts as leaves (torch.view_as_complex joins them)"
            )  # fmt: skip
    return TorchProbe(name, module.double().eval(), notes, inputs)


class TorchProbe:
    """See `parity.contract.ModelProbe`."""

    framework = "torch"

    def __init__(self, name: str, module: nn.Module, notes: Sequence[str] = (), inputs: Inputs = ()) -> None:
        self.name, self.module, self.notes = name, module, tuple(notes)
        first: dict[int, str] = {}
        ties: dict[str, tuple[str, ...]] = {}
        leaves: dict[str, torch.Tensor] = {}
        for path, parameter in module.named_parameters(remove_duplicate=False):
            if not parameter.is_floating_point():
                continue
            known = first.setdefault(id(parameter), path)
            if known != path:
                ties[known] = (*ties.get(known, ()), path)
            else:
                leaves[path] = parameter
        statistics = statistics_of(module, None if not inputs else partial(_called, module, inputs))
        self.fixed = tuple(path for path, _ in module.named_buffers() if path not in statistics)
        leaves |= {path: one for path, one in module.named_buffers() if path in statistics}
        self._leaves = leaves
        self.frozen = frozenset(path for path in leaves if path not in statistics and not leaves[path].requires_grad)
        self.stopped: frozenset[str] = frozenset()
        self.leaves = {path: one.detach().to(torch.float64).numpy().copy() for path, one in leaves.items()}
        self.ties, self.statistics = ties, statistics
        self.collections: Mapping[str, str] = {}
        self.dropped: tuple[float, ...] = ()
        self._modules = dict(module.named_modules())

    def evaluate(
        self, values: Mapping[str, NDArray[np.float64]], inputs: Inputs, weigh: Weigh | None = None, *,
        calls: bool = False, lift: bool = True
    ) -> Evaluation:  # fmt: skip
        """Return what it computes in float64; see `parity.contract.ModelProbe`."""
        still = self.statistics | self.stopped
        tensors = {
            path: torch.tensor(values[path], dtype=torch.float64, requires_grad=path not in still)
            for path in self._leaves
        }
        args, kwargs = call_with(inputs)
        islands, kept = Islands(lift=lift), Calls(self.module)
        before = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float64)
            with islands, torch.random.fork_rng(devices=[]), kept.kept() if calls else nullcontext():
                returned = torch.func.functional_call(
                    self.module,
                    tensors,
                    tuple(_tensor(one) for one in args),
                    {name: _tensor(one) for name, one in kwargs.items()},
                )
        except Exception as error:  # anything that the user's code does
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise SpecError("inputs", f"{self.name} cannot be called with them: {why[:300]}") from error
        finally:
            torch.set_default_dtype(before)
        outputs = list(arrays_in(returned))
        if not outputs:
            raise SpecError("inputs", f"{self.name} returned {type(returned).__name__} without a float tensor")
        gradients, total = {}, None
        if weigh is not None:
            total = sum(
                ((torch.from_numpy(weigh(at, tuple(one.shape))) * one).sum() for at, one in enumerate(outputs)),
                torch.zeros((), dtype=torch.float64),
            )
            gradients = self._gradients(total, tensors)
        return Evaluation(
            tuple(one.detach().to(torch.float64).numpy() for one in outputs),
            gradients,
            kept.ended(total) if calls else (),
            islands.found,
        )

    def trace(self, values: Mapping[str, NDArray[np.float64]], inputs: Inputs) -> TorchProgram | None:
        """Return what it computes, operation by operation; see `parity.contract.ModelProbe`."""
        tensors = {path: torch.tensor(values[path], dtype=torch.float64) for path in self._leaves}
        args, kwargs = call_with(inputs)

        def call() -> Any:
            before = torch.get_default_dtype()
            try:
                torch.set_default_dtype(torch.float64)
                with Islands(lift=True), torch.random.fork_rng(devices=[]):
                    named = {name: _tensor(one) for name, one in kwargs.items()}
                    return torch.func.functional_call(self.module, tensors, tuple(map(_tensor, args)), named)
            finally:
                torch.set_default_dtype(before)

        program = TorchProgram(lambda: call)
        return program if program.complete else None

    def _gradients(self, total: torch.Tensor, tensors: Mapping[str, torch.Tensor]) -> dict[str, NDArray[np.float64]]:
        """Return the gradient of each parameter, zeros where none reaches it."""
        wanted = {path: one for path, one in tensors.items() if one.requires_grad}
        none = {path: np.zeros(tensors[path].shape) for path in self.stopped}
        if not total.requires_grad:
            return {**none, **{path: np.zeros(one.shape) for path, one in wanted.items()}}
        found = torch.autograd.grad(total, list(wanted.values()), retain_graph=True, allow_unused=True)
        return none | {
            path: np.zeros(one.shape) if grad is None else grad.to(torch.float64).numpy()
            for (path, one), grad in zip(wanted.items(), found, strict=True)
        }

    def assumed_inputs(self) -> str | None:
        """Return what its first layer takes, as a text such as `i[2,8]<65`; None where it does not say."""
        for module in self.module.modules():
            if isinstance(module, nn.Embedding):
                return f"i[2,8]<{module.num_embeddings}"
            if isinstance(module, nn.Linear):
                return f"f[4,{module.in_features}]"
            if isinstance(module, nn.Conv2d):
                return f"f[2,{module.in_channels},16,16]"
        return None

    def unread(self, inputs: Inputs) -> frozenset[str]:
        """Return nothing: one call of PyTorch does not show what another would take."""
        del inputs
        return frozenset()

    def settings(self, path: str) -> Mapping[str, object]:
        """Return the plain values of a module, such as `eps`."""
        module = self._modules.get(path)
        if module is None:
            return {}
        found = {
            name: value
            for name, value in vars(module).items()
            if not name.startswith("_") and name != "training" and _is_setting(value)
        }
        return found


def _called(module: nn.Module, inputs: Inputs) -> Any:
    """Return what a module in float64 returns."""
    args, kwargs = call_with(inputs)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        return module(*map(_tensor, args), **{name: _tensor(one) for name, one in kwargs.items()})
    finally:
        torch.set_default_dtype(before)


def _is_setting(value: Any) -> bool:
    return isinstance(value, bool | int | float | str) or (
        isinstance(value, tuple) and all(isinstance(one, int | str) for one in value)
    )


def _tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    tensor = torch.from_numpy(np.array(value))
    return tensor.double() if tensor.is_floating_point() else tensor
