"""What reads objects of torch.optim: parameter groups by rules, and state in the neutral form of `parity.contract`.

Knows no twin and nothing of JAX; torch.optim itself takes the steps.
"""

from torch_side.optim.groups import param_groups
from torch_side.optim.losses import losses, source
from torch_side.optim.state import from_neutral, kind_of, to_neutral

__all__ = ["from_neutral", "kind_of", "losses", "param_groups", "source", "to_neutral"]
