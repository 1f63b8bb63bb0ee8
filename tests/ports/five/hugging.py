"""Five models of transformers with small configurations and random weights, and what each is called with.

Dropout is 0, as no two frameworks draw alike; every other setting is the library's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["BATCHES", "INPUTS", "MODELS", "bert", "gpt2", "llama", "t5", "vit"]

WORDS, WIDTH, LAYERS, HEADS, LENGTH = 61, 32, 2, 4, 12
HIDDEN, GROUPS, SIZE, IMAGE, PATCH, CLASSES = 48, 2, 8, 8, 2, 10

Arrays = dict[str, np.ndarray[Any, Any]]


def gpt2(*, tied: bool = True, layers: int = LAYERS) -> Any:
    """Return GPT2LMHeadModel."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=layers, n_head=HEADS,
                   resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=tied, bos_token_id=0,
                   eos_token_id=0)
    )  # fmt: skip


def llama(*, tied: bool = False, layers: int = LAYERS) -> Any:
    """Return LlamaForCausalLM, with two heads of keys for four of queries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=layers,
                    num_attention_heads=HEADS, num_key_value_heads=GROUPS, max_position_embeddings=LENGTH,
                    tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0)
    )  # fmt: skip


def bert(*, tied: bool = True, layers: int = LAYERS) -> Any:
    """Return BertForPreTraining, with both of its heads."""
    from transformers import BertConfig, BertForPreTraining

    return BertForPreTraining(
        BertConfig(vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=layers,
                   num_attention_heads=HEADS, max_position_embeddings=LENGTH, hidden_dropout_prob=0.0,
                   attention_probs_dropout_prob=0.0, tie_word_embeddings=tied)
    )  # fmt: skip


def vit(*, layers: int = LAYERS) -> Any:
    """Return ViTForImageClassification."""
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=layers, num_attention_heads=HEADS,
                  image_size=IMAGE, patch_size=PATCH, num_channels=3, num_labels=CLASSES, hidden_dropout_prob=0.0,
                  attention_probs_dropout_prob=0.0)
    )  # fmt: skip


def t5(*, layers: int = LAYERS) -> Any:
    """Return T5ForConditionalGeneration, which always ties its table, its logits too (transformers 5)."""
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(vocab_size=WORDS, d_model=WIDTH, d_kv=SIZE, d_ff=HIDDEN, num_layers=layers, num_heads=HEADS,
                 dropout_rate=0.0, decoder_start_token_id=0, use_cache=False)
    )  # fmt: skip


MODELS = {"gpt2": gpt2, "llama": llama, "bert": bert, "vit": vit, "t5": t5}


def tokens(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return words at random, the padding among them, int64."""
    return np.random.default_rng([7, seed]).integers(0, WORDS, shape)


def _bert_inputs(batch: int, seed: int) -> Arrays:
    rng = np.random.default_rng([8, seed])
    mask = np.arange(LENGTH) < rng.integers(LENGTH // 2, LENGTH + 1, (batch, 1))
    return {"input_ids": np.where(mask, tokens(batch, LENGTH, seed=seed), 0), "attention_mask": mask.astype(np.int64),
            "token_type_ids": rng.integers(0, 2, (batch, LENGTH))}  # fmt: skip


def _inputs() -> dict[str, tuple[Arrays, tuple[Any, ...]]]:
    """Return what the model of PyTorch and the one of JAX are called with, by name of the model."""
    ids, masked = tokens(2, LENGTH), _bert_inputs(2, 0)
    images = np.random.default_rng(9).standard_normal((2, 3, IMAGE, IMAGE))
    source, target = tokens(2, LENGTH, seed=1), tokens(2, LENGTH - 3, seed=2)
    return {
        "gpt2": ({"input_ids": ids, "use_cache": False}, (ids,)),
        "llama": ({"input_ids": ids, "use_cache": False}, (ids,)),
        "bert": (masked, tuple(masked[key] for key in ("input_ids", "attention_mask", "token_type_ids"))),
        "vit": ({"pixel_values": images}, (images.transpose(0, 2, 3, 1),)),
        "t5": ({"input_ids": source, "decoder_input_ids": target, "use_cache": False}, (source, target)),
    }


INPUTS = _inputs()


def _language(batch: int, seed: int) -> Arrays:
    ids = tokens(batch, LENGTH, seed=seed)
    return {"input_ids": ids, "labels": ids}


def _pretraining(batch: int, seed: int) -> Arrays:
    given, rng = _bert_inputs(batch, seed), np.random.default_rng([10, seed])
    labels = np.where(rng.random((batch, LENGTH)) < 0.3, tokens(batch, LENGTH, seed=seed + 1), -100)
    labels[:, 0] = 5  # at least one word is masked
    return {**given, "labels": labels, "next_sentence_label": rng.integers(0, 2, batch)}


def _images(batch: int, seed: int) -> Arrays:
    rng = np.random.default_rng([11, seed])
    return {"pixel_values": rng.standard_normal((batch, 3, IMAGE, IMAGE)), "labels": rng.integers(0, CLASSES, batch)}


def _pairs(batch: int, seed: int) -> Arrays:
    return {"input_ids": tokens(batch, LENGTH, seed=seed), "labels": tokens(batch, LENGTH - 3, seed=seed + 10**6)}


BATCHES = {"gpt2": _language, "llama": _language, "bert": _pretraining, "vit": _images, "t5": _pairs}
"""Model to a function of rows and step that returns what its loss takes, by the names of transformers."""
