"""The corpus of ports: right ones in other styles and wrong ones as real ports go wrong, each with where it parts."""

from dataclasses import dataclass
from typing import Any

from tests.ports.corpus import (
    gpt_trainer_jax,
    gpt_trainer_torch,
    llama_jax,
    llama_torch,
    mixer_jax,
    mixer_torch,
    policy_jax,
    policy_torch,
    resnet_jax,
    resnet_torch,
    vit_jax,
    vit_torch,
)  # fmt: skip

__all__ = ["CORPUS", "RIGHT", "WRONG", "Entry"]


@dataclass(frozen=True)
class Entry:
    """A port beside its reference."""

    name: str
    first: Any
    second: Any
    right: Any
    """The port in the same style without a fault: its map is that of the two."""
    stage: str = ""
    """Where the two part; empty for a right port."""
    words: tuple[str, ...] = ()
    """What a cause that is right must contain, in any case of letters."""


def _wrong(name: str, first: Any, right: Any, faults: dict[str, tuple[str, ...]]) -> list[Entry]:
    """Return entries of one style, from fault to stage and words."""
    kind = type(right)
    given = {one: getattr(right, one) for one in ("style", "chain") if hasattr(right, one)}
    return [
        Entry(f"{name}: {fault}", first, kind(**given, fault=fault), right, stage, tuple(words))
        for fault, (stage, *words) in faults.items()
    ]


_GPT, _MIXER, _RESNET, _LLAMA, _VIT, _POLICY = (
    one.reference for one in (gpt_trainer_torch, mixer_torch, resnet_torch, llama_torch, vit_torch, policy_torch)
)

_STYLES = {
    "gpt, NNX, separate projections": (_GPT, gpt_trainer_jax.Port("separate")),
    "gpt, NNX, its own attention": (_GPT, gpt_trainer_jax.Port("own")),
    "gpt, NNX, fused, decay as a group of a partition": (_GPT, gpt_trainer_jax.Port("fused", chain="parts")),
    "gpt, linen": (_GPT, gpt_trainer_jax.Port("linen")),
    "gpt, scan over stacked layers, AdamW by hand": (_GPT, gpt_trainer_jax.Port("stacked", chain="by hand")),
    "gpt, PyTorch, separate projections, AdamW by hand": (_GPT, gpt_trainer_torch.Trainer(False, True)),
    "mixer, NNX": (_MIXER, mixer_jax.Port("nnx")),
    "mixer, linen, patches by a reshape": (_MIXER, mixer_jax.Port("linen")),
    "mixer, functions, einsum, SGD by hand": (_MIXER, mixer_jax.Port("functions")),
    "mixer, PyTorch, stacked layers": (_MIXER, mixer_torch.Trainer(True)),
    "resnet, NNX, channels last": (_RESNET, resnet_jax.Port("nnx")),
    "resnet, PyTorch, batch norm written out": (_RESNET, resnet_torch.Trainer(True)),
    "llama, NNX, separate": (_LLAMA, llama_jax.Port("separate")),
    "llama, NNX, fused": (_LLAMA, llama_jax.Port("fused")),
    "llama, scan over stacked layers, groups as axes": (_LLAMA, llama_jax.Port("stacked")),
    "llama, PyTorch, fused, complex turns": (_LLAMA, llama_torch.Trainer(True)),
    "vit, NNX, its own attention": (_VIT, vit_jax.Port("own")),
    "vit, NNX, projections of a head side by side": (_VIT, vit_jax.Port("heads")),
    "vit, linen": (_VIT, vit_jax.Port("linen")),
    "vit, PyTorch, a group for each leaf": (_VIT, vit_torch.Trainer(True)),
    "policy, NNX": (_POLICY, policy_jax.Port("nnx")),
    "policy, functions, scan over both experts": (_POLICY, policy_jax.Port("functions")),
}

RIGHT = tuple(Entry(name, first, second, second) for name, (first, second) in _STYLES.items())
"""Ports that train alike."""

WRONG = (
    *_wrong("gpt", _GPT, gpt_trainer_jax.Port("separate"), {
        "batch order": ("batches", "batch"),
        "epsilon of the norms": ("forward", "epsilon"),
        "form of GELU": ("forward", "GELU"),
        "head is not tied": ("forward", "one parameter"),
        "mask off by one": ("forward", "mask"),
        "initial values": ("initial values", "initial"),
        "decay on norms and biases": ("update", "decay"),
        "decay of Optax": ("update", "decay"),
        "schedule off by one": ("update", "rate"),
        "clip epsilon": ("update", "clip"),
        "clip per leaf": ("update", "clip"),
        "b2": ("update", "second moment"),
        "epsilon of Adam": ("update", "epsilon"),
        "accumulation scaled twice": ("update", "accumulation", "times"),
        "accumulation not scaled": ("update", "accumulation", "times"),
        "denominator of the schedule": ("steps", "rate"),
        "floor of the schedule": ("steps", "rate"),
    }),
    *_wrong("gpt, stacked", _GPT, gpt_trainer_jax.Port("stacked", chain="by hand"), {
        "gradient of the embedding stopped": ("gradients", "gradient"),
        "decay by the number of axes": ("update", "decay"),
        "no correction of the bias": ("update", "bias correction"),
    }),
    *_wrong("gpt, fused", _GPT, gpt_trainer_jax.Port("fused", chain="parts"), {
        "L2 in place of decoupled decay": ("update", "decay"),
    }),
    *_wrong("mixer", _MIXER, mixer_jax.Port("nnx"), {
        "data are scaled": ("batches", "image"),
        "epsilon of the norms": ("forward", "epsilon"),
        "bias is missing": ("forward", "bias"),
        "norm is missing": ("forward", "norm"),
        "initial values of the head": ("initial values", "head"),
        "label smoothing is missing": ("loss", "smoothing"),
        "smoothing over the other classes": ("loss", "smoothing"),
        "sum in place of the mean": ("loss", "times"),
        "Nesterov is missing": ("update", "Nesterov"),
        "momentum after the rate": ("update", "momentum"),
        "decoupled decay in place of L2": ("update", "decay"),
        "L2 is missing": ("update", "decay"),
        "rate falls to another end": ("steps", "rate"),
    }),
    *_wrong("resnet", _RESNET, resnet_jax.Port("nnx"), {
        "padding SAME with stride 2": ("forward", "padding", "SAME"),
        "epsilon of the batch norm": ("forward", "epsilon"),
        "shortcut after the activation": ("forward", "residual"),
        "evaluation in training": ("loss", "batch norm"),
        "momentum of Flax": ("update", "momentum"),
        "momentum the other way": ("update", "momentum"),
        "biased running variance": ("update", "variance"),
        "decay on norms and biases": ("update", "decay"),
        "milestones a step late": ("steps", "rate"),
    }),
    *_wrong("llama", _LLAMA, llama_jax.Port("separate"), {
        "base of the rotary": ("forward", "rotary"),
        "rotary interleaved": ("forward", "rotary"),
        "rotary the other way": ("forward", "rotary"),
        "rotary from one for keys": ("forward", "rotary"),
        "groups tiled": ("forward", "group"),
        "scale of the scores": ("forward", "scale"),
        "epsilon of the norms": ("forward", "epsilon"),
        "norms of one plus the scale": ("forward", "one plus"),
        "norms after the scale": ("forward", "norm"),
        "gate of the other half": ("forward", "gate"),
        "mean over padded tokens": ("loss", "mean"),
        "padding counts": ("loss", "mean", "where"),
        "mean of the means of texts": ("loss", "mean"),
        "bfloat16 parameters": ("update", "bfloat16"),
        "first moment in bfloat16": ("update", "bfloat16"),
        "Adam in place of AdamW": ("update", "decay"),
        "decay is not scaled by the rate": ("update", "decay"),
        "decay on norms": ("update", "decay"),
        "epsilon under the root": ("update", "epsilon"),
        "clipping after the moments": ("update", "clip"),
    }),
    *_wrong("vit", _VIT, vit_jax.Port("own"), {
        "form of GELU": ("forward", "GELU"),
        "columns before rows": ("forward", "layout"),
        "mean in place of the class token": ("forward", "pooling"),
        "gradient of positions stopped": ("forward", "gradient"),
        "dropout after the sum": ("loss", "keep"),
        "dropout is not scaled": ("loss", "keep"),
        "decay of another size": ("update", "decay"),
        "epsilon of Adam": ("update", "epsilon"),
        "the stem is frozen": ("update", "frozen", "stem"),
        "average is missing": ("update", "ema absent"),
        "average without warm-up": ("update", "ema", "decay"),
        "average of the values before": ("update", "ema", "before"),
    }),
    *_wrong("policy", _POLICY, policy_jax.Port("nnx"), {
        "time is drawn before the noise": ("batches", "noise"),
        "periods of the time": ("forward", "time_in"),
        "cosines first": ("forward", "time_in"),
        "state sees actions": ("forward", "mask"),
        "embedding is not scaled": ("forward", "factor"),
        "form of GELU": ("forward", "GELU"),
        "gradient of the prefix stopped": ("forward", "gradient"),
        "time runs the other way": ("loss", "input", "time"),
        "sign of the velocity": ("loss", "actions - noise"),
        "mean over padded actions": ("loss", "mean"),
        "the tower is not frozen": ("update", "frozen", "vision"),
        "the frozen tower counts for the norm": ("update", "clip", "frozen"),
        "warm-up a step shorter": ("update", "rate"),
        "the first average is no copy": ("update", "ema", "decay 0 here"),
        "average of another decay": ("steps", "ema", "decay"),
    }),
)  # fmt: skip
"""Ports that do not train alike, each for one reason."""

CORPUS = {entry.name: entry for entry in (*RIGHT, *WRONG)}
