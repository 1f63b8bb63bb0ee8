"""Options of the commands that take two models: which they are, how they are built, what they are called with."""

from __future__ import annotations

import argparse

from parity import sides
from parity.checks.models import ModelSource, arguments
from parity.errors import SpecError

__all__ = ["ModelOption", "add_models", "given_inputs", "given_models"]


class ModelOption(argparse.Action):
    """Keep models in the order in which they were given, whichever framework they are of."""

    def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
        given = list(getattr(namespace, "models", None) or [])
        namespace.models = [*given, (option_string.removeprefix("--"), values)]


def add_models(parser: argparse.ArgumentParser, *, trainers: bool = False) -> None:
    """Add the options that say which two models they are, and what both are called with.

    Args:
        parser: Gets them.
        trainers: Whether they are modules of trainers, which hold a model and more.
    """
    for name, what in (("torch", "PyTorch"), ("jax", "JAX: of NNX or linen, a pytree, or (parameters, function)")):
        parser.add_argument(
            f"--{name}",
            action=ModelOption,
            metavar="MODULE" if trainers else "MODULE:NAME",
            help=f"the module of a trainer of {what.partition(':')[0]}; two in all"
            if trainers
            else f"a model of {what}, its class, or a function that makes it; two models in all",
        )
        parser.add_argument(
            f"--{name}-args",
            action="append",
            default=[],
            metavar="ARGS",
            help="what it is built with, as in a call: '64, layers=2', or MODULE:NAME; of two models, once for each",
        )
    parser.add_argument(
        "--inputs",
        action="append",
        default=[],
        metavar="INPUT",
        help="what both are called with: 'i[2,16]<65' for integers below 65, 'f[2,8]', 'b[2,16]', one for each, "
        "'f[2,3,8,8]->[0,2,3,1]' for other axes in the second model; or MODULE:NAME, arrays or a function that gives "
        "them; by default `inputs` of the model's own module, or what its first layer takes",
    )
    parser.set_defaults(models=[])


def given_models(options: argparse.Namespace) -> tuple[ModelSource, ModelSource]:
    """Return the two models: one of each framework with PyTorch's first, or two of one in their order.

    Raises:
        SpecError: There are not two, or one cannot be imported.
    """
    if len(options.models) != 2:
        raise SpecError(
            "models", f"expected two, as --torch mine:Model --jax mine_jax:Model, got {len(options.models)}"
        )
    found = []
    used = {"torch": 0, "jax": 0}
    for framework, text in sorted(options.models, key=lambda one: one[0] != "torch"):
        texts = getattr(options, f"{framework}_args")
        at, used[framework] = used[framework], used[framework] + 1
        args, kwargs = arguments(f"--{framework}-args", texts[at]) if at < len(texts) else ((), {})
        made = sides.named_object(f"--{framework}", text)
        found.append(ModelSource(f"--{framework}", text, made, args, kwargs))
    for framework, count in used.items():
        if len(getattr(options, f"{framework}_args")) > count:
            raise SpecError(f"--{framework}-args", f"is given more often than --{framework}")
    return found[0], found[1]


def given_inputs(options: argparse.Namespace) -> object:
    """Return what the models are called with: texts, an object of the user, or None.

    Raises:
        SpecError: An object of the user that cannot be imported.
    """
    texts: list[str] = options.inputs
    if len(texts) == 1 and ":" in texts[0] and "[" not in texts[0]:
        return sides.named_object("--inputs", texts[0])
    return texts or None
