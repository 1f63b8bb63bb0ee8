"""Every change of an update on every trainer that can have it: the product of which a table shows single rows.

`python -m tests.ports.update_products` prints what is not right.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator

from parity.checks.proving.update_causes import update_cause
from tests.ports.optimizer_rules import ascended, by_parts, made
from tests.ports.small_walks import walk_of
from tests.ports.update_faults import CLIP, TELLS, cosine, deep, warm

__all__ = ["cases"]

BASES = {
    "adam": ("adam", {}),
    "adamw": ("adam", {"decay": 0.1} | TELLS),
    "adam clip warm": ("adam", CLIP | TELLS | {"rate": warm(4), "decay": 0.05}),
    "adam l2": ("adam", {"decay": 0.1, "decay_at": "l2"}),
    "adam big eps": ("adam", {"eps": 1e-3, "decay": 0.1}),
    "momentum": ("momentum", {"rate": 0.05}),
    "momentum l2 clip": ("momentum", {"rate": 0.05, "decay": 0.1, "decay_at": "l2"} | CLIP | TELLS),
    "nesterov": ("momentum", {"rate": 0.05, "nesterov": True, "decay": 0.1, "decay_at": "l2"}),
    "damp": ("momentum", {"rate": 0.05, "later": 0.5}),
    "ema momentum": ("momentum", {"rate": 0.05, "first": 0.1, "later": 0.1}),
    "sgd clip": ("sgd", {"rate": 0.05} | CLIP),
    "sgd": ("sgd", {"rate": cosine(10)} | TELLS),
    "sgdw": ("sgd", {"rate": 0.05, "decay": 0.1}),
    "rmsprop": ("rmsprop", {"eps": 1e-4}),
    "rmsprop m": ("rmsprop", {"eps": 1e-4, "slots": ("m", "mean")}),
    "lamb": ("adam", {"trust": "leaf", "decay": 0.1, "decay_at": "in trust"} | CLIP),
    "lion": ("lion", {"decay": 0.1}),
    "nadam": ("nadam", {}),
    "adagrad": ("adagrad", {"eps": 1e-4}),
    "amsgrad": ("adam", {"slots": ("max",), "b2": 0.9, "decay": 0.1}),
    "ema": ("adam", {"ema": 0.9, "decay": 0.1}),
    "sam": ("momentum", {"rate": 0.05, "decay": 0.1, "decay_at": "l2", "loss": ascended()}),
    "agc": ("momentum", {"rate": 0.05, "clip": ("agc", 0.02), "nesterov": True}),
    "parts": ("adam", {"loss": by_parts()} | CLIP),
}
DEC = r"^(weight )?decay|trust ratio: weight decay"
CHANGES = {
    "rate x2": (
        lambda s, k: {"rate": (lambda at: 2 * s["rate"](at)) if callable(s.get("rate")) else 2 * s.get("rate", 0.01)},
        r"learning rate|schedule|another rate|\(or its rate",
    ),
    "warm0": (
        lambda s, k: {"rate": warm(4, 0, s.get("rate", 0.01) if not callable(s.get("rate")) else 0.01)},
        r"learning rate|schedule|frozen",
    ),
    "constant": (lambda s, k: {"rate": s["rate"](1)} if callable(s.get("rate")) else None, r"learning rate|schedule"),
    "decay off": (lambda s, k: {"decay": 0.0} if s.get("decay") else None, DEC),
    "decay on": (lambda s, k: {"decay": 0.1} if not s.get("decay") else None, DEC),
    "decay x2": (lambda s, k: {"decay": 2 * s["decay"]} if s.get("decay") else None, DEC),
    "decay mask": (lambda s, k: {"mask": deep} if s.get("decay") else None, DEC),
    "decay one leaf": (lambda s, k: {"mask": lambda leaf: leaf != "w"} if s.get("decay") else None, DEC),
    "decay l2": (lambda s, k: {"decay_at": "l2"} if s.get("decay") and s.get("decay_at") != "l2" else None, DEC),
    "decay decoupled": (
        lambda s, k: {"decay_at": "decoupled"} if s.get("decay") and s.get("decay_at") else None,
        DEC,
    ),
    "b1": (lambda s, k: {"b1": 0.8} if k in ("adam", "momentum", "nadam") else None, r"beta1|momentum"),
    "b2": (
        lambda s, k: {"b2": 0.95} if k in ("adam", "nadam") else {"kept": 0.9} if k == "rmsprop" else None,
        r"beta2",
    ),
    "eps x10": (lambda s, k: {"eps": 10 * s["eps"]} if s.get("eps") else None, r"^epsilon"),
    "eps under": (lambda s, k: {"eps_at": "under"} if s.get("eps") else None, r"^epsilon"),
    "no bias": (
        lambda s, k: {"bias": (False, False)} if k == "adam" else None,
        r"^bias correction|epsilon.*as it is",
    ),
    "no bias 1": (lambda s, k: {"bias": (False, True)} if k == "adam" else None, r"^bias correction"),
    "no bias 2": (
        lambda s, k: {"bias": (True, False)} if k == "adam" else None,
        r"^bias correction|epsilon.*as it is",
    ),
    "clip off": (
        lambda s, k: {"clip": ("norm", 1e9)} if "clip" in s else None,
        r"clipping|trust ratio: the gradient",
    ),
    "clip on": (lambda s, k: {"clip": ("norm", 0.3)} if "clip" not in s else None, r"clipping"),
    "clip half": (lambda s, k: {"clip": ("norm", 0.1)} if s.get("clip", ("",))[0] == "norm" else None, r"clipping"),
    "clip leaf": (lambda s, k: {"clip": ("leaf", 0.2)}, r"clipping"),
    "clip value": (lambda s, k: {"clip": ("value", 0.1)}, r"clipping"),
    "scale 2": (
        lambda s, k: {"scale": 2.0},
        r"accumulation|gradients.*scaled|times the trainer|learning rate|epsilon",
    ),
    "group": (
        lambda s, k: {"groups": lambda leaf: 0.1 if leaf in "vb" else 1.0},
        r"learning rate.*group|groups|trust ratio|schedule",
    ),
    "frozen": (lambda s, k: {"trains": lambda leaf: leaf != "v"}, r"frozen"),
    "nesterov": (
        lambda s, k: {"nesterov": not s.get("nesterov")} if k in ("momentum", "adam") else None,
        r"Nesterov",
    ),
    "trust": (lambda s, k: {"trust": None if s.get("trust") else "leaf"} if k == "adam" else None, r"trust|decay"),
    "sam": (lambda s, k: {"loss": None if s.get("loss") else ascended()}, r"SAM|another gradient|accum"),
    "parts": (lambda s, k: {"loss": by_parts(used=2)}, r"accum|SAM|another gradient"),
    "ema .99": (lambda s, k: {"ema": 0.99} if s.get("ema") else None, r"EMA: decay"),
    "lion b": (lambda s, k: {"lion": (0.95, 0.98)} if k == "lion" else None, r"momentum|sign"),
}

VAGUE = r"of another gradient than that of its loss|is no multiple of the gradient of its loss"
"""True wherever the gradient itself was changed."""


def cases(*words: str) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """Give names of trainer and change, with the verdict on what is said and the words themselves.

    Args:
        words: Names of trainers or changes; all without any.
    """
    for (base, (kind, settings)), (name, (change, right)) in itertools.product(BASES.items(), CHANGES.items()):
        if (words and not {base, name} & set(words)) or (more := change(settings, kind)) is None:
            continue
        (here, slots, first), (there, others, second) = made(kind, **settings), made(kind, **(settings | more))
        walk = walk_of(here, there, (slots, others), 8, loss=first, other=second)
        said = update_cause(walk) if walk.what else None
        if said is None:
            continue  # some changes are none: a clipping where everything is below it
        verdict = "none" if not said else "right" if re.search(right, said) else "false"
        if verdict == "false" and name.startswith(("clip", "sam", "parts", "scale")) and re.search(VAGUE, said):
            verdict = "vague"
        yield f"{base} | {name}", (verdict, said)


def main() -> None:
    counts: Counter[str] = Counter()
    for name, (verdict, said) in cases():
        counts[verdict] += 1
        if verdict != "right":
            print(f"{verdict:6} | {name} | {said}")
    print(dict(counts), sum(counts.values()))


if __name__ == "__main__":
    main()
