"""The resume check of `loop_nnx.py`, as a test."""

from loop_nnx import train

import parity


def test_training_resumes_exactly() -> None:
    parity.assert_resumes(train, steps=60, stop_at=35)
