"""A training script that seeds at its top, as scripts do."""

import random

import numpy as np
import torch

from tests.live.imports_of_users import draws

SEED = 1337
random.seed(SEED)
np.random.seed(SEED)  # noqa: NPY002
torch.manual_seed(SEED)


def train(folder):  # type: ignore[no-untyped-def]
    """Train by the generators that were seeded above."""
    yield from draws(folder)
