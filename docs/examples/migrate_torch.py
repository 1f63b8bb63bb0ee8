"""A model of PyTorch that is to be carried to JAX."""

import torch
from torch import nn


class Model(nn.Module):
    """A residual layer between an embedding and a head, which is tied to it."""

    def __init__(self, width: int = 16, words: int = 50) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits, [batch, time, words], of tokens, int64 [batch, time]."""
        x = self.embed(tokens)
        return self.head(x + self.down(nn.functional.gelu(self.up(self.norm(x)))))
