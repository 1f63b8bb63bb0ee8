"""The lock of a run outlives its last save: a writer that comes in between would clean away what is being written."""

from dataclasses import replace

import pytest

from parity.errors import LockedError
from parity.runs import QUIET, train
from parity.spec import load
from parity.storage import WriterLock
from tests.faults.fault import MLP, Planted

SPEC = load(MLP[0], None, [*MLP[1], "validate_every=0"])


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_the_lock_is_held_until_the_trainer_is_closed(name, tmp_path):
    """lock_given_up_early: of a run that starts and of one that goes on."""
    seen = []

    def watched(trainer):
        close = trainer.close

        def closing():
            try:
                with WriterLock(tmp_path):
                    seen.append("free")
            except LockedError:
                seen.append("held")
            close()

        trainer.close = closing

    for steps in (10, 20):
        train(Planted(name, watched), name, replace(SPEC, steps=steps), tmp_path, observers=QUIET)
    assert seen == ["held", "held"]
