"""A model with a convolution, a batch norm, attention and a gated layer, in PyTorch."""

import torch
from torch import nn

WIDTH, HEADS, CLASSES = 8, 2, 5

inputs = ["f[2,3,8,8]->[0,2,3,1]"]


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, time, _ = x.shape
        q, k, v = (one.view(batch, time, HEADS, -1).transpose(1, 2) for one in self.qkv(x).split(WIDTH, -1))
        scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
        scores = scores.masked_fill(~torch.tril(torch.ones(time, time, dtype=torch.bool)), float("-inf"))
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, WIDTH))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.mlp = RMSNorm(WIDTH), Mlp()

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, WIDTH, 3, stride=2, padding=1), nn.BatchNorm2d(WIDTH)
        self.place = nn.Parameter(torch.zeros(16, WIDTH))
        self.block = Block()
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, image):
        x = torch.relu(self.bn(self.conv(image))).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.block(x)).mean(1))
