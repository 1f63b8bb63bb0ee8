"""The resume check of `loop_transformers.py`, as a test."""

from loop_transformers import train

import parity


def test_training_resumes_exactly() -> None:
    parity.assert_resumes(train, steps=18, stop_at=12, mode="inline")
