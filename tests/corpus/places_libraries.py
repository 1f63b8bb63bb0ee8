"""Places in PyTorch and JAX: hooks, defaults, buffers that are not saved, generators, callbacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from tests.corpus.place import Ways, as_floats, from_floats, table

__all__ = ["LIBRARIES"]


def closure_of_a_forward_hook(first: Any) -> Ways:
    layer, inside = nn.Linear(1, 1), [first]
    layer.register_forward_hook(lambda *_: inside.append(inside[-1]))

    def write(value: Any) -> None:
        hook = next(iter(layer._forward_hooks.values()))
        hook.__closure__[0].cell_contents[:] = [value]  # type: ignore[attr-defined, index]

    def read() -> Any:
        hook = next(iter(layer._forward_hooks.values()))
        return hook.__closure__[0].cell_contents[-1]  # type: ignore[attr-defined, index]

    return read, write


def non_persistent_buffer(first: Any) -> Ways:
    layer = nn.Linear(1, 1)
    layer.register_buffer("slow", torch.tensor(as_floats(first), dtype=torch.float64), persistent=False)

    def write(value: Any) -> None:
        layer.slow.copy_(torch.tensor(as_floats(value), dtype=torch.float64))  # type: ignore[operator, union-attr]

    return lambda: from_floats(layer.slow.tolist(), first), write  # type: ignore[operator, union-attr]


def plain_attribute_of_a_module(first: Any) -> Ways:
    layer = nn.Linear(1, 1)
    layer.slow = first

    def write(value: Any) -> None:
        layer.slow = value

    return lambda: layer.slow, write


def dict_of_a_module(first: Any) -> Ways:
    layer = nn.Linear(1, 1)
    layer.__dict__["_parts"] = {"slow": first}
    return lambda: layer._parts["slow"], lambda value: layer._parts.__setitem__("slow", value)  # type: ignore[operator, union-attr, index]


def defaults_of_an_optimizer(first: Any) -> Ways:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    optimizer.defaults["slow"] = first
    return lambda: optimizer.defaults["slow"], lambda value: optimizer.defaults.__setitem__("slow", value)


def attribute_of_a_tensor(first: Any) -> Ways:
    anchor = torch.zeros(1)
    anchor.slow = first  # type: ignore[attr-defined]

    def write(value: Any) -> None:
        anchor.slow = value  # type: ignore[attr-defined]

    return lambda: anchor.slow, write  # type: ignore[attr-defined]


def rest_of_a_storage(first: Any) -> Ways:
    seen = torch.zeros(2 * len(first), dtype=torch.float64)[: len(first)]

    def write(value: Any) -> None:
        whole = torch.empty(0, dtype=torch.float64).set_(seen.untyped_storage())  # type: ignore[call-overload]
        whole[len(first) :] = torch.tensor(as_floats(value), dtype=torch.float64)

    def read() -> Any:
        whole = torch.empty(0, dtype=torch.float64).set_(seen.untyped_storage())  # type: ignore[call-overload]
        return from_floats(whole[len(first) :].tolist(), first)

    write(first)
    return read, write


def gradient_of_a_leaf(first: Any) -> Ways:
    leaf = torch.zeros(len(first), dtype=torch.float64, requires_grad=True)

    def write(value: Any) -> None:
        leaf.grad = torch.tensor(as_floats(value), dtype=torch.float64)

    write(first)
    return lambda: from_floats(leaf.grad.tolist(), first), write  # type: ignore[union-attr]


def words_of_a_torch_generator(first: Any) -> Ways:
    streams = [torch.Generator() for _ in first]

    def write(value: Any) -> None:
        for stream, number in zip(streams, as_floats(value), strict=True):
            stream.manual_seed(int((number + 8) * 2**40))

    write(first)
    return lambda: from_floats((stream.initial_seed() / 2**40 - 8 for stream in streams), first), write


def context_of_an_autograd_node(first: Any) -> Ways:
    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, box: list[Any]) -> torch.Tensor:
            ctx.box = box
            return x.clone()

    out = Through.apply(torch.zeros(1, requires_grad=True), [first])
    return lambda: out.grad_fn.box[0], lambda value: out.grad_fn.box.__setitem__(0, value)


def callback_of_jax(first: Any) -> Ways:
    import jax

    host = {"slow": np.array(as_floats(first))}

    def leave(value: Any) -> Any:
        host["slow"] = np.array(value, np.float64)
        return np.float32(0)

    shape = jax.ShapeDtypeStruct((), np.float32)
    called = jax.jit(lambda value: jax.pure_callback(leave, shape, value))

    def write(value: Any) -> None:
        called(np.array(as_floats(value), np.float32)).block_until_ready()

    write(first)
    return lambda: from_floats(host["slow"], first), write


LIBRARIES = table(
    closure_of_a_forward_hook="inside layer",
    non_persistent_buffer="layer.slow",
    plain_attribute_of_a_module="layer.slow",
    dict_of_a_module="_parts",
    defaults_of_an_optimizer="defaults",
    attribute_of_a_tensor="anchor slow",
    rest_of_a_storage="seen",
    gradient_of_a_leaf="leaf",
    words_of_a_torch_generator="streams",
    context_of_an_autograd_node="out box",
    callback_of_jax="host",
)(
    closure_of_a_forward_hook,
    non_persistent_buffer,
    plain_attribute_of_a_module,
    dict_of_a_module,
    defaults_of_an_optimizer,
    attribute_of_a_tensor,
    rest_of_a_storage,
    gradient_of_a_leaf,
    words_of_a_torch_generator,
    context_of_an_autograd_node,
    callback_of_jax,
)
