"""The resume check of `loop_torch.py`, as a test."""

from loop_torch import train

import parity


def test_training_resumes_exactly() -> None:
    parity.assert_resumes(train, steps=60, stop_at=35)
