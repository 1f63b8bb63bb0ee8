"""A small GPT in PyTorch: fused projections, tied head, causal attention."""

import torch
from torch import nn

WIDTH, HEADS, LAYERS, VOCABULARY, LENGTH = 16, 2, 2, 31, 8

inputs = ["i[2,7]<31"]


class Block(nn.Module):
    def __init__(self, fused: bool = True, dropout: float = 0.1):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        if fused:
            self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        else:
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.c_proj, self.c_fc, self.c_out = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.Linear(4 * WIDTH, WIDTH),
        )
        self.dropout = nn.Dropout(dropout)
        self.fused = fused

    def forward(self, x):
        batch, time, _ = x.shape
        h = self.ln_1(x)
        parts = self.c_attn(h).split(WIDTH, -1) if self.fused else (self.q(h), self.k(h), self.v(h))
        q, k, v = (one.view(batch, time, HEADS, -1).transpose(1, 2) for one in parts)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.c_proj(y.transpose(1, 2).reshape(batch, time, WIDTH)))
        return x + self.dropout(self.c_out(nn.functional.gelu(self.c_fc(self.ln_2(x)))))


class Model(nn.Module):
    def __init__(self, layers: int = LAYERS, fused: bool = True, tied: bool = True, dropout: float = 0.1):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList([Block(fused, dropout) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))
