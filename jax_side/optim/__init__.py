"""The optimizers of torch.optim as Optax transformations, exact in float64, with their state both ways.

Knows no twin and no torch: what crosses is the neutral form of `parity.contract`. Every function is named as the
class in lower case and takes its arguments, with its defaults; a learning rate may also be given with each update.
"""

from parity.errors import MissingFrameworkError

COMPANIONS = ("jax", "optax", "numpy", "xxhash", "tomli_w")
"""Modules that this package needs, without those that they need themselves."""

try:
    from jax_side.optim.adam import adam, adamax, adamw, nadam, radam
    from jax_side.optim.adaptive import adadelta, adagrad, rmsprop
    from jax_side.optim.clipping import clip_by_global_norm, clip_by_group_norm, clip_by_value
    from jax_side.optim.groups import Group, Optimizer, OptimState
    from jax_side.optim.leaves import Leaves
    from jax_side.optim.losses import losses, translations
    from jax_side.optim.matrices import adafactor, muon
    from jax_side.optim.momentum import asgd, lion, rprop, sgd
    from jax_side.optim.state import from_neutral, optimizer_of, to_neutral
    from jax_side.optim.transform import by_name
except ModuleNotFoundError as error:
    if error.name not in COMPANIONS:
        raise
    raise MissingFrameworkError("jax", error.name, __name__, COMPANIONS) from None

__all__ = [
    "Group",
    "Leaves",
    "OptimState",
    "Optimizer",
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "asgd",
    "by_name",
    "clip_by_global_norm",
    "clip_by_group_norm",
    "clip_by_value",
    "from_neutral",
    "lion",
    "losses",
    "muon",
    "nadam",
    "optimizer_of",
    "radam",
    "rmsprop",
    "rprop",
    "sgd",
    "to_neutral",
    "translations",
]
