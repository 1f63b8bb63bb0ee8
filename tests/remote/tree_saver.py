"""A process that saves trees to a store without end, for tests that kill it: prints each one that is there."""

from __future__ import annotations

import sys
from itertools import count

import torch

import torch_side

if __name__ == "__main__":
    for number in count(int(sys.argv[2])):
        torch_side.save(f"{sys.argv[1]}/{number}", {"w": torch.full((9,), number), "step": number})
        print(number, flush=True)
