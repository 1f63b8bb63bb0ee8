"""A trainer of PyTorch that people bring: its loss and its updates in float64, from given values of its model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from parity.contract import DropoutMasks, Island, LossEvaluation, ModelProbe, Precision, StateView, StepBatch
from parity.errors import SpecError
from torch_side.probes.calls import arrays_in
from torch_side.probes.islands import Islands
from torch_side.probes.masks import GivenMasks
from torch_side.probes.model import TorchProbe
from torch_side.probes.programs import TorchProgram
from torch_side.probes.state import view_of

__all__ = ["open_trainer"]


def open_trainer(model: ModelProbe, functions: Mapping[str, Callable[..., Any]]) -> TorchPort:
    """Return a trainer of PyTorch.

    Args:
        model: Its model, opened by `open_model`.
        functions: `loss`, `start` and `step` of the user, those that there are.
    """
    return TorchPort(cast(TorchProbe, model), functions)


class TorchPort:
    """See `parity.contract.TrainerProbe`."""

    def __init__(self, model: TorchProbe, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.model = model
        self.functions = functions
        self._draws = 0
        self.left_out: dict[Island, None] = {}

    @property
    def casts(self) -> tuple[Island, ...]:
        """Return the casts that lifted updates have left out; see `parity.contract.TrainerProbe`."""
        return tuple(self.left_out)

    def loss(
        self, values: Mapping[str, NDArray[np.float64]], batch: StepBatch, precision: Precision = "float64", *,
        masks: DropoutMasks | None = None,
    ) -> LossEvaluation:  # fmt: skip
        """Return the loss and its gradients; see `parity.contract.TrainerProbe`."""
        module = self._module(values, precision, drops=masks is not None)
        module.requires_grad_(True)  # of a leaf that training freezes too: what freezes it is no part of the loss
        for path, one in module.named_parameters():
            one.requires_grad_(path not in self.model.stopped)
        islands, seen = Islands(lift=precision == "float64"), list[Any]()
        handle = module.register_forward_hook(
            lambda _m, args, kwargs, made: seen.append(([*args, *kwargs.values()], made)), with_kwargs=True
        )
        try:
            with self._wide("loss", getattr(torch, precision)), islands, _given(masks):
                made = self.functions["loss"](module, _narrowed(batch, precision))
        finally:
            handle.remove()
        made = made[0] if isinstance(made, tuple) and made else made
        if not isinstance(made, torch.Tensor) or made.numel() != 1:
            raise SpecError("loss", f"{self.model.name}: expected a scalar tensor, got {type(made).__name__}")
        held = {path: one for path, one in module.named_parameters() if path in self.model.leaves}
        wanted = {path: one for path, one in held.items() if path not in self.model.stopped}
        found: tuple[torch.Tensor | None, ...] = (None,) * len(wanted)
        if made.requires_grad:
            found = torch.autograd.grad(made.reshape(()), list(wanted.values()), allow_unused=True)
        gradients = {
            path: np.zeros(tuple(one.shape)) if grad is None else grad.double().numpy()
            for (path, one), grad in zip(wanted.items(), found, strict=True)
        }
        gradients |= {path: np.zeros(tuple(held[path].shape)) for path in self.model.stopped}
        outputs = tuple(one.detach().double().numpy() for _, given in seen for one in arrays_in(given))
        inputs = tuple(one.detach().double().numpy() for args, _ in seen for one in arrays_in(args))
        return LossEvaluation(float(made.detach()), gradients, outputs, inputs, islands.found)

    def trace(self, values: Mapping[str, NDArray[np.float64]], batch: StepBatch) -> TorchProgram | None:
        """Return the loss, operation by operation; see `parity.contract.TrainerProbe`."""

        def prepare() -> Callable[[], Any]:
            module = self._module(values, "float64")

            def call() -> Any:
                with self._wide("loss"), Islands(lift=True):
                    made = self.functions["loss"](module, dict(batch))
                return made[0] if isinstance(made, tuple) and made else made

            return call

        program = TorchProgram(prepare)
        return program if program.complete else None

    def begin(
        self, values: Mapping[str, NDArray[np.float64]], *, lift: bool = False, precision: Precision = "float64"
    ) -> TorchPortRun:
        """Begin a training; see `parity.contract.TrainerProbe`."""
        module = self._module(values, precision)
        with self._wide("start", getattr(torch, precision)):
            state = self.functions["start"](module)
        return TorchPortRun(self, module, state, lift, precision)

    def _module(
        self, values: Mapping[str, NDArray[np.float64]], precision: Precision, *, drops: bool = False
    ) -> nn.Module:
        """Return a copy of the model with these values, in the mode of training, that drops nothing unless asked."""
        module = copy.deepcopy(self.model.module)
        held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        with torch.no_grad():
            for path in self.model.leaves:
                held[path].copy_(torch.from_numpy(np.array(values[path])))
        module.train()
        for one in module.modules():
            if isinstance(one, nn.modules.dropout._DropoutNd) and not drops:
                one.p = 0.0
            elif isinstance(one, nn.MultiheadAttention | nn.RNNBase):
                one.dropout = 0.0
        if precision != "float64":  # NumPy has no bfloat16 that PyTorch takes: a batch is float32, its values rounded
            dtype = getattr(torch, precision)
            module.to(dtype).register_forward_pre_hook(partial(_cast_inputs, dtype), with_kwargs=True)
        return module

    @contextmanager
    def _wide(self, what: str, dtype: torch.dtype = torch.float64) -> Iterator[None]:
        """Call the user's code with a type as the default, float64 unless said, and with other draws each time."""
        before = torch.get_default_dtype()
        self._draws += 1
        try:
            torch.set_default_dtype(dtype)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self._draws)
                yield
        except SpecError:
            raise
        except Exception as error:  # anything that the user's code does
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise SpecError(what, f"of {self.model.name} fails: {why[:300]}") from error
        finally:
            torch.set_default_dtype(before)


class TorchPortRun:
    """See `parity.contract.TrainingRun`."""

    def __init__(self, trainer: TorchPort, module: nn.Module, state: Any, lift: bool, precision: Precision) -> None:
        self.trainer, self.module, self.state, self.lift = trainer, module, state, lift
        self.precision = precision

    def step(self, batch: StepBatch) -> float:
        """Make one update; see `parity.contract.TrainingRun`."""
        given = _narrowed(batch, self.precision)
        with self.trainer._wide("step", getattr(torch, self.precision)):
            if self.lift:
                with Islands(lift=True, in_graph=True) as islands:
                    made = self.trainer.functions["step"](self.state, given)
                self.trainer.left_out |= dict.fromkeys(islands.found)
            else:
                made = self.trainer.functions["step"](self.state, given)
        if not isinstance(made, tuple) or len(made) != 2:
            raise SpecError(
                "step", f"of {self.trainer.model.name}: expected (state, loss), got {type(made).__name__}"
            )
        self.state, loss = made
        return float("nan") if loss is None else float(loss)

    def view(self) -> StateView:
        """Return a copy of the state; see `parity.contract.TrainingRun`."""
        return view_of(self.state, self.module, list(self.trainer.model.leaves))


def _given(masks: DropoutMasks | None) -> Any:
    return nullcontext() if masks is None else GivenMasks(masks)


def _cast_inputs(dtype: torch.dtype, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    def cast(one: Any) -> Any:
        return one.to(dtype) if isinstance(one, torch.Tensor) and one.is_floating_point() else one

    return tuple(cast(one) for one in args), {name: cast(one) for name, one in kwargs.items()}


def _narrowed(batch: StepBatch, precision: Precision) -> dict[str, Any]:
    """Return a batch whose float arrays are rounded to a type, as float32; in float64 as it is."""

    def narrow(one: Any) -> Any:
        floats = isinstance(one, np.ndarray) and one.dtype.kind == "f"
        return torch.from_numpy(one).to(getattr(torch, precision)).float().numpy() if floats else one

    return dict(batch) if precision == "float64" else {name: narrow(one) for name, one in batch.items()}
