"""Proves that training resumes exactly: in PyTorch, in JAX, and across the two."""

from parity.spec import RunSpec, preset
from parity.state import TrainingState
from parity.trainer import StepRecord, Trainer, Validation

__all__ = ["RunSpec", "StepRecord", "Trainer", "TrainingState", "Validation", "preset"]
