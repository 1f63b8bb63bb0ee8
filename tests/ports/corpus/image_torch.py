"""A model with a pooled convolution, a flattened image, a dropout and a square layer, in PyTorch."""

import torch
from torch import nn

WIDTH, CLASSES = 8, 5

inputs = ["f[2,3,8,8]->[0,2,3,1]"]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 6, 3, padding=1), nn.AvgPool2d(3, stride=2, padding=1)
        self.flat, self.drop, self.turn = nn.Linear(96, WIDTH, bias=False), nn.Dropout(0.2), nn.Linear(WIDTH, WIDTH)
        self.place, self.norm = nn.Parameter(torch.zeros(WIDTH)), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, image):
        x = self.pool(torch.relu(self.conv(image))).flatten(1)
        x = self.flat(x) + self.place
        x = x + self.turn(self.drop(torch.relu(self.norm(x))))
        return self.head(x)
