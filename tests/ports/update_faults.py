"""What people and code generators get wrong in the update of a port: a trainer, its wrong port, and what may be said.

Each row has the words that a right cause has, and those of one that is true but says less; a cause without either is
false. `python -m tests.ports.update_faults` prints the table.
"""

from __future__ import annotations

import re
import sys
from collections import Counter

import numpy as np

from parity.checks.proving.update_causes import update_cause
from tests.ports.optimizer_rules import ascended, by_parts, made
from tests.ports.small_walks import walk_of

__all__ = ["FAULTS", "answer_of", "verdict_of"]


def flat(leaf: str) -> bool:
    return leaf in "bsr"


def deep(leaf: str) -> bool:
    return not flat(leaf)


def warm(over: int, begin: int = 1, top: float = 0.01):
    return lambda at: top * min(1.0, (at - 1 + begin) / over)


def cosine(total: int, floor: float = 0.0, top: float = 0.01, shift: int = 0):
    return lambda at: floor + (top - floor) * (1 + np.cos(np.pi * min((at - 1 + shift) / total, 1.0))) / 2


def warm_cosine(total: int, over: int = 3, begin: int = 1, whole: bool = True):
    def rate(at: int) -> float:
        if at <= over:
            return 0.01 * (at - 1 + begin) / over
        part = (at - 1 - over) / (total - over if whole else total)
        return 0.01 * (1 + np.cos(np.pi * part)) / 2

    return rate


def restarts(period: int, times: int):
    def rate(at: int) -> float:
        n, length = at - 1, period
        while n >= length:
            n -= length
            length *= times
        return 0.01 * (1 + np.cos(np.pi * n / length)) / 2

    return rate


def stepped(every: int, factor: float, shift: int = 0):
    return lambda at: 0.01 * factor ** ((at - 1 + shift) // every)


def each(factor: float):
    return lambda at: 0.01 * factor ** (at - 1)


def poly(power: float, total: int = 10):
    return lambda at: 0.01 * (1 - (at - 1) / total) ** power


def root(over: int, scale: float = 1.0):
    return lambda at: 0.01 * scale * min((at) ** -0.5, at * over**-1.5)


def cycled(at: int) -> float:
    return 0.95 - 0.1 * np.sin(at / 3)


def grown(at: int) -> float:
    return min(0.9, (1 + at) / (10 + at))


SGD, MOMENTUM, ADAM = ("sgd", {"rate": 0.05}), ("momentum", {"rate": 0.05}), ("adam", {})
W, L2, DECOUPLED = {"decay": 0.1}, {"decay": 0.1, "decay_at": "l2"}, {"decay": 0.1}
LAYERED = {"groups": lambda leaf: {"w": 0.25, "v": 0.5}.get(leaf, 1.0)}
CLIP, VALUE, TELLS = {"clip": ("norm", 0.2)}, {"clip": ("value", 0.1)}, {"tells": True}


def fault(kind, settings, change, right, vague="", port=None):  # type: ignore[no-untyped-def]
    """Return a row: a trainer, what its port has changed, and what may be said of that."""
    return (kind, dict(settings)), (port or kind, (settings if port is None else {}) | change), right, vague


F = fault
FAULTS = {
    # Adam and its kin
    "adam: epsilon ten times": F("adam", {"eps": 1e-4}, {"eps": 1e-3}, r"^epsilon"),
    "adam: epsilon under the root": F("adam", {"eps": 1e-4}, {"eps_at": "under"}, r"^epsilon.*under (it|the root)"),
    "adam: epsilon before the correction": F("adam", {"eps": 1e-4}, {"eps_at": "uncorrected"},
                                             r"^epsilon.*as it is.*correct", r"^epsilon"),
    "adam: no correction": F("adam", {}, {"bias": (False, False)}, r"^bias correction.*its moments"),
    "adam: first not corrected": F("adam", {}, {"bias": (False, True)}, r"^bias correction.*first"),
    "adam: second not corrected": F("adam", {}, {"bias": (True, False)}, r"^bias correction.*second"),
    "adam: count one ahead": F("adam", {}, {"shift": 1}, r"^bias correction.*count", r"^bias correction"),
    "adam: beta1": F("adam", {}, {"b1": 0.8}, r"^beta1"),
    "adam: beta2": F("adam", {}, {"b2": 0.99}, r"^beta2"),
    "adam: both betas": F("adam", {}, {"b1": 0.8, "b2": 0.95}, r"^betas?.*0\.8|^beta1", r"^beta2"),
    "adam: rate": F("adam", {}, {"rate": 0.02}, r"^learning rate of the first update"),
    "adam: rate, told": F("adam", TELLS, {"rate": 0.02}, r"^learning rate of the first update.*0.02"),
    "adam: amsgrad absent": F("adam", {"slots": ("max",), "b2": 0.5}, {"slots": ()}, r"^AMSGrad"),
    "adam: amsgrad added": F("adam", {"b2": 0.5}, {"slots": ("max",)}, r"^AMSGrad"),
    "adam: amsgrad kept, not used": F("adam", {"slots": ("max",), "b2": 0.5}, {"max_unused": True},
                                      r"^AMSGrad: the trainer divides by"),
    "adam: amsgrad used, only kept before": F("adam", {"slots": ("max",), "b2": 0.5, "max_unused": True},
                                              {"max_unused": False}, r"^AMSGrad: the port divides by"),
    "adam: amsgrad of the corrected": F("adam", {"slots": ("max",), "b2": 0.5}, {"max_of": "corrected"},
                                        r"^AMSGrad.*(correct)"),
    "adam: Nesterov": F("adam", {}, {"nesterov": True}, r"^Nesterov"),
    "nadam: no schedule": F("nadam", {}, {"scheduled": False}, r"^Nesterov|NAdam"),
    "nadam: Adam": F("nadam", {}, {}, r"^Nesterov|NAdam", port="adam"),
    "radam: threshold": F("radam", {"b2": 0.7}, {"threshold": 4.0}, r"threshold"),
    "radam: length": F("radam", {"b2": 0.99}, {"counted": lambda at: 1},
                       r"^second moment: at update 2 the port divides.*100.497 long at this update, without the num"),
    "radam: length of the next": F("radam", {"b2": 0.9}, {"counted": lambda at: at + 1},
                                   r"^second moment: at update 6 the trainer.*warm-up\)$"),
    "radam: no factor": F("radam", {"b2": 0.9}, {"unrectified": True}, r"^rectification: the port does not"),
    "radam: a factor more": F("radam", {"b2": 0.9, "unrectified": True}, {"unrectified": False},
                              r"^rectification: the trainer does not"),
    "radam: no factor, decay": F("radam", {"b2": 0.9, "decay": 0.02}, {"unrectified": True},
                                 r"^rectification: the port does not"),
    "radam: a rate as its factor": F("radam", {"b2": 0.9}, {"rate": lambda at: 0.01 * (3.91885 if at > 5 else 1.0)},
                                     r"^schedule: the rates part at update 6", r"rectification"),
    "radam: Adam": F("radam", {}, {}, r"RAdam", r"^second moment", port="adam"),
    "belief: Adam": F("belief", {}, {}, r"Belief", r"^second moment", port="adam"),
    "belief: epsilon in the moment": F("belief", {"eps": 1e-4}, {"eps_inside_moment": True},
                                       r"epsilon", r"^second moment"),
    "adamax: epsilon": F("adamax", {"eps": 1e-8}, {"eps": 1e-2}, r"^epsilon", r"^second moment"),
    "lion: moment first": F("lion", {}, {"moment_first": True}, r"interpol|moment (is )?(first|before)|after its"),
    "lion: betas": F("lion", {}, {"lion": (0.95, 0.98)}, r"^(beta|momentum: .* of itself|momentum: it is)"),
    "lion: betas, clipped": F("lion", CLIP, {"lion": (0.9, 0.98)}, r"^momentum.*0\.99 of itself here, 0\.98.* 0\.2"),
    "lion: first share": F("lion", {}, {"lion": (0.3, 0.99)}, r"interpol|share|beta1"),
    "lion: no sign": F("lion", {}, {"no_sign": True}, r"sign"),
    # decay
    "decay: L2 for decoupled": F("adam", DECOUPLED, L2, r"^decay.*L2.*decoupled|^decay.*decoupled.*L2",
                                 r"^decay"),
    "decay: decoupled for L2": F("adam", L2, {"decay_at": "decoupled"},
                                 r"^decay.*L2.*decoupled|^decay.*decoupled.*L2", r"^decay"),
    "decay: absent": F("adam", DECOUPLED, {"decay": 0.0}, r"^(weight )?decay"),
    "decay: L2 absent": F("adam", L2, {"decay": 0.0}, r"^decay"),
    "decay: L2 strength": F("adam", L2, {"decay": 0.2}, r"^(weight )?decay"),
    "decay: strength": F("adam", DECOUPLED, {"decay": 0.2}, r"^weight decay: another strength.*stronger"),
    "decay: strength, told": F("adam", DECOUPLED | TELLS, {"decay": 0.2}, r"^weight decay: another str.*by 0\.1$"),
    "decay: not times the factors of leaves": F(
        "adam", DECOUPLED | LAYERED, {"decay_at": "no group"},
        r"^weight decay: the trainer's is in proportion to .* 0.00025 of w and 0.0005 of v .* 0.001 of every leaf",
    ),
    "decay: times the factors of leaves": F(
        "adam", DECOUPLED | LAYERED | {"decay_at": "no group"}, {"decay_at": "decoupled"},
        r"^weight decay: the port's is in proportion to .* 0.00025 of w and 0.0005 of v .* 0.001 of every leaf",
    ),
    "decay: not times the rate": F("adam", DECOUPLED, {"decay_at": "no rate"}, r"^weight decay.*(rate)",
                                   r"^weight decay"),
    "decay: not scheduled": F("adam", DECOUPLED | {"rate": warm(4)}, {"decay_at": "not scheduled"},
                              r"^weight decay.*(schedul|rate)", r"^weight decay"),
    "decay: after the step": F("adam", DECOUPLED, {"decay_at": "after"}, r"^weight decay.*after"),
    "decay: on norms": F("adam", DECOUPLED | {"mask": deep}, {"mask": lambda leaf: True},
                         r"^weight decay: on other leaves"),
    "decay: not on biases": F("adam", DECOUPLED, {"mask": deep}, r"^weight decay: on other leaves"),
    "decay: not on one matrix": F("adam", DECOUPLED, {"mask": lambda leaf: leaf != "w"},
                                  r"^weight decay: on other leaves.*w"),
    "decay: L2 not on biases": F("momentum", L2, {"mask": deep}, r"^decay.*leaves.*"),
    "decay: L2 before the clip": F("momentum", L2 | CLIP, {"decay_at": "before clip"}, r"^decay.*clip", r"^decay"),
    "decay: after momentum": F("momentum", L2 | {"rate": 0.05}, {"decay_at": "decoupled"},
                               r"^decay.*decoupled", r"^decay"),
    "decay: L2 of squares alone": F("rmsprop", {"eps": 1e-4}, L2, r"^decay: the port adds 0\.1 .*\(L2\), the tr"),
    "decay: L2 of a sum": F("adagrad", {"eps": 1e-6} | L2, {"decay": 0.2}, r"^decay: 0\.1 of.*here, 0\.2 there"),
    "decay: L2 of a sum, biases": F("adagrad", {"eps": 1e-6} | L2, {"mask": deep},
                                    r"^decay: the trainer adds.*\(L2\) of b, r, s too"),
    "decay: decoupled of squares": F("rmsprop", {"eps": 1e-4} | L2, {"decay_at": "decoupled"},
                                     r"^decay: the trainer adds 0\.1.*the port takes.*decoupled"),
    "decay: L2, Adadelta": F("adadelta", {"rate": 1.0} | L2, {"decay": 0.0}, r"^decay: the trainer adds 0\.1"),
    "decay: of values clipped": F("adam", L2 | VALUE, {"decay": 0.2}, r"^decay: 0\.1 of.*here, 0\.2 there"),
    "decay: beside a clip": F("sgd", {"rate": 0.05} | CLIP, {"decay": 0.1}, r"^weight decay"),
    # momentum
    "sgd: Nesterov": F(*MOMENTUM, {"nesterov": True}, r"^Nesterov"),
    "sgd: Nesterov absent": F("momentum", {"rate": 0.05, "nesterov": True}, {"nesterov": False}, r"^Nesterov"),
    "sgd: Nesterov twice": F("momentum", {"rate": 0.05, "nesterov": True}, {"nesterov": "twice"}, r"^Nesterov"),
    "sgd: momentum": F(*MOMENTUM, {"b1": 0.8}, r"^momentum"),
    "sgd: momentum an average": F(*MOMENTUM, {"first": 0.1, "later": 0.1}, r"^momentum"),
    "sgd: first whole": F("momentum", {"rate": 0.05, "first": 1.0, "later": 0.5}, {"first": 0.5}, r"^momentum"),
    "sgd: no dampening": F("momentum", {"rate": 0.05, "later": 0.5}, {"later": 1.0}, r"^momentum"),
    "sgd: momentum absent": F("momentum", {"rate": 0.05}, {"rate": 0.05}, r"momentum|no slot", port="sgd"),
    "sgd: rate inside": F("momentum", {"rate": warm(4, top=0.05)}, {"inside": True},
                          r"^momentum.*rate"),
    "sgd: rate": F(*MOMENTUM, {"rate": 0.01}, r"^learning rate"),
    "sgd: rate of a group": F("momentum", {"rate": 0.05}, {"groups": lambda leaf: 0.1 if leaf in "vb" else 1.0},
                              r"^learning rate.*groups"),
    "adam: rate of a group does not fall": F("adam", {"rate": stepped(5, 0.3)}, {
        "groups_at": lambda leaf, at: 1 / 0.3 if at > 5 and leaf in "vb" else 1.0},
        r"^learning rate of update 6,.*groups"),
    "sgd: layer-wise decay": F("adam", {"groups": lambda leaf: {"w": 0.25, "v": 0.5}.get(leaf, 1.0)}, {
        "groups": lambda leaf: {"w": 0.5, "v": 0.25}.get(leaf, 1.0)}, r"^learning rate.*groups"),
    "sgd: a leaf frozen": F("momentum", {"rate": 0.05}, {"trains": lambda leaf: leaf != "v"}, r"^frozen.*v"),
    # second moments alone
    "rmsprop: epsilon under the root": F("rmsprop", {"eps": 1e-3}, {"eps_at": "under"}, r"^epsilon.*under"),
    "rmsprop: not centred": F("rmsprop", {"slots": ("mean",), "eps": 1e-3}, {"slots": ()}, r"centred|mean", ""),
    "rmsprop: centred": F("rmsprop", {"eps": 1e-3}, {"slots": ("mean",)}, r"centred|mean", ""),
    "rmsprop: kept": F("rmsprop", {}, {"kept": 0.9}, r"^beta2"),
    "rmsprop: begins at one": F("rmsprop", {"eps": 1e-3}, {"begin_sq": 1.0}, r"begins at"),
    "rmsprop: momentum, not centred": F("rmsprop", {"slots": ("mean", "m"), "eps": 1e-3}, {"slots": ("m",)},
                                        r"centred"),
    "rmsprop: momentum, epsilon": F("rmsprop", {"slots": ("m",), "eps": 1e-3}, {"eps_at": "under"},
                                   r"^epsilon.*under"),
    "rmsprop: value": F("rmsprop", {"slots": ("m",), "eps": 1e-3, "clip": ("value", 0.2)}, {"clip": ("value", 0.1)},
                        r"^clipping.*0\.1"),
    "clip: half the parts": F("adam", CLIP | {"loss": by_parts()}, {"scale": 1.5}, r"^clipping.*scaled"),
    "rmsprop: momentum absent": F("rmsprop", {"slots": ("m",), "rate": lambda at: 0.01 * 0.9**at}, {"slots": ()},
                                  r"^momentum: the trainer moves by m, which keeps 0\.9 of itself; the port by what"),
    "rmsprop: momentum more": F("rmsprop", {}, {"slots": ("m",)}, r"^momentum: the port moves by m, which keeps 0"),
    "rmsprop: rate inside": F("rmsprop", {"slots": ("m",), "eps": 1e-3, "rate": warm(4)}, {"rate_inside": True},
                              r"^momentum.*rate"),
    "adagrad: mean": F("adagrad", {"eps": 1e-3}, {"mean": True}, r"^second moment.*Adagrad"),
    "adagrad: begins at a tenth": F("adagrad", {"eps": 1e-3}, {"begin_sq": 0.1}, r"begins at"),
    "adagrad: the rate decays": F("adagrad", {"eps": 1e-6, "rate": lambda at: 0.05 / (0.9 + 0.1 * at)},
                                  {"rate": 0.05}, r"rate"),
    "adagrad: epsilon under the root": F("adagrad", {"eps": 1e-3}, {"eps_at": "under"}, r"^epsilon.*under"),
    "adadelta: rho": F("adadelta", {"rate": 1.0}, {"rho": 0.95}, r"^beta2"),
    "adadelta: epsilon": F("adadelta", {"rate": 1.0}, {"eps": 1e-5}, r"^epsilon.*1e-06 here, 1e-05 there"),
    "adadelta: epsilon, decayed": F("adadelta", {"rate": 0.3} | L2, {"eps": 1e-8}, r"^epsilon.*1e-06 here, 1e-08"),
    "adadelta: epsilon beside": F("adadelta", {"rate": 1.0, "eps": 1e-3}, {"eps_at": "beside roots"},
                                  r"^epsilon.*under both roots here, beside them there"),
    "adadelta: rate": F("adadelta", {"rate": 1.0}, {"rate": 0.5}, r"^learning rate"),
    # trust ratios
    "lamb: decay after the ratio": F("adam", {"trust": "leaf", "decay": 0.1, "decay_at": "in trust"},
                                     {"decay_at": "decoupled"}, r"trust.*decay|decay.*trust"),
    "lamb: no ratio": F("adam", {"trust": "leaf"}, {"trust": None}, r"trust"),
    "lamb: ratio added": F("adam", {}, {"trust": "leaf"}, r"trust"),
    "lamb: ratio of the whole": F("adam", {"trust": "leaf"}, {"trust": "all"}, r"trust.*all"),
    "lamb: ratio clipped": F("adam", {"trust": "leaf"}, {"most": 1.0}, r"trust.*(clip|most)"),
    "lamb: not on biases": F("adam", {"trust": "leaf"}, {"trust_mask": True}, r"trust.*(leaves|b\b)"),
    "lamb: not corrected": F("adam", {"trust": "leaf"}, {"bias": (False, False)}, r"^bias correction|epsilon"),
    "lamb: no decay": F("adam", {"trust": "leaf", "decay": 0.1, "decay_at": "in trust"}, {"decay": 0.0},
                        r"decay"),
    "lars: decay out of the norm": F("sgd", {"trust": "lars", "decay": 0.1, "decay_at": "no", "decay_in_norm": True,
                                             "rate": 1.0}, {"decay_in_norm": False}, r"trust.*decay"),
    "lars: coefficient": F("sgd", {"trust": "lars", "rate": 1.0}, {"coefficient": 0.01}, r"^learning rate|trust"),
    "lars: on biases": F("sgd", {"trust": "lars", "rate": 1.0, "trust_mask": True}, {"trust_mask": False},
                         r"trust.*(leaves|b\b)"),
    "lars: absent": F("sgd", {"trust": "lars", "rate": 1.0}, {"trust": None}, r"trust"),
    # sharpness
    "sam: absent": F("sgd", {"rate": 0.05, "loss": ascended()}, {"loss": None}, r"SAM|ascend"),
    "sam: rho": F("momentum", {"rate": 0.05, "loss": ascended()}, {"loss": ascended(0.1)}, r"(SAM|ascend).*0\.1"),
    "sam: per leaf": F("momentum", {"rate": 0.05, "loss": ascended()}, {"loss": ascended(0.05, "leaf")},
                       r"(SAM|ascend).*leaf"),
    "sam: adaptive": F("momentum", {"rate": 0.05, "loss": ascended()}, {"loss": ascended(0.05, "adaptive")},
                       r"(SAM|ascend).*adaptive"),
    "sam: not taken back": F("momentum", {"rate": 0.05, "loss": ascended()}, {"loss": ascended(keeps=True)},
                             r"(SAM|ascend).*(taken back|subtract|from)"),
    "sam: Adam, rho": F("adam", {"loss": ascended()}, {"loss": ascended(0.1)}, r"(SAM|ascend).*0\.1"),
    "sam: and L2": F("momentum", {"rate": 0.05, "loss": ascended()}, L2, r"^decay: the port adds 0\.1.*\(L2\)"),
    "sam: and a clip": F("momentum", {"rate": 0.05, "loss": ascended()}, CLIP,
                         r"^clipping: the port clips the norm of the gradients \(4\.\d+\) to 0\.2"),
    "sam: and a momentum": F("momentum", L2 | {"rate": 0.05, "loss": ascended()}, {"b1": 0.8},
                             r"^momentum: from the second update on it is 0\.9.*0\.8"),
    "sam: Adam, and beta1": F("adam", {"loss": ascended()}, {"b1": 0.8}, r"^beta1"),
    "sam: and a rate": F("momentum", {"rate": 0.05, "loss": ascended()}, {"rate": 0.02}, r"^learning rate"),
    # clipping
    "clip: absent": F("momentum", {"rate": 0.05} | CLIP, {"clip": ("norm", 1e9)}, r"^clipping"),
    "clip: absent, Adam": F("adam", CLIP, {"clip": ("norm", 1e9)}, r"^clipping"),
    "clip: other norm": F("momentum", {"rate": 0.05} | CLIP, {"clip": ("norm", 0.1)}, r"^clipping.*0\.1"),
    "clip: per leaf": F("momentum", {"rate": 0.05} | CLIP, {"clip": ("leaf", 0.2)}, r"^clipping.*leaf by leaf"),
    "clip: of all for each leaf": F(
        "momentum", {"rate": 0.05, "nesterov": True, "clip": ("leaf", 0.1)} | L2, {"clip": ("norm", 0.1)},
        r"^clipping: leaf by leaf, each to one number here; there .*clipped by the norm of all\)$",
    ),
    "clip: per leaf, sgd": F("sgd", {"rate": 0.05} | CLIP, {"clip": ("leaf", 0.2)}, r"^clipping.*leaf"),
    "clip: absent, sgd": F("sgd", {"rate": 0.05} | CLIP, {"clip": ("norm", 1e9)}, r"^clipping", ""),
    "clip: value, sgd": F("sgd", {"rate": 0.05} | CLIP, {"clip": ("value", 0.1)}, r"^clipping.*value", ""),
    "clip: value, L2": F("momentum", {"rate": 0.05} | L2, VALUE, r"^clipping.*by value\) to 0\.1"),
    "clip: values, L2": F("adam", L2 | VALUE, {"clip": ("value", 0.2)}, r"^clipping.*0\.1, .*0\.2"),
    "clip: value of squares, L2": F("rmsprop", {"eps": 1e-4} | L2, VALUE, r"^clipping.*by value\) to 0\.1"),
    "clip: value for a norm, L2": F("adam", L2 | CLIP, VALUE, r"^clipping.*norm of all.*there every.*to 0\.1"),
    "clip: kept, L2": F("momentum", {"rate": 0.05} | L2 | CLIP, {"b1": 0.8}, r"^momentum.*0\.9 of itself here, 0\.8"),
    "clip: rate, L2": F("momentum", {"rate": 0.05} | L2 | VALUE, {"rate": 0.02}, r"^learning rate"),
    "clip: per group": F("adam", CLIP, {"clip": ("groups", 0.2)}, r"^clipping.*(group|part)", r"^gradient: leaves"),
    "clip: by value": F("momentum", {"rate": 0.05} | CLIP, {"clip": ("value", 0.1)}, r"^clipping.*by value"),
    "clip: always": F("momentum", {"rate": 0.05, "clip": ("norm", 9.0)}, {"clip": ("always", 9.0)},
                      r"^clipping.*(always|even|below)", r"^clipping"),
    "clip: the update": F("adam", CLIP | {"rate": 0.05}, {"clip_update": 0.2, "clip": ("norm", 1e9)},
                          r"^clipping.*update", r"^clipping"),
    "clip: the update, alone": F("adam", {}, {"clip_update": 0.2}, r"^clipping: the port.*whole update"),
    "clip: the update, not": F("adagrad", {"eps": 1e-6, "clip_update": 2.0}, {"clip_update": 1e9},
                               r"^clipping: the trainer.*whole update.* 2 \("),
    "clip: the update, momentum": F("momentum", {"rate": warm(4)}, {"clip_update": 0.2},
                                    r"^clipping: the port.*whole update.* 0\.2 \("),
    "clip: values of the update": F("adagrad", {"eps": 1e-3, "begin_sq": 0.1, "clip": ("value", 0.3)},
                                    {"clip": ("norm", 1e9), "clip_moves": 0.8}, r"^clipping.*by itself"),
    "clip: values of the update alone": F("adagrad", {"eps": 1e-3, "begin_sq": 0.1}, {"clip_moves": 0.8},
                                          r"^clipping.*update by itself"),
    "clip: epsilon": F("momentum", {"rate": 0.05} | CLIP, {"clip_epsilon": 0.0}, r"^clip epsilon"),
    "clip: after scaling": F("momentum", {"rate": 0.05} | CLIP, {"scale": 8.0, "rate": 0.05},
                             r"^(clipping|accumulation)"),
    "agc: axis": F("momentum", {"rate": 0.05, "clip": ("agc", 0.02)}, {"clip": ("agc other", 0.02)},
                   r"adaptive.*axis", r"adaptive"),
    "agc: whole leaf": F("momentum", {"rate": 0.05, "clip": ("agc", 0.02)}, {"clip": ("agc leaf", 0.02)},
                         r"adaptive.*(leaf|whole)", r"adaptive"),
    "agc: factor": F("momentum", {"rate": 0.05, "clip": ("agc", 0.02)}, {"clip": ("agc", 0.01)},
                     r"adaptive.*(0\.01|0\.5 times)", r"adaptive"),
    "agc: absent": F("adam", {"clip": ("agc", 0.02)}, {"clip": ("norm", 1e9)}, r"adaptive"),
    "agc: for a norm": F("adam", {"clip": ("agc", 0.02)}, {"clip": ("norm", 0.2)}, r"adaptive"),
    # accumulation
    "parts: sum": F("sgd", {"rate": 0.05, "loss": by_parts()}, {"loss": by_parts(sums=True)},
                    r"^accumulation.*3", r"^learning rate"),
    "parts: sum, Adam": F("adam", {"loss": by_parts()}, {"loss": by_parts(sums=True)}, r"^accumulation.*3"),
    "parts: last dropped": F("momentum", {"rate": 0.05, "loss": by_parts()}, {"loss": by_parts(used=2)},
                             r"accumulat|part"),
    "parts: clipped each": F("momentum", {"rate": 0.05, "loss": by_parts(after=0.2)}, {"loss": by_parts(clips=0.2)},
                             r"clip.*(part|micro)", r"^gradient.*(part|accum)"),
    "parts: weighted": F("adam", {"loss": by_parts()}, {"loss": by_parts(weights=(0.5, 0.3, 0.2))},
                         r"accumulat|part"),
    "central: absent": F("momentum", {"rate": 0.05, "central": True}, {"central": False}, r"central|mean"),
    # schedules; the trainer tells its rate, as PyTorch's optimizers do
    "schedule: warm-up from zero": F("adam", TELLS | {"rate": warm(4)}, {"rate": warm(4, 0)},
                                     r"schedule|learning rate|frozen"),
    "schedule: off by one": F("adam", TELLS | {"rate": cosine(10)}, {"rate": cosine(10, shift=1)},
                              r"off by one|learning rate"),
    "schedule: total counts the warm-up": F("adam", TELLS | {"rate": warm_cosine(10)},
                                            {"rate": warm_cosine(10, whole=False)}, r"^schedule: the rates part"),
    "schedule: floor": F("adam", TELLS | {"rate": cosine(10)}, {"rate": cosine(10, 0.001)},
                         r"^schedule: the rates part"),
    "schedule: restarts": F("adam", TELLS | {"rate": restarts(3, 2)}, {"rate": restarts(3, 1)},
                            r"^schedule: the rates part"),
    "schedule: step later": F("adam", TELLS | {"rate": stepped(3, 0.1)}, {"rate": stepped(4, 0.1)},
                              r"^schedule: the rates part", r"off by one"),
    "schedule: power": F("adam", TELLS | {"rate": poly(1.0)}, {"rate": poly(2.0)}, r"^schedule: the rates part"),
    "schedule: base": F("sgd", TELLS | {"rate": each(0.9)}, {"rate": each(0.95)}, r"^schedule: the rates part"),
    "schedule: root": F("adam", TELLS | {"rate": root(4)}, {"rate": root(4, 0.5)}, r"learning rate"),
    "schedule: linear": F("sgd", TELLS | {"rate": cosine(10)}, {"rate": poly(1.0)}, r"^schedule: the rates part"),
    "schedule: absent": F("momentum", TELLS | {"rate": cosine(10)}, {"rate": 0.01}, r"^schedule: the rates part"),
    "schedule: each epoch": F("momentum", TELLS | {"rate": stepped(4, 0.5)}, {"rate": stepped(1, 0.5)},
                              r"^schedule: the rates part"),
    "schedule: untold": F("momentum", {"rate": cosine(10)}, {"rate": 0.01}, r"^schedule: the rates part"),
    "cycle: by product": F("adam", {"b1": cycled}, {"product": True}, r"^bias correction.*product",
                           r"^bias correction"),
    "cycle: rate and momentum of another length": F(
        "momentum", TELLS | {"rate": cosine(10), "b1": cycled},
        {"rate": cosine(8), "b1": lambda at: cycled(1.5 * at)},
        r"^schedule: the rates part.*momentum"),
    "cycle: not cycled": F("adam", {"b1": cycled}, {"b1": 0.9}, r"^beta1|momentum.*cycl"),
    # averages
    "ema: decay": F("sgd", {"rate": 0.05, "ema": 0.9}, {"ema": 0.99}, r"^EMA: decay 0.9 here, 0.99 there"),
    "ema: warm-up": F("sgd", {"rate": 0.05, "ema": 0.9}, {"ema": grown}, r"^EMA: decay"),
    "ema: before the update": F("momentum", {"rate": 0.05, "ema": 0.9}, {"before": True}, r"^EMA: taken after"),
    "ema: every second": F("momentum", {"rate": 0.05, "ema": 0.9}, {"every": 2}, r"^EMA.*(moves|update)"),
    "ema: from zero": F("momentum", {"rate": 0.05, "ema": 0.9}, {"from_zero": True}, r"EMA.*zero|begins at"),
    "ema: absent": F("sgd", {"rate": 0.05, "ema": 0.9}, {}, r"^EMA absent", port="sgd"),
    "ema: begins later": F("adam", {"ema": 0.9}, {"begin": 3}, r"^EMA.*(begin|moves)"),
    "lookahead: share": F("sgd", {"rate": 0.05, "ema": 0.5, "every": 3, "sets": True}, {"ema": 0.2}, r"^lookahead"),
    "lookahead: period": F("sgd", {"rate": 0.05, "ema": 0.5, "every": 3, "sets": True}, {"every": 4},
                           r"^EMA|^lookahead"),
}  # fmt: skip
"""Fault to trainer, port, a pattern of the right cause, and one of a vaguer one."""

FAULTS["ema: absent"] = (FAULTS["ema: absent"][0], ("sgd", {"rate": 0.05}), *FAULTS["ema: absent"][2:])


def answer_of(name: str, steps: int = 8) -> str | None:
    """Return the cause that is said of a fault; None where the two do not part."""
    (kind, settings), (other, changed), *_ = FAULTS[name]
    (here, slots, loss), (there, others, second) = made(kind, **settings), made(other, **changed)
    walk = walk_of(here, there, (slots, others), steps, loss=loss, other=second)
    return update_cause(walk) if walk.what else None


def verdict_of(name: str, said: str | None) -> str:
    """Return whether what is said is right, vague, none or false."""
    *_, right, vague = FAULTS[name]
    if said is None:
        return "accepted"
    if not said:
        return "none"
    return "right" if re.search(right, said) else "vague" if vague and re.search(vague, said) else "false"


def main() -> None:
    counts: Counter[str] = Counter()
    for name in FAULTS:
        if any(word in name for word in sys.argv[1:]) or not sys.argv[1:]:
            said = answer_of(name)
            verdict = verdict_of(name, said)
            counts[verdict] += 1
            print(f"{verdict:8} | {name} | {said}")
    print(dict(counts), sum(counts.values()))


if __name__ == "__main__":
    main()
