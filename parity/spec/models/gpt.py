"""The pre-norm decoder over bytes, for text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from parity.spec.models.base import ModelBase, WideLayer, too_few
from parity.spec.models.leaves import ParamSpec, affine, norm
from parity.spec.values import require, require_layers, require_numbers, require_positive

__all__ = ["GptSpec"]


@dataclass(frozen=True, kw_only=True)
class GptSpec(ModelBase):
    """A pre-norm decoder: learned positions, causal attention, MLP of four times the width with GELU (erf).

    Shapes: input tokens [batch, context], output logits [batch, context, vocabulary].

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    SOURCES: ClassVar[tuple[str, ...]] = ("text",)
    kind: Literal["gpt"] = "gpt"
    vocabulary: int = 256
    context: int = 32
    """Tokens per sample."""
    layers: int = 2
    heads: int = 4
    """Attention heads; must divide the width."""
    width: int = 64
    """Size of the residual stream."""
    tied: bool = False
    """Whether the output layer uses the transposed token embedding: one parameter, not two."""
    embedding_std: float = 1.0
    """Standard deviation of the initial embedding tables; 1.0 as in PyTorch, 0.02 as in GPT-2."""

    def __post_init__(self) -> None:
        require_numbers(self, "model")
        require_positive(self, "model", "vocabulary", "context", "layers", "heads", "width", "embedding_std")
        require_layers(self.layers, "model.layers")
        require(
            self.width % self.heads == 0,
            "model.heads",
            f"{self.heads} heads do not divide a width of {self.width}",
        )

    def leaves(self) -> Iterator[ParamSpec]:
        """Yield both embeddings, what each block has, the last norm, and an output layer that is not tied."""
        width, table = self.width, ("vocabulary", "embed")
        layers = (
            ("qkv", 3, 1, ("qkv", "embed")),
            ("out", 1, 1, ("embed", "heads")),
            ("up", 4, 1, ("hidden", "embed")),
            ("down", 1, 4, ("embed", "hidden")),
        )
        yield ParamSpec("tokens.weight", (self.vocabulary, width), "embedding", axes=table)
        yield ParamSpec("positions.weight", (self.context, width), "embedding", axes=("context", "embed"))
        for i in range(self.layers):
            yield from norm(f"blocks.{i}.norm1", width, ("embed",))
            yield from norm(f"blocks.{i}.norm2", width, ("embed",))
            for name, fan_out, fan_in, axes in layers:
                yield from affine(f"blocks.{i}.{name}", (fan_out * width, fan_in * width), axes)
        yield from norm("norm", width, ("embed",))
        if not self.tied:
            yield ParamSpec("head.weight", (self.vocabulary, width), "linear", width, table)

    def units(self) -> dict[str, tuple[str, int]]:
        """Return that queries, keys and values are split between heads, and so is what comes out of them."""
        return {"qkv": ("attention heads", self.heads), "heads": ("attention heads", self.heads)}

    def widest(self) -> list[WideLayer]:
        """Return the scores of the attention, and the logits."""
        context = self.context
        scores = {"model.heads": self.heads, "model.context": context**2}
        logits = {"model.context": context, "model.vocabulary": self.vocabulary}
        return [
            WideLayer("attention scores", self.heads * context**2, scores),
            WideLayer("logits", context * self.vocabulary, logits),
        ]

    def growth(self) -> dict[str, int]:
        """Return the fields that decide how many parameters there are."""
        return {
            "model.layers" if self.layers > self.width else "model.width": 12 * self.width**2 * self.layers,
            "model.vocabulary": self.width * self.vocabulary,
            "model.context": self.width * self.context,
        }

    def sample_bytes(self, source: str) -> int:
        """Return what the bytes of one sample and those that follow take: int32 each."""
        del source
        return 8 * self.context

    @property
    def tokens(self) -> int:
        """Return the tokens of a sample."""
        return self.context

    def misfit(self, features: int, values: int) -> tuple[str, str] | None:
        """Return the field that does not fit samples, and why."""
        del features
        return too_few("vocabulary", self.vocabulary, values)
