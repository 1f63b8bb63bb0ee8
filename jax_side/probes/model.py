"""A model of JAX as a function of its parameters and running statistics, in float64 and in evaluation mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_side.probes.calls import CallRecorder, recorded
from jax_side.probes.islands import lifted
from jax_side.probes.paths import modes_of
from jax_side.probes.programs import JaxProgram
from jax_side.probes.sown import traced_calls
from jax_side.probes.traces import inputs_read
from jax_side.probes.trees import ModelTree, tree_of
from parity.contract import Evaluation, Inputs, Island, ModuleCall, Weigh
from parity.errors import SpecError

__all__ = ["open_model"]


def open_model(option: str, name: str, made: Any, args: Sequence[Any], kwargs: Mapping[str, Any], inputs: Inputs
               ) -> JaxProbe:  # fmt: skip
    """Return a model of JAX.

    Args:
        option: The option that names it, for messages.
        name: As it was named.
        made: A module of NNX or linen, its class, the pair of a module of linen and its variables, a pytree that can
            be called, a pair of parameters and a function of them and the inputs, or a function that returns one.
        args: What a class or a function is called with, under `jax.enable_x64`.
        kwargs: The same, by name; `rngs` and `key` are made where they are asked for.
        inputs: What linen initializes it with.

    Raises:
        SpecError: It cannot be built, or is no model.
    """
    with jax.enable_x64(True):
        tree = tree_of(option, name, made, args, kwargs, _arrays(inputs))
        for path, leaf in tree.arrays.items():
            if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
                raise SpecError(
                    option, f"{name} has a complex leaf, {path}: complex leaves are not compared; "
                    "hold its real and imaginary parts as leaves (jax.lax.complex joins them)"
                )  # fmt: skip
        return JaxProbe(name, tree)


class JaxProbe:
    """See `parity.contract.ModelProbe`."""

    framework = "jax"

    def __init__(self, name: str, tree: ModelTree) -> None:
        self.name, self.tree, self.notes = name, tree, tree.notes
        moving = {path: leaf for path, leaf in tree.arrays.items() if jnp.issubdtype(leaf.dtype, jnp.floating)}
        self.leaves = {path: np.asarray(leaf, np.float64) for path, leaf in moving.items()}
        self._rest = {path: leaf for path, leaf in tree.arrays.items() if path not in moving}
        self.fixed = tuple(self._rest)
        self.ties: Mapping[str, tuple[str, ...]] = {}
        self.statistics, self.collections = tree.statistics & set(moving), tree.collections
        self.dropped = tuple(tree.dropouts.values())
        self.frozen: frozenset[str] = frozenset()
        self.stopped: frozenset[str] = frozenset()
        self._called: dict[str, Mapping[str, object]] = {}
        self._programs: dict[tuple[Any, ...], Any] = {}
        self._lifted, self._narrow = tree, ()  # type: tuple[ModelTree, tuple[str, ...]]

    def evaluate(
        self, values: Mapping[str, NDArray[np.float64]], inputs: Inputs, weigh: Weigh | None = None, *,
        calls: bool = False, lift: bool = True
    ) -> Evaluation:  # fmt: skip
        """Return what it computes in float64; see `parity.contract.ModelProbe`."""
        with jax.enable_x64(True):
            held = {path: jnp.asarray(values[path], jnp.float64) for path in self.leaves}
            given = _arrays(inputs)
            try:
                return self._evaluated(held, given, weigh, calls, lift)
            except SpecError:
                raise
            except Exception as error:  # anything that the user's code does
                why = " ".join(f"{type(error).__name__}: {error}".split())
                raise SpecError("inputs", f"{self.name} cannot be called with them: {why[:300]}") from error

    def _evaluated(
        self, held: dict[str, Any], inputs: Inputs, weigh: Weigh | None, calls: bool, lift: bool
    ) -> Evaluation:
        """Return what it computes; modules that say a narrow type are made float64 where casts alone do not do.

        `nnx.Embed` computes in the type that its table had when it was made, which is what a scan over layers takes
        then: layers of float64 parameters give it float64 back, and it cannot be traced, let alone be lifted.
        """
        run = self._with_calls if calls else self._run
        if self._narrow and not lift:  # as it is, it takes only the types that it was made with
            held = {path: one.astype(self.tree.arrays[path].dtype) for path, one in held.items()}
            types = {one.dtype for one in self.tree.arrays.values() if jnp.issubdtype(one.dtype, jnp.floating)}
            inputs = _arrays(inputs, jnp.result_type(*types))
        try:
            return run(held, inputs, weigh, lift)
        except TypeError:
            if self._narrow or self.tree.wide is None or not lift:
                raise
            self._lifted, self._narrow = self.tree.wide()
            if not self._narrow:
                raise
            self._programs.clear()
            return run(held, inputs, weigh, lift)

    def _run(self, held: dict[str, Any], inputs: Inputs, weigh: Weigh | None, lift: bool) -> Evaluation:
        program, found = self._program(weigh is not None, lift, inputs)
        _, arrays = _parted(inputs)
        if weigh is None:
            made = program(held, arrays, None)
            return Evaluation(_outputs(made, self.name), islands=tuple(found.values()))
        shapes = [one.shape for one in program(held, arrays, None, shapes=True)]
        weights = [jnp.asarray(weigh(at, shape)) for at, shape in enumerate(shapes)]
        made, grads = program(held, arrays, weights)
        gradients = {path: np.asarray(grad) for path, grad in grads.items() if path not in self.statistics}
        return Evaluation(_outputs(made, self.name), gradients, islands=tuple(found.values()))

    def _islands(self, lift: bool) -> dict[tuple[str, str], Island]:
        """Return the modules whose narrow type was replaced, to which a trace adds its casts."""
        return {(one, "type of the module"): Island(one, "type of the module", True) for one in self._narrow if lift}

    def _program(self, graded: bool, lift: bool, inputs: Inputs) -> Any:
        """Return a compiled function of leaves, inputs and weights; what it was compiled for is kept."""
        static, arrays = _parted(inputs)
        key = (graded, lift, repr(static), repr(jax.tree.map(lambda one: (one.shape, one.dtype), arrays)))
        if key not in self._programs:
            found, tree = self._islands(lift), self._lifted if lift else self.tree

            def outputs(held: dict[str, Any], arrays: Any) -> list[jax.Array]:
                return _floats(tree.call({**self._rest, **held}, _joined(static, arrays)))

            wide = lifted(outputs, found) if lift else outputs

            def graded_run(held: dict[str, Any], arrays: Any, weights: Any) -> Any:
                made, back = jax.vjp(lambda one: wide(one, arrays), held)
                return made, back([w.astype(one.dtype) for w, one in zip(weights, made, strict=True)])[0]

            plain, with_gradients = jax.jit(wide), jax.jit(graded_run)

            def program(held: dict[str, Any], arrays: Any, weights: Any, *, shapes: bool = False) -> Any:
                if shapes:
                    return jax.eval_shape(wide, held, arrays)
                return plain(held, arrays) if weights is None else with_gradients(held, arrays, weights)

            self._programs[key] = (program, found)
        return self._programs[key]

    def _with_calls(self, held: dict[str, Any], inputs: Inputs, weigh: Weigh | None, lift: bool) -> Evaluation:
        """Return outputs, gradients and calls; a second trace adds zeros to what modules return, for gradients."""
        found, tree = self._islands(lift), self._lifted if lift else self.tree
        told: list[tuple[str, str]] = []

        def run(held: dict[str, Any], moves: Any) -> Any:
            recorder = CallRecorder(moves)
            with recorded(recorder, tree.module) as know:
                if tree.bind is None:
                    returned = tree.call({**self._rest, **held}, inputs)
                else:
                    bound = tree.bind({**self._rest, **held})
                    know(bound)
                    args, named = (inputs, {}) if isinstance(inputs, tuple) else ((), dict(inputs))
                    returned = bound(*args, **{**modes_of(type(tree.module).__call__), **named})
            told[:] = [(path, kind) for path, kind, _, _ in recorder.seen]
            self._called |= {path: _settings(module) for path, module in recorder.modules.items()}
            return _floats(returned), [(taken, made) for _, _, taken, made in recorder.seen]

        trace = None
        if (watched := tree.watched) is not None:
            trace = traced_calls(lambda held, watch: _floats(watched({**self._rest, **held}, inputs, watch)), held)
        calling = run if trace is None else trace.run
        _, shapes = jax.eval_shape(calling, held, None)
        moves = [[jnp.zeros(one.shape, jnp.float64) for one in made] for _, made in shapes]
        wide = lifted(calling, found) if lift else calling
        (outputs, seen), back = jax.vjp(wide, held, moves)
        if trace is not None:
            told[:] = trace.told
            called = {path for path, _ in told}
            self.dropped = tuple(rate for path, rate in tree.dropouts.items() if path not in called)
        gradients: dict[str, NDArray[np.float64]] = {}
        grads: list[list[Any]] = [[None] * len(made) for _, made in seen]
        if weigh is not None:
            weights = [jnp.asarray(weigh(at, one.shape), one.dtype) for at, one in enumerate(outputs)]
            of_leaves, of_moves = back((weights, jax.tree.map(jnp.zeros_like, seen)))
            gradients = {path: np.asarray(one) for path, one in of_leaves.items() if path not in self.statistics}
            grads = of_moves
        kept = tuple(
            ModuleCall(path, kind, _numpy(taken), _numpy(made),
                       tuple(None if one is None else np.asarray(one, np.float64) for one in grad))
            for (path, kind), (taken, made), grad in zip(told, seen, grads, strict=True)
        )  # fmt: skip
        return Evaluation(_outputs(outputs, self.name), gradients, kept, tuple(found.values()))

    def trace(self, values: Mapping[str, NDArray[np.float64]], inputs: Inputs) -> JaxProgram | None:
        """Return what it computes, equation by equation; see `parity.contract.ModelProbe`."""
        with jax.enable_x64(True):
            held = {path: jnp.asarray(values[path], jnp.float64) for path in self.leaves}
            static, arrays = _parted(_arrays(inputs))

            def run(held: dict[str, Any], arrays: Any) -> list[jax.Array]:
                return _floats(self.tree.call({**self._rest, **held}, _joined(static, arrays)))

            try:
                program = JaxProgram(run, held, arrays)
            except Exception:  # anything that the user's code does: what cannot be traced has no program
                return None
        return program if program.complete else None

    def unread(self, inputs: Inputs) -> frozenset[str]:
        """Return leaves that no output can follow, whatever the values; see `parity.contract.ModelProbe`."""
        with jax.enable_x64(True):
            static, arrays = _parted(_arrays(inputs))
            held = {path: jnp.asarray(value, jnp.float64) for path, value in self.leaves.items()}

            def run(held: dict[str, Any], arrays: Any) -> list[jax.Array]:
                return _floats(self._lifted.call({**self._rest, **held}, _joined(static, arrays)))

            try:
                trace = jax.make_jaxpr(run)(held, arrays)
            except Exception:  # anything that the user's code does: of what cannot be traced nothing is said
                return frozenset()
        read = inputs_read(trace.jaxpr)[: len(held)]
        return frozenset(path for path, one in zip(sorted(held), read, strict=True) if not one)

    def settings(self, path: str) -> Mapping[str, object]:
        """Return the plain values of a module, such as `epsilon`."""
        if path in self._called:  # modules of linen that are made while it is called
            return self._called[path]
        module = self.tree.module if self.tree.built is None else self.tree.built
        for key in path.split(".") if path else ():
            if module is None:
                return {}
            module = module[int(key)] if key.isdigit() else getattr(module, key, None)
        found = {} if module is None else _settings(module)
        if self.tree.built is not None and "momentum" in found and "eps" in found:
            # the momentum of equinox is the weight of the old value, which a comparison knows by Flax's word
            found["epsilon"] = found.pop("eps")
        return found


def _settings(module: Any) -> dict[str, object]:
    """Return the plain values that a module was made with."""
    if dataclasses.is_dataclass(module):
        named = {one.name: getattr(module, one.name, None) for one in dataclasses.fields(module)}
    else:
        named = vars(module)
    return {name: one for name, one in named.items() if not name.startswith("_") and _is_setting(one)}


def _floats(returned: Any) -> list[jax.Array]:
    """Return the float arrays of what a model returned, in order."""
    leaves = [one for one in jax.tree.leaves(returned) if hasattr(one, "dtype")]
    return [one for one in leaves if jnp.issubdtype(one.dtype, jnp.floating)]


def _outputs(made: Sequence[Any], name: str) -> tuple[NDArray[np.float64], ...]:
    if not made:
        raise SpecError("inputs", f"{name} returned no float array")
    return _numpy(made)


def _numpy(made: Sequence[Any]) -> tuple[NDArray[np.float64], ...]:
    return tuple(np.asarray(one, np.float64) for one in made)


def _is_setting(value: Any) -> bool:
    plain = isinstance(value, bool | int | float | str)
    return plain or (isinstance(value, tuple) and all(isinstance(one, int | str) for one in value))


def _arrays(inputs: Inputs, dtype: Any = jnp.float64) -> Inputs:
    def one(value: Any) -> Any:
        if not isinstance(value, np.ndarray | jax.Array):
            return value
        return jnp.asarray(value, dtype) if jnp.issubdtype(value.dtype, jnp.floating) else jnp.asarray(value)

    if isinstance(inputs, Mapping):
        return {name: one(value) for name, value in inputs.items()}
    return tuple(one(value) for value in inputs)


def _parted(inputs: Inputs) -> tuple[Any, Any]:
    """Return what is no array, with a hole for each array, and the arrays."""
    items = dict(inputs) if isinstance(inputs, Mapping) else dict(enumerate(inputs))
    arrays = {str(key): value for key, value in items.items() if isinstance(value, jax.Array)}
    static = (isinstance(inputs, Mapping), {key: None if str(key) in arrays else v for key, v in items.items()})
    return static, arrays


def _joined(static: Any, arrays: Mapping[str, Any]) -> Inputs:
    named, items = static
    filled = {key: arrays.get(str(key), value) for key, value in items.items()}
    return filled if named else tuple(filled.values())
