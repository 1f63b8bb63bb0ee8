"""Components in the field's words, guessed from what a path calls a value whose kind does not say what it is."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["component_from_name", "slot_component"]

_HINTS: tuple[tuple[str, str], ...] = (
    ("ema", r"(^|_)(emas?|swa|polyak)(_|\d|$)|shadow|averag|teacher|target_(net|model|params)"),
    ("optimizer.master_params", r"master|fp32_(params|copy|weights)"),
    ("best", r"best|patience|bad_epochs|early_stop|(^|_)wait(ed)?$|(^|_)stop(ped)?(_flag)?$|top_?k"),
    ("model.buffers", r"normali[sz]er|batch_?stats|running_(mean|var)"),
    ("scaler.scale", r"loss_scale|scaler"),
    ("scaler.growth_tracker", r"growth"),
    ("optimizer.first_moment", r"exp_avg$|first_moment|^mu$|^m$"),
    ("optimizer.second_moment", r"exp_avg_sq|second_moment|^nu$|^v$"),
    ("optimizer.momentum", r"momentum|velocity|^trace$"),
    ("optimizer.state", r"opt_?state|moment|(^|_)optim(izer)?$"),
    ("schedule.lr", r"(^|_)lr$|learning_rate"),
    ("schedule.step", r"sched|warm_?up"),
    ("model.buffers", r"buffers|obs_(mean|var|count)"),
    ("rng", r"rng|(^|_)keys?$|seed|generator|random"),
    ("gradients", r"(^|_)grads?$|gradient|accum"),
    ("data.position", r"loader|sampler|epoch|perm|order|cursor|position|(^|_)pos$|offset|shuffle|indices|"
     r"(^|_)idx|iterator|stream|prefetch|queue|pending|buffer|leftover|consumed|dataset"),
    ("data.batch", r"batch|inputs?$|targets?$|labels?$|images?$|tokens$|(^|_)ids$|^x$|^y$|^xb$|^yb$"),
    ("counters.step", r"step|(^|_)iter|count|(^|_)seen|(^|_)n$|updates|samples"),
    ("loss", r"loss"),
    ("model.params", r"params|weights?$|kernel|bias|theta|^w\d*$|^b\d*$|model|net$"),
)  # fmt: skip
_PATTERNS = [(component, re.compile(pattern)) for component, pattern in _HINTS]

_OPTIMIZER = re.compile(r"^(\w+_)?opt(im|imizer)?(_?states?)?$")
"""Names of an optimizer or of its state, as whole words."""

_FRAME = re.compile(r"^(\w+\(\)\.|[\w.]+:)")
"""The function of an outer frame, as `train_epoch().model`, or a module, as `helper:model`: its name says nothing of
a variable's purpose."""

_SLOTS = {
    "exp_avg": "first_moment",
    "exp_avg_sq": "second_moment",
    "mu": "first_moment",
    "nu": "second_moment",
    "momentum_buffer": "momentum",
    "trace": "momentum",
    "velocity": "momentum",
    "square_avg": "second_moment",
    "max_exp_avg_sq": "max_second_moment",
    "nu_max": "max_second_moment",
    "count": "step",
    "step": "step",
}


_MOMENTS = frozenset(("mu", "nu", "exp_avg", "exp_avg_sq"))
"""Variables that hold moments by themselves, in loops that keep no optimizer state as one."""


@lru_cache(maxsize=1 << 16)  # every capture of a run asks for the same paths
def component_from_name(path: str) -> str:
    """Return the component that a path's words point to: the last word that says something, else the path itself.

    Example:
        >>> component_from_name("self.best_accuracy"), component_from_name("ema.shadow['head.weight']")
        ('best', 'ema')
        >>> component_from_name("self.helper.thing"), component_from_name("train_epoch().best_accuracy")
        ('self.helper.thing', 'best')
    """
    path_in_frame = _FRAME.sub("", path)
    words = [word for word in re.split(r"[^0-9A-Za-z_]+", path_in_frame) if word and not word.isdigit()]
    for component, pattern in _PATTERNS[:4]:  # an averaged, a master or the best copy stays one, whatever is inside
        if any(pattern.search(word.lower()) for word in words):
            return component
    if words and words[0] in _MOMENTS:
        return slot_component(words[0])
    if any(_OPTIMIZER.search(word.lower()) for word in words):  # what is inside is named after parameters
        slots = [word for word in words if word in _SLOTS]
        return slot_component(slots[0]) if slots else "optimizer.state"
    for word in reversed(words):
        for component, pattern in _PATTERNS:
            if pattern.search(word.lower()):
                return component
    return path


def slot_component(slot: str) -> str:
    """Return the component of an optimizer's slot, by the name that its framework uses.

    Example:
        >>> slot_component("exp_avg_sq"), slot_component("prev")
        ('optimizer.second_moment', 'optimizer.prev')
    """
    return f"optimizer.{_SLOTS.get(slot, slot)}"
