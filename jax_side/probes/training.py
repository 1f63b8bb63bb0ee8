"""A trainer of JAX that people bring: its loss and its updates in float64, from given values of its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_side.probes.calls import CallRecorder, recorded, trace_level
from jax_side.probes.islands import lifted
from jax_side.probes.masks import given_masks
from jax_side.probes.model import JaxProbe
from jax_side.probes.programs import JaxProgram
from jax_side.probes.state import LiftedStep, view_of
from parity.contract import DropoutMasks, Island, LossEvaluation, ModelProbe, Precision, StateView, StepBatch
from parity.errors import SpecError

__all__ = ["open_trainer"]


def open_trainer(model: ModelProbe, functions: Mapping[str, Callable[..., Any]]) -> JaxPort:
    """Return a trainer of JAX.

    Args:
        model: Its model, opened by `open_model`.
        functions: `loss`, `start` and `step` of the user, those that there are.
    """
    return JaxPort(cast(JaxProbe, model), functions)


class JaxPort:
    """See `parity.contract.TrainerProbe`."""

    def __init__(self, model: JaxProbe, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.model = model
        self.functions = functions
        self._programs: dict[tuple[str, str, str], Any] = {}
        self.lifted = LiftedStep(functions["step"]) if "step" in functions else None

    @property
    def casts(self) -> tuple[Island, ...]:
        """Return the casts that lifted updates have left out; see `parity.contract.TrainerProbe`."""
        return () if self.lifted is None else tuple(self.lifted.found.values())

    def loss(
        self, values: Mapping[str, NDArray[np.float64]], batch: StepBatch, precision: Precision = "float64", *,
        masks: DropoutMasks | None = None,
    ) -> LossEvaluation:  # fmt: skip
        """Return the loss and its gradients; see `parity.contract.TrainerProbe`."""
        batch = _narrowed(batch, precision)
        arrays = {name: one for name, one in batch.items() if isinstance(one, np.ndarray)}
        rest = {name: one for name, one in batch.items() if name not in arrays}
        if masks is not None and self.model.tree.dropouts:
            raise SpecError("dropout", f"of {self.model.name}: modules of equinox are given no masks")
        with self._wide("loss", precision, drops=masks is not None), given_masks(masks):
            held = {path: jnp.asarray(values[path], precision) for path in self.model.leaves}
            program, plain, found = self._program(rest, arrays, precision, drops=masks is not None)
            try:
                (loss, (inputs, outputs)), grads = program(held, arrays)
            except jax.errors.JAXTypeError:  # it looks at values of the batch: they are constants of the program then

                def fixed(held: dict[str, Any]) -> Any:
                    return plain(held, arrays)

                fixed = lifted(fixed, found) if precision == "float64" else fixed
                (loss, (inputs, outputs)), grads = jax.value_and_grad(fixed, has_aux=True)(held)
        gradients = {
            path: np.asarray(one, np.float64) for path, one in grads.items() if path not in self.model.statistics
        }
        taken, shown = (tuple(np.asarray(one, np.float64) for one in arrays) for arrays in (inputs, outputs))
        return LossEvaluation(float(loss), gradients, shown, taken, tuple(found.values()))

    def _program(
        self, rest: Mapping[str, Any], arrays: Mapping[str, Any], precision: Precision, *, drops: bool = False
    ) -> Any:
        """Return the loss with its gradients, compiled and as it is; kept for batches of the same shapes.

        One that drops is traced anew each time, as its masks are constants of the trace.
        """
        key = (precision, repr(rest), repr({name: (one.shape, one.dtype) for name, one in arrays.items()}))
        if drops or key not in self._programs:
            found: dict[tuple[str, str], Island] = {}

            def run(held: dict[str, Any], arrays: Any) -> Any:
                model, outputs = self._recorded(held, drops=drops)
                with outputs as seen:
                    made = self.functions["loss"](model, {**rest, **arrays})
                made = made[0] if isinstance(made, tuple) and made else made
                if not hasattr(made, "dtype") or made.size != 1:
                    raise SpecError("loss", f"{self.model.name}: expected a scalar, got {type(made).__name__}")
                return made.reshape(()), seen()

            whole = lifted(run, found) if precision == "float64" else run
            graded = jax.jit(jax.value_and_grad(whole, has_aux=True))
            if drops:
                return graded, run, found
            self._programs[key] = (graded, run, found)
        return self._programs[key]

    def trace(self, values: Mapping[str, NDArray[np.float64]], batch: StepBatch) -> JaxProgram | None:
        """Return the loss, equation by equation; see `parity.contract.TrainerProbe`."""
        arrays = {name: one for name, one in batch.items() if isinstance(one, np.ndarray)}
        rest = {name: one for name, one in batch.items() if name not in arrays}
        with self._wide("loss"):
            held = {path: jnp.asarray(values[path], jnp.float64) for path in self.model.leaves}

            def run(held: dict[str, Any], arrays: Any) -> list[Any]:
                made = self.functions["loss"](self._model(held), {**rest, **arrays})
                return [(made[0] if isinstance(made, tuple) and made else made).reshape(())]

            try:
                program = JaxProgram(run, held, arrays)
            except jax.errors.JAXTypeError:  # it looks at values of the batch: they are constants of the program then
                program = JaxProgram(lambda held: run(held, arrays), held)
        return program if program.complete else None

    def begin(
        self, values: Mapping[str, NDArray[np.float64]], *, lift: bool = False, precision: Precision = "float64"
    ) -> JaxPortRun:
        """Begin a training; see `parity.contract.TrainerProbe`."""
        with self._wide("start", precision):
            model = self._model({path: jnp.asarray(values[path], precision) for path in self.model.leaves})
            state = self.functions["start"](model)
        return JaxPortRun(self, model, state, lift, precision)

    def _model(self, held: Mapping[str, Any], *, drops: bool = False) -> Any:
        """Return what the user's functions take, with these arrays, in the mode of training, that drops nothing
        unless it is asked to.
        """
        from flax import nnx

        tree = self.model.tree
        assert tree.assemble is not None
        model = tree.assemble({**self.model._rest, **held})
        if isinstance(model, nnx.Module):
            model.train()
            for _, one in nnx.iter_modules(model):
                if isinstance(one, nnx.Dropout):
                    one.rate = one.rate if drops else 0.0
                elif hasattr(one, "dropout_rate"):
                    one.dropout_rate = 0.0
        return model

    def _recorded(self, held: Mapping[str, Any], *, drops: bool = False) -> tuple[Any, Any]:
        """Return the model, and a context that gives a function of what the loss gave it and what it returned."""
        tree, model = self.model.tree, self._model(held, drops=drops)
        kept: list[tuple[Any, Any]] = []
        if tree.module is None:
            if isinstance(model, tuple) and callable(model[1]):
                own, level = model[1], trace_level()

                def called(*args: Any, **kwargs: Any) -> Any:
                    made = own(*args, **kwargs)
                    if trace_level() == level:  # inside `vmap` or `grad` it has no value that the loss has
                        kept.append((_floats([args[1:], kwargs]), _floats(made)))
                    return made

                return (model[0], called), nullcontext(lambda: _both(kept))
            return model, nullcontext(lambda: ([], []))
        recorder = CallRecorder(level=trace_level())

        @contextmanager
        def watch() -> Iterator[Callable[[], tuple[list[Any], list[Any]]]]:
            with recorded(recorder, tree.module) as know:
                if tree.bind is not None:
                    know(model)
                yield lambda: _both([(taken, made) for path, _, taken, made in recorder.seen if path == ""])

        return model, watch()

    @contextmanager
    def _wide(self, what: str, precision: Precision = "float64", *, drops: bool = False) -> Iterator[None]:
        """Call the user's code, in float64 unless another type is said; dropout of linen is left out unless asked."""
        from flax import linen

        def intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
            return args[0] if isinstance(context.module, linen.Dropout) and not drops else call(*args, **kwargs)

        try:
            with jax.enable_x64(precision == "float64"), linen.intercept_methods(intercept):
                yield
        except SpecError:
            raise
        except Exception as error:  # anything that the user's code does
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise SpecError(what, f"of {self.model.name} fails: {why[:300]}") from error


class JaxPortRun:
    """See `parity.contract.TrainingRun`."""

    def __init__(self, trainer: JaxPort, model: Any, state: Any, lift: bool, precision: Precision) -> None:
        self.trainer, self.model, self.state, self.lift = trainer, model, state, lift
        self.precision = precision

    def step(self, batch: StepBatch) -> float:
        """Make one update; see `parity.contract.TrainingRun`."""
        step: Any = self.trainer.lifted if self.lift else self.trainer.functions["step"]
        given = _narrowed(batch, self.precision)
        with self.trainer._wide("step", self.precision):
            made = step(self.state, given)
            if not isinstance(made, tuple) or len(made) != 2:
                raise SpecError(
                    "step", f"of {self.trainer.model.name}: expected (state, loss), got {type(made).__name__}"
                )
            self.state, loss = made
            return float("nan") if loss is None else float(loss)

    def view(self) -> StateView:
        """Return a copy of the state; see `parity.contract.TrainingRun`."""
        with jax.enable_x64(self.precision == "float64"):
            return view_of(self.state, self.model)


def _both(kept: list[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [one for taken, _ in kept for one in taken], [one for _, made in kept for one in made]


def _arrays(value: Any) -> list[Any]:
    return [one for one in jax.tree.leaves(value) if hasattr(one, "dtype")]


def _floats(value: Any) -> list[Any]:
    return [one for one in _arrays(value) if jnp.issubdtype(one.dtype, jnp.floating)]


def _narrowed(batch: StepBatch, precision: Precision) -> dict[str, Any]:
    """Return a batch whose float arrays are of a type; in float64 as it is."""

    def narrow(one: Any) -> Any:
        floats = isinstance(one, np.ndarray) and one.dtype.kind == "f"
        return one.astype(jnp.dtype(precision)) if floats else one

    return dict(batch) if precision == "float64" else {name: narrow(one) for name, one in batch.items()}
