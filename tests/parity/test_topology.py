"""The topology check: it holds on runs that change their placement, and faults of such a change turn it red."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from jax_side.train import Programs
from parity import sides
from parity.errors import SpecError, UnknownNameError
from parity.reference import SuiteRequest, fitting_placements, list_tasks, pairs_of, parse_placement
from parity.reference.topology import Topologies, check_topology, part_here, part_in_processes
from parity.runs import ProcessOptions, train
from parity.spec import load
from parity.state import TrainingState

STEPS = 8
SMALL = {
    "mlp-digits": ["model.hidden=[16, 8]"],
    "cnn-digits": ["model.channels=[4, 8]"],
    "gpt-text": ["model.width=16", "model.layers=1", "model.heads=2", "batch=16"],
}
MESHES = (
    "data=1",
    "data=4",
    "data=8",
    "fsdp=4",
    "model=2",
    "data=2,fsdp=2",
    "fsdp=2,model=2",
    "data=2,fsdp=2,model=2",
)
SPLIT = parse_placement("fsdp=2,model=2")
ONE = parse_placement("data=1")


def small(name="mlp-digits", *overrides, precision="float64"):
    own = [*SMALL[name], f"steps={STEPS}", "execution.chunk=2", "validate_every=4"]
    return load(name, precision, [*own, *overrides])


def topologies(home, spec=None, side=None, part=None):
    spec, side = spec or small(), side or sides.load("jax")
    return Topologies(spec, "jax", side, home / "topology", part or part_here("jax", side))


@pytest.mark.takes_seconds
def test_a_run_goes_on_over_any_mesh(tmp_path):
    runs = topologies(tmp_path)
    for first, second in pairs_of([ONE, SPLIT, parse_placement("data=2")]):
        found = check_topology(runs, first, second)
        assert (found.verdict, found.criterion, found.steps_compared) == ("holds", "float64", STEPS), found.notes
        assert found.name == f"topology {first.name} > {second.name}"
        assert "leaves restored bit for bit" in found.notes[0]


@pytest.mark.soak
@pytest.mark.parametrize("name", SMALL)
def test_a_run_goes_on_from_every_mesh_to_every_other(name, tmp_path):
    runs = topologies(tmp_path, replace(small(name), steps=40))
    pairs = pairs_of([parse_placement(text) for text in MESHES], every=True)
    found = {f"{a.name} > {b.name}": check_topology(runs, a, b) for a, b in pairs}
    assert len(found) == 56
    assert {pair: one.notes for pair, one in found.items() if one.verdict != "holds"} == {}


@pytest.mark.soak
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_below_float64_the_envelope_decides(precision, tmp_path, monkeypatch):
    monkeypatch.setenv("PARITY_CACHE", str(tmp_path / "cache"))
    runs = topologies(tmp_path, replace(small(precision=precision), steps=20))
    found = check_topology(runs, SPLIT, ONE)
    assert (found.verdict, found.criterion) == ("holds", "envelope"), found.notes


# Faults: each is one that a change of placement brings.


def after_restore(change):
    """Return the side, whose state is changed by every restore on a mesh that splits it."""
    real = sides.load("jax")

    def build(spec, directory=None, *, attempt=0):
        trainer = real.build(spec, directory, attempt=attempt)
        restore = trainer.restore

        def restored(which):
            step = restore(which)
            if spec.mesh.devices > 1:
                state = trainer.export_state()
                arrays, scalars = dict(state.arrays), dict(state.scalars)
                change(arrays, scalars)
                trainer.import_state(TrainingState(arrays=arrays, scalars=scalars))
            return step

        trainer.restore = restored
        return trainer

    return SimpleNamespace(build=build, topology=real.topology)


def lost_moment(arrays, scalars):
    leaf = "optimizer.first_moment.layers.0.weight"
    arrays[leaf] = np.zeros_like(arrays[leaf])


def shards_in_another_order(arrays, scalars):
    leaf = "model.params.layers.0.weight"
    arrays[leaf] = np.roll(arrays[leaf], len(arrays[leaf]) // 2, axis=0)


def one_shard_twice(arrays, scalars):
    leaf = "optimizer.second_moment.layers.1.weight"
    arrays[leaf] = arrays[leaf].copy()
    arrays[leaf][4:] = arrays[leaf][:4]


def first_samples(arrays, scalars):
    scalars["data.position"] = {**scalars["data.position"], "epoch": 0, "batch": 0, "samples": 0}


def rate_of_another_step(arrays, scalars):
    scalars["schedule.step"] += 1


@pytest.mark.parametrize(
    ("fault", "component"),
    [
        (lost_moment, "optimizer.first_moment"),
        (shards_in_another_order, "model.params"),
        (one_shard_twice, "optimizer.second_moment"),
        (first_samples, "data.position"),
        (rate_of_another_step, "schedule.step"),
    ],
)
@pytest.mark.takes_seconds
def test_what_a_restore_on_another_mesh_loses_is_named(fault, component, tmp_path):
    side = after_restore(fault)
    runs = topologies(tmp_path, side=side)
    found = check_topology(runs, ONE, SPLIT)
    assert (found.verdict, found.suspects) == ("broken", (component,)), found.notes
    assert found.leaves


@pytest.mark.parametrize("size", [1.0 + 1e-6, 2.0])
@pytest.mark.takes_seconds
def test_gradients_that_a_mesh_makes_larger_part_the_curves(size, tmp_path, monkeypatch):
    """The state is restored as it was: only the curve shows it."""
    import jax

    scattered = Programs._scattered

    def larger(self, grads):
        grads = scattered(self, grads)
        return jax.tree.map(lambda g: g * size, grads) if self.spec.mesh.fsdp > 1 else grads

    monkeypatch.setattr(Programs, "_scattered", larger)
    plain = ("optimizer.kind=sgd", "optimizer.lr=0.1", "clip_norm=0.0")  # Adam and clipping would divide it out
    spec = small("mlp-digits", *plain, f"seed={int(size * 10)}")  # a program of its own
    found = check_topology(topologies(tmp_path, spec), ONE, SPLIT)
    assert found.verdict == "broken"
    assert found.first_divergence.quantity == "loss"
    assert found.first_divergence.step > STEPS // 2, "up to the save all is well"


@pytest.mark.takes_seconds
def test_a_run_that_starts_over_is_not_a_resumed_one(tmp_path):
    side = sides.load("jax")
    here = part_here("jax", side)

    def over(spec, run):
        if spec.mesh.devices > 1:
            shutil.rmtree(run)
        here(spec, run)

    found = check_topology(topologies(tmp_path, part=over), ONE, SPLIT)
    assert (found.verdict, found.suspects) == ("broken", ("counters.step",))
    assert "resumed from [], was saved at step 4" in found.notes[0]


def test_a_part_that_records_no_state_is_no_success(tmp_path):
    side = sides.load("jax")
    found = check_topology(
        topologies(tmp_path, part=lambda spec, run: train(side, "jax", spec, run, ProcessOptions())), ONE, SPLIT
    )
    assert found.verdict == "broken"
    assert "no state of step 4 was recorded" in found.notes[0]


@pytest.mark.takes_seconds
def test_a_part_that_ends_early_is_no_success(tmp_path):
    here = part_here("jax", sides.load("jax"))
    part = lambda spec, run: here(replace(spec, steps=min(spec.steps, 6)), run)  # noqa: E731
    found = check_topology(topologies(tmp_path, part=part), ONE, SPLIT)
    assert (found.verdict, found.suspects) == ("broken", ("counters.step",))
    assert "steps [7, 8] are not in both runs" in found.notes[0]


# Placements and pairs.


def test_the_default_placements_are_those_that_fit():
    assert [one.name for one in fitting_placements(load("linear-regression"))] == [
        *("data=1", "data=4", "fsdp=4", "data=2,fsdp=2", "data=2,processes=2"),
    ]
    assert len(fitting_placements(load("gpt-text"))) == 7


@pytest.mark.parametrize("text", ["data", "data=two", "rows=2", "data=2,data=3", "data=-1", "", "data=2,"])
def test_a_placement_that_is_none_is_refused(text):
    with pytest.raises(
        SpecError, match=r"--placement: expected data=N, fsdp=N, model=N, processes=N, each at most once"
    ):
        parse_placement(text)


def test_fewer_than_two_placements_are_refused():
    for few in ([], [ONE], [ONE, ONE]):
        with pytest.raises(SpecError, match=r"--placement: expected two or more, each once, got"):
            pairs_of(few)


def test_every_pair_is_every_ordered_pair():
    assert len(pairs_of([parse_placement(text) for text in MESHES], every=True)) == 56
    ring = pairs_of([parse_placement(text) for text in MESHES])
    assert len({a for a, _ in ring}) == len({b for _, b in ring}) == len(ring) == len(MESHES)


def test_the_suite_has_a_task_for_each_pair_where_it_is_asked_for(tmp_path):
    request = SuiteRequest(
        checks=("topology",), specs=[small()], sides={"jax": sides.load("jax")}, steps=10, workdir=tmp_path
    )
    names = [task.name for task in list_tasks(request)]
    assert names[0] == "topology data=1 > data=4"
    assert len(names) == 7
    assert not any("topology" in task.name for task in list_tasks(replace(request, checks=("twins",))))
    with pytest.raises(UnknownNameError, match=r"unknown check 'topologies'"):
        replace(request, checks=("topologies",))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("data=2,processes=2", "fsdp=2,model=2"),
        pytest.param("fsdp=2,model=2,processes=4", "data=2,fsdp=2,processes=2", marks=pytest.mark.soak),
        pytest.param("fsdp=2,model=2", "fsdp=2,model=2,processes=2", marks=pytest.mark.soak),
    ],
)
@pytest.mark.takes_seconds
def test_a_run_goes_on_in_another_number_of_processes(first, second, tmp_path):
    side = sides.load("jax")
    runs = topologies(tmp_path, part=part_in_processes("jax", side))
    found = check_topology(runs, parse_placement(first), parse_placement(second))
    assert found.verdict == "holds", found.notes
