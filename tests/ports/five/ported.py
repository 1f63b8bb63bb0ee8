"""The ports of the five models, and by hand which leaf of one is which of the other.

The map that is proposed is compared with this one, element by element. It is written from the two sources, and knows
nothing of how a map is found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from docs.examples.nnx_bert import Bert
from docs.examples.nnx_gpt2 import Gpt2
from docs.examples.nnx_llama import Llama
from docs.examples.nnx_t5 import T5
from docs.examples.nnx_vit import Vit
from tests.ports.five.hugging import CLASSES, GROUPS, HEADS, HIDDEN, IMAGE, LAYERS, LENGTH, PATCH, SIZE, WIDTH, WORDS

__all__ = ["MODELS", "anonymous", "by_hand"]

Leaves = dict[str, np.ndarray[Any, Any]]


def gpt2(layers: int = LAYERS, **options: Any) -> Gpt2:
    """Return the port of GPT-2."""
    return Gpt2(WORDS, LENGTH, WIDTH, layers, HEADS, rngs=nnx.Rngs(0), **options)


def llama(layers: int = LAYERS, **options: Any) -> Llama:
    """Return the port of Llama."""
    return Llama(WORDS, WIDTH, HIDDEN, layers, HEADS, GROUPS, rngs=nnx.Rngs(0), **options)


def bert(layers: int = LAYERS, **options: Any) -> Bert:
    """Return the port of BERT."""
    return Bert(WORDS, LENGTH, WIDTH, HIDDEN, layers, HEADS, rngs=nnx.Rngs(0), **options)


def vit(layers: int = LAYERS, **options: Any) -> Vit:
    """Return the port of ViT."""
    return Vit(IMAGE, PATCH, 3, WIDTH, HIDDEN, layers, HEADS, CLASSES, rngs=nnx.Rngs(0), **options)


def t5(layers: int = LAYERS, **options: Any) -> T5:
    """Return the port of T5."""
    return T5(WORDS, WIDTH, HIDDEN, layers, HEADS, SIZE, rngs=nnx.Rngs(0), **options)


MODELS: Mapping[str, Callable[..., Any]] = {"gpt2": gpt2, "llama": llama, "bert": bert, "vit": vit, "t5": t5}


def anonymous(make: Callable[[], Any], seed: int) -> tuple[Callable[[], Any], dict[str, str]]:
    """Return what makes a port as a flat tree with drawn names, and a mapping that gets the true ones then."""
    truth: dict[str, str] = {}

    def build() -> Any:
        model = make()
        graph, params, rest = nnx.split(model, nnx.Param, ...)
        flat, tree = jax.tree_util.tree_flatten_with_path(params)
        names = [f"leaf_{number}" for number in np.random.default_rng(seed).permutation(len(flat))]
        for name, (path, _) in zip(names, flat, strict=True):
            truth[name] = ".".join(str(key.key) for key in path if hasattr(key, "key"))

        def apply(params: Mapping[str, Any], *args: Any) -> Any:
            return nnx.merge(graph, jax.tree_util.tree_unflatten(tree, [params[name] for name in names]), rest)(*args)

        return {name: leaf for name, (_, leaf) in zip(names, flat, strict=True)}, apply

    return build, truth


def by_hand(name: str, held: Leaves, *, fused: bool, tied: bool = True, stacked: bool = False) -> Leaves:
    """Return the leaves of a port as those of the model of transformers make them.

    Args:
        name: Of the model.
        held: Its leaves, tied ones under any of their names.
        fused: Whether the port's projections are fused.
        tied: Whether the head is.
        stacked: Whether its layers lie in one leaf.
    """
    made = _HAND[name](held, fused)
    if tied and name != "vit":
        made = {
            path: one for path, one in made.items() if path not in ("head.kernel", "readout", "guess_words.kernel")
        }
    if not stacked:
        return made
    numbered = re.compile(r"(^|.*\.)(blocks|layers)\.(\d+)\.(.*)")
    layers: dict[str, dict[int, np.ndarray[Any, Any]]] = {}
    for path in list(made):
        if found := numbered.fullmatch(path):
            before, word, at, rest = found.groups()
            layers.setdefault(f"{before}{word}.{rest}", {})[int(at)] = made.pop(path)
    return made | {path: np.stack([some[at] for at in range(len(some))]) for path, some in layers.items()}


def _norms(held: Leaves, pairs: Mapping[str, str]) -> Leaves:
    return {f"{to}.{new}": held[f"{one}.{old}"] for one, to in pairs.items()
            for old, new in (("weight", "scale"), ("bias", "bias"))}  # fmt: skip


def _linears(held: Leaves, pairs: Mapping[str, str], turn: Callable[[Any], Any] = np.transpose) -> Leaves:
    made = {f"{to}.kernel": turn(held[f"{one}.weight"]) for one, to in pairs.items()}
    return made | {f"{to}.bias": held[f"{one}.bias"] for one, to in pairs.items() if f"{one}.bias" in held}


def _gpt2(held: Leaves, fused: bool) -> Leaves:
    made = {"tokens.embedding": held["transformer.wte.weight"], "places.embedding": held["transformer.wpe.weight"]}
    made |= _norms(held, {"transformer.ln_f": "norm"})
    if "lm_head.weight" in held:
        made["head.kernel"] = held["lm_head.weight"].T
    for at in range(_count(held, r"transformer\.h\.(\d+)\.")):
        here, there = f"transformer.h.{at}", f"blocks.{at}"
        made |= _norms(held, {f"{here}.ln_1": f"{there}.norm_attention", f"{here}.ln_2": f"{there}.norm_mlp"})
        some = {f"{here}.attn.c_proj": f"{there}.out", f"{here}.mlp.c_fc": f"{there}.wide",
                f"{here}.mlp.c_proj": f"{there}.narrow"}  # fmt: skip
        made |= _linears(held, some, lambda x: x)
        for leaf, to in (("weight", "kernel"), ("bias", "bias")):
            whole = held[f"{here}.attn.c_attn.{leaf}"]
            parts = (
                {"qkv": whole} if fused else dict(zip(("query", "key", "value"), np.split(whole, 3, -1), strict=True))
            )
            made |= {f"{there}.{word}.{to}": one for word, one in parts.items()}
    return made


def _llama(held: Leaves, fused: bool) -> Leaves:
    made = {"table": held["model.embed_tokens.weight"], "norm.gain": held["model.norm.weight"]}
    if "lm_head.weight" in held:
        made["readout"] = held["lm_head.weight"].T
    for at in range(_count(held, r"model\.layers\.(\d+)\.")):
        here, there = f"model.layers.{at}", f"layers.{at}"
        made[f"{there}.before.gain"] = held[f"{here}.input_layernorm.weight"]
        made[f"{there}.between.gain"] = held[f"{here}.post_attention_layernorm.weight"]
        q, k, v = (_heads(held[f"{here}.self_attn.{one}_proj.weight"].T) for one in "qkv")
        made |= (
            {f"{there}.attention.wqkv": np.concatenate([q, k, v], 1)}
            if fused
            else {f"{there}.attention.w{one}": part for one, part in zip("qkv", (q, k, v), strict=True)}
        )
        made[f"{there}.attention.wo"] = held[f"{here}.self_attn.o_proj.weight"].T.reshape(HEADS, SIZE, WIDTH)
        gate, up, down = (held[f"{here}.mlp.{one}_proj.weight"].T for one in ("gate", "up", "down"))
        made |= (
            {f"{there}.mlp.both": np.concatenate([gate, up], 1)}
            if fused
            else {f"{there}.mlp.gate": gate, f"{there}.mlp.up": up}
        )
        made[f"{there}.mlp.down"] = down
    return made


def _bert(held: Leaves, fused: bool) -> Leaves:
    embed = "bert.embeddings"
    made = {f"{to}.embedding": held[f"{embed}.{one}_embeddings.weight"]
            for one, to in (("word", "word"), ("position", "place"), ("token_type", "segment"))}  # fmt: skip
    heads = "cls.predictions"
    made["guess_bias"] = held[f"{heads}.decoder.bias"]  # untied, transformers leaves `predictions.bias` unused
    if f"{heads}.decoder.weight" in held:
        made["guess_words.kernel"] = held[f"{heads}.decoder.weight"].T
    made |= _norms(held, {f"{embed}.LayerNorm": "embed_norm", f"{heads}.transform.LayerNorm": "guess_norm"})
    made |= _linears(held, {"bert.pooler.dense": "pool", f"{heads}.transform.dense": "guess",
                            "cls.seq_relationship": "follows"})  # fmt: skip
    for at in range(_count(held, r"bert\.encoder\.layer\.(\d+)\.")):
        here, there = f"bert.encoder.layer.{at}", f"layers.{at}"
        made |= _norms(held, {f"{here}.attention.output.LayerNorm": f"{there}.attention_norm",
                              f"{here}.output.LayerNorm": f"{there}.mlp_norm"})  # fmt: skip
        made |= _linears(
            held, {f"{here}.intermediate.dense": f"{there}.wide", f"{here}.output.dense": f"{there}.narrow"}
        )
        made |= _attention(held, [f"{here}.attention.self.{one}" for one in ("query", "key", "value")],
                           f"{here}.attention.output.dense", f"{there}.attention", fused,
                           ("query", "key", "value", "out"), flat=fused)  # fmt: skip
    return made


def _vit(held: Leaves, fused: bool) -> Leaves:
    made = {"first": held["vit.embeddings.cls_token"].reshape(WIDTH),
            "places": held["vit.embeddings.position_embeddings"][0],
            "cut.kernel": held["vit.embeddings.patch_embeddings.projection.weight"].transpose(2, 3, 1, 0),
            "cut.bias": held["vit.embeddings.patch_embeddings.projection.bias"]}  # fmt: skip
    made |= _norms(held, {"vit.layernorm": "norm"}) | _linears(held, {"classifier": "head"})
    for at in range(_count(held, r"vit\.layers\.(\d+)\.")):
        here, there = f"vit.layers.{at}", f"blocks.{at}"
        made |= _norms(
            held, {f"{here}.layernorm_before": f"{there}.norm1", f"{here}.layernorm_after": f"{there}.norm2"}
        )
        made |= _linears(held, {f"{here}.mlp.fc1": f"{there}.mlp.0", f"{here}.mlp.fc2": f"{there}.mlp.1"})
        made |= _attention(held, [f"{here}.attention.{one}_proj" for one in "qkv"], f"{here}.attention.o_proj",
                           f"{there}.attention", fused, ("q", "k", "v", "o"), flat=False)  # fmt: skip
    return made


def _t5(held: Leaves, fused: bool) -> Leaves:
    made = {"table.embedding": held["shared.weight"]}
    if "lm_head.weight" in held:
        made["head.kernel"] = held["lm_head.weight"].T
    for side in ("encoder", "decoder"):
        made[f"{side}.norm.scale"] = held[f"{side}.final_layer_norm.weight"]
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        made[f"{side}.distances"] = held[first]
        last = 1 if side == "encoder" else 2
        for at in range(_count(held, rf"{side}\.block\.(\d+)\.")):
            here, there = f"{side}.block.{at}.layer", f"{side}.blocks.{at}"
            places = {"own": f"{here}.0.SelfAttention"} | (
                {"cross": f"{here}.1.EncDecAttention"} if last == 2 else {}
            )
            for layer, (word, place) in enumerate(places.items()):
                made[f"{there}.{word}_norm.scale"] = held[f"{here}.{layer}.layer_norm.weight"]
                q, k, v, o = (held[f"{place}.{one}.weight"].T for one in "qkvo")
                parts = {"q": q, "k": k, "v": v}
                if fused:
                    parts = {"qkv": np.concatenate([q, k, v], 1)} if word == "own" else {
                        "q": q, "kv": np.concatenate([k, v], 1)}  # fmt: skip
                made |= {f"{there}.{word}.{one}.kernel": part for one, part in (parts | {"o": o}).items()}
            made[f"{there}.mlp_norm.scale"] = held[f"{here}.{last}.layer_norm.weight"]
            for one, to in (("wi", "wide"), ("wo", "narrow")):
                made[f"{there}.{to}.kernel"] = held[f"{here}.{last}.DenseReluDense.{one}.weight"].T
    return made


_HAND: Mapping[str, Callable[[Leaves, bool], Leaves]] = {
    "gpt2": _gpt2, "llama": _llama, "bert": _bert, "vit": _vit, "t5": _t5,
}  # fmt: skip


def _count(held: Leaves, pattern: str) -> int:
    return 1 + max(int(found[1]) for name in held if (found := re.match(pattern, name)))


def _heads(kernel: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a kernel, [in, out], with an axis of heads, or a bias."""
    return kernel.reshape(*kernel.shape[:-1], -1, SIZE)


def _attention(held: Leaves, three: list[str], out: str, to: str, fused: bool, words: tuple[str, ...], flat: bool
               ) -> Leaves:  # fmt: skip
    """Return an attention of a library: with axes of heads, or flat; its projections fused or not."""
    made: Leaves = {}
    for leaf, new in (("weight", "kernel"), ("bias", "bias")):
        parts = [held[f"{one}.{leaf}"].T for one in three]
        if flat:
            made[f"{to}.qkv.{new}"] = np.concatenate(parts, -1)
        elif fused:
            made[f"{to}.qkv.{new}"] = np.stack([_heads(one) for one in parts], -3)
        else:
            made |= {f"{to}.{word}.{new}": _heads(one) for word, one in zip(words[:3], parts, strict=True)}
    whole = held[f"{out}.weight"].T
    made[f"{to}.{words[3]}.kernel"] = whole if flat else whole.reshape(HEADS, SIZE, -1)
    return made | {f"{to}.{words[3]}.bias": held[f"{out}.bias"]}
