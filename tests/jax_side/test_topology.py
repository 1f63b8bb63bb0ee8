"""Devices: 1, 2, 4 and 8, and a checkpoint saved on n and restored on m, stay inside the measured envelope."""

import itertools

import pytest

from parity import sides
from parity.checks.criteria import ENVELOPE_LIMIT, envelope_multiple
from parity.errors import SpecError
from parity.reference.across import losses, measure_envelope, run_from
from parity.spec import load

STEPS = 40
SMALL = {
    "mlp-digits": ["model.hidden=[32]"],
    "cnn-digits": ["model.channels=[4, 8]"],
    "gpt-text": ["model.width=16", "model.layers=1", "model.heads=2", "batch=16"],
}


def _spec(name, devices):
    return load(name, None, [*SMALL[name], f"mesh.data={devices}", "execution.chunk=10", f"steps={STEPS}"])


@pytest.mark.parametrize("name", SMALL)
def test_any_number_of_devices_and_any_change_between_them_stays_inside_the_envelope(name, tmp_path):
    side = sides.load("jax")
    base = side.build(_spec(name, 1))
    start = base.export_state()
    reference = losses(run_from(base, STEPS))
    width = measure_envelope(base.spec, [base], start, STEPS).width
    worst = {}
    trainers = {}
    for n in (1, 2, 4, 8):
        trainers[n] = side.build(_spec(name, n), tmp_path / str(n))
        curve = losses(run_from(trainers[n], STEPS // 2))
        trainers[n].save(None)
        trainers[n].wait()
        curve |= losses(run_from(trainers[n], STEPS))
        worst[n] = envelope_multiple(list(reference.values()), list(curve.values()), width)
    for n, m in itertools.permutations((1, 2, 4, 8), 2):
        trainer = side.build(_spec(name, m), tmp_path / str(n)) if (n, m) in {(8, 2), (1, 4)} else trainers[m]
        trainer.checkpoints = type(trainers[n].checkpoints)(
            trainer.layout, tmp_path / str(n), trainer.spec_hash, trainer.placement
        )
        assert trainer.restore("latest") == STEPS // 2
        tail = losses(run_from(trainer, STEPS))
        after = [reference[s] for s in tail]
        worst[n, m] = envelope_multiple(after, list(tail.values()), width[STEPS // 2 :])
        trainer.close()
    for trainer in trainers.values():
        trainer.close()
    assert max(worst.values()) <= ENVELOPE_LIMIT["float32"], worst
    assert worst[1] == 0.0, "one device is the reference itself"


def test_more_devices_than_there_are_is_an_error_with_both_numbers():
    with pytest.raises(SpecError, match=r"mesh\.data: 16 devices asked for, 8 cpu devices here"):
        sides.load("jax").build(load("mlp-digits", None, ["mesh.data=16"]))
