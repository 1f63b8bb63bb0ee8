"""The three acceptance tests, each by its name."""

import dataclasses

import jax
import pytest

from parity import sides
from parity.contract import splice
from parity.reference import train_command
from parity.reference.across import losses, run_from
from parity.reference.planned import judge, read_evidence, run_processes
from parity.runs import QUIET, train
from parity.spec import load

EPOCH = 1437 // 64
"""Steps of an epoch of mlp-digits."""


@pytest.mark.processes
@pytest.mark.new_interpreters
@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.parametrize("side", ["jax", "torch"])
def test_a_five_epochs_saved_killed_and_five_more_have_a_continuous_validation_curve(side, tmp_path):
    """No jump in either direction: all ten validation points equal the uninterrupted run's, bit for bit."""
    every = [
        f"save.every={5 * EPOCH}",
        f"validate_every={EPOCH}",
        f"steps={10 * EPOCH}",
        "execution.chunk=11",
    ]
    spec = load("mlp-digits", None, every)
    kill = 5 * EPOCH + 11
    reference, resumed, expected = run_processes(
        train_command(spec, side, tmp_path / "spec.toml"), spec.plan, tmp_path, (kill,)
    )

    assert expected == [None, 5 * EPOCH], "it went on from the checkpoint behind five epochs"
    assert not judge(reference, resumed, expected).broken
    before, after = splice(reference.validations), splice(resumed.validations)
    assert list(after) == [n * EPOCH for n in range(1, 11)]
    assert [(v.value, v.loss) for v in after.values()] == [(v.value, v.loss) for v in before.values()]
    assert {v.attempt for v in after.values()} == {0, 1}, "the curve is spliced from two processes"
    assert after[10 * EPOCH].value > after[EPOCH].value, "and it learns"


def test_b_two_hundred_data_parallel_steps_on_all_devices_end_in_an_orbax_checkpoint(tmp_path):
    devices = jax.device_count()
    assert devices == 8
    spec = load("mlp-digits", None, [f"mesh.data={devices}", "steps=200"])
    side = sides.load("jax")
    outcome = train(side, "jax", spec, tmp_path / "run", observers=QUIET)
    assert outcome.step == 200

    trainer = side.build(spec, tmp_path / "run")
    assert trainer.restore("latest") == 200
    kernel = jax.tree.leaves(trainer.state.params)[0]
    assert len(kernel.sharding.device_set) == devices, "parameters come back replicated over all devices"
    assert (tmp_path / "run" / "checkpoints" / "200" / "_CHECKPOINT_METADATA").exists(), "by Orbax"
    records = read_evidence(tmp_path / "run").curve
    assert records[200].loss < records[1].loss / 4
    trainer.close()


def test_c_thousand_steps_as_loop_and_as_scan_resumed_from_a_checkpoint_give_the_same_curve(tmp_path):
    side = sides.load("jax")
    spec = load("mlp-digits", None, ["steps=1000", "save.every=100", "save.keep_latest=10", "validate_every=100"])
    loop = dataclasses.replace(spec, execution=dataclasses.replace(spec.execution, jax="loop"))
    for name, one in (("scan", spec), ("loop", loop)):
        train(side, "jax", one, tmp_path / name, observers=QUIET)
    scan, looped = (read_evidence(tmp_path / name) for name in ("scan", "loop"))
    assert losses(scan.curve) == losses(looped.curve)
    assert sorted(p.name for p in (tmp_path / "scan" / "checkpoints").iterdir()) == sorted(
        str(n) for n in range(100, 1001, 100)
    )
    for name, one in (("scan", spec), ("loop", loop), ("scan", loop)):
        trainer = side.build(one, tmp_path / name)
        trainer.restore(500)
        assert losses(run_from(trainer, 1000)) == {s: x for s, x in losses(scan.curve).items() if s > 500}
        trainer.close()
