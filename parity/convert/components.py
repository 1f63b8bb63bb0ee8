"""Which component of a training state the parts of a checkpoint are, by the names that people give them.

A name is evidence, no proof: what follows from names alone is *inferred*. What the file says of itself is *read*.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from parity.formats import Array, Key

__all__ = ["COMPONENTS", "SCALER", "STEP_NAMES", "Fact", "Part", "component_of_key"]

Fact = Literal["read", "inferred", "unknown"]

COMPONENTS = (
    *("parameters", "optimizer", "schedule", "loss scaler", "random streams", "data position", "counters"),
    *("averaged parameters", "best so far", "configuration", "other"),
)
"""What a training state is made of, in the order in which it is shown."""

STEP_NAMES = ("step", "global_step", "iter_num", "iteration", "steps", "global_steps")
"""Names of the counter of completed steps, in the order in which they are looked for."""

SCALER = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}
"""Keys of the state of `torch.amp.GradScaler`."""

_TABLE: tuple[tuple[str, str], ...] = (
    ("averaged parameters", r"ema|ema_.*|.*_ema|swa|averaged?_model|model_ema|shadow.*"),
    (
        "optimizer",
        r"opt|optim|optimizers?|.*_optimizer|optimizer_.*|opt_states?|optimizer_states?|optimizer_state_dict",
    ),
    ("schedule", r".*sched.*"),
    ("loss scaler", r"(grad_?)?scaler.*|amp(_scaler)?|mixedprecision.*|loss_?scale.*|dynamic_scale"),
    ("random streams", r".*rng.*|.*random.*|seeds?|.*generator_state.*|dropout_keys?|keys?"),
    (
        "data position",
        r".*(sampler|loader|dataset|data_iter|iterator|data_position|cursor).*|data|loops|fit_loop|batch_idx",
    ),
    ("best so far", r"best.*|callbacks|early_stopping.*|trainer_state.*"),
    (
        "counters",
        r"(global_)?steps?|step_.*|(global_)?epochs?|iter(ation)?s?|iter_num|it|i|count|updates|counters|"
        r"(num|total|consumed)_.*",
    ),
    (
        "configuration",
        r".*(config|args|hparams|hyper_?param|version|metadata|spec|arch).*|hparams_name|legacy_.*|meta|label",
    ),
    (
        "parameters",
        r"(.*_)?(model|net|network|module|params|parameters|weights|state_dict|variables|batch_stats|buffers)"
        r"(_states?|_state_dict)?(_\d+)?|encoder|decoder|backbone|transformer|generator|discriminator",
    ),
)
_PATTERN = re.compile("|".join(f"(?P<c{COMPONENTS.index(component)}>{pattern})" for component, pattern in _TABLE))
"""All rows as one, each a group by the number of its component: the first row that fits a whole name is taken."""


@dataclass(frozen=True)
class Part:
    """A component that a checkpoint has, and where."""

    component: str
    """One of `COMPONENTS`."""
    fact: Fact
    evidence: str
    """Why it is taken for that, as a phrase."""
    leaves: Mapping[tuple[Key, ...], Any]
    """What it holds, by keys."""

    @property
    def arrays(self) -> list[Array]:
        """Return its arrays."""
        return [leaf for leaf in self.leaves.values() if isinstance(leaf, Array)]

    @property
    def nbytes(self) -> int:
        """Return the bytes of its arrays."""
        return sum(array.nbytes for array in self.arrays)


def component_of_key(key: str) -> str | None:
    """Return the component that a top-level name stands for; None if the name says nothing.

    Example:
        >>> component_of_key("lr_schedulers"), component_of_key("model_state_dict"), component_of_key("layers")
        ('schedule', 'parameters', None)
    """
    match = _PATTERN.fullmatch(key.lower())
    return None if match is None else COMPONENTS[int(str(match.lastgroup)[1:])]
