"""What reads objects of torch.optim: parameter groups by rules, and state in the neutral form of `parity.state`.

Knows no twin and nothing of JAX; torch.optim itself takes the steps, but for Lion, which it lacks, and for Muon of
whole models.
"""

from parity.errors import MissingFrameworkError

COMPANIONS = ("torch", "numpy", "ml_dtypes", "xxhash", "tomli_w")
"""Modules that this package needs, without those that they need themselves."""

try:
    from torch_side.optim.groups import param_groups
    from torch_side.optim.lion import Lion
    from torch_side.optim.losses import losses, source
    from torch_side.optim.muon import Muon
    from torch_side.optim.state import from_neutral, kind_of, to_neutral
except ModuleNotFoundError as error:
    if error.name not in COMPANIONS:
        raise
    raise MissingFrameworkError("torch", error.name, __name__, COMPANIONS) from None

__all__ = ["Lion", "Muon", "from_neutral", "kind_of", "losses", "param_groups", "source", "to_neutral"]
