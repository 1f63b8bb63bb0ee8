"""The resume check of `loop_lightning.py`, as a test."""

from loop_lightning import train

import parity


def test_training_resumes_exactly() -> None:
    parity.assert_resumes(train, steps=30, stop_at=17, mode="inline")
