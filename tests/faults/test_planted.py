"""Every planted fault turns the resume check red and is named; the same runs without it stay green."""

import shutil
from pathlib import Path

import pytest

from parity.reference.planned import judge, read_evidence, run_here
from parity.runs import train
from parity.spec import load
from tests.faults.catalog import BY_OTHER_CHECKS, ENTRIES, FAULTS
from tests.faults.fault import CNN, MLP, Planted, nothing
from tests.faults.policies import BY_AUDIT

CASES = [pytest.param(f, side, id=f"{f.id}-{side}") for f in FAULTS for side in f.sides]


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """Return the uninterrupted runs there are, by side, spec and base; each is trained once and only copied."""
    home, known = tmp_path_factory.mktemp("uninterrupted"), {}
    yield home, known
    for path, files in known.values():
        assert contents(path) == files, "a test has changed what others copy"


def contents(path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture
def sharing(uninterrupted, monkeypatch):
    """Return a function that lets `run_here` take the uninterrupted run of a side, a spec and a base from a copy."""
    home, known = uninterrupted

    def share(*key):
        def train_or_copy(side, name, spec, path, *options):
            if path.name != "reference":
                return train(side, name, spec, path, *options)
            if key not in known:
                train(side, name, spec, home / str(len(known)), *options)
                known[key] = home / str(len(known)), contents(home / str(len(known)))
            return shutil.copytree(known[key][0], path)

        monkeypatch.setattr("parity.reference.planned.drive.train", train_or_copy)

    return share


def run_planted(fault, side, path):
    """Run a fault; where it stops the run, what lies on disk is judged as it is."""
    clean, faulty = Planted(side, fault.base), Planted(side, fault.base, fault.plant)
    if fault.stops is None:
        return run_here(fault.spec, clean, path, fault.kills, resuming=faulty)
    with pytest.raises(Exception, match=fault.stops):
        run_here(fault.spec, clean, path, fault.kills, resuming=faulty)
    every = fault.spec.save.every
    resumed = read_evidence(path / "resumed")
    expected = [None, *(kill - kill % every for kill in fault.kills)][: len(resumed.resumed_from)]
    return read_evidence(path / "reference"), resumed, expected


@pytest.mark.breaks_first(
    "adam_step_reset-torch",
    "best_metric_reset-torch",
    "bn_stats_not_saved-torch",
    "loader_restarts_at_zero-torch",
    "mixed_generation-torch",
    "rng_not_saved-torch",
    "scaler_created_after_load-torch",
    "sched_not_saved-jax",
    "step_not_restored-torch",
    "tied_head_rebuilt-torch",
    "uneven_shard_padding-torch",
)
@pytest.mark.parametrize(("fault", "side"), CASES)
def test_fault_is_red_and_named(fault, side, tmp_path, sharing):
    sharing(side, fault.spec, fault.base)
    findings = judge(*run_planted(fault, side, tmp_path))
    assert findings.broken
    assert set(findings.suspects) == set(fault.suspects), findings.notes


CLEAN = {
    "as most faults have it": (MLP, "float32", ()),
    "batch norm": (CNN, "float32", ()),
    "native dropout": (MLP, "float32", ("dropout.generator=native",)),
    "sgd": (MLP, "float32", ("optimizer.kind=sgd",)),
    "float16 with overflows": (MLP, "float16", ("scaler.overflow_steps=[12, 23, 30, 31]",)),
    "accumulation": (MLP, "float32", ("accumulation=4",)),
    "grain": (MLP, "float32", ("data.reader=grain",)),
}


@pytest.mark.breaks_first("as most faults have it-jax", "as most faults have it-torch")
@pytest.mark.parametrize("side", ["torch", "jax"])
@pytest.mark.parametrize("case", CLEAN)
def test_clean_run_is_green(case, side, tmp_path, sharing):
    (preset, shrink), precision, overrides = CLEAN[case]
    spec = load(preset, precision, [*shrink, *overrides])
    sharing(side, spec, nothing)
    findings = judge(*run_here(spec, Planted(side), tmp_path, (25, 35)))
    assert not findings.broken, findings.notes
    assert findings.suspects == []
    assert findings.steps_compared == spec.steps


@pytest.mark.parametrize("name", ["second_resume_counter_lost", "opt_moments_only_for_sgd"])
def test_fault_hides_where_it_does_not_apply(name, tmp_path):
    """One restart does not show what the second one loses; a saver made for SGD saves SGD."""
    fault = next(f for f in FAULTS if f.id == name)
    once = name == "second_resume_counter_lost"
    overrides = () if once else ("optimizer.kind=sgd",)
    spec = load(MLP[0], None, [*MLP[1], *overrides])
    kills = (25,) if once else (25, 35)
    findings = judge(*run_here(spec, Planted("torch"), tmp_path, kills, resuming=Planted("torch", fault.plant)))
    assert not findings.broken, findings.notes


OTHER_WORDS = {
    "master_rebuilt_from_bf16": "the parameters of a twin are its master weights",
    "param_groups_alias_broken": "the rate that an optimizer no longer sees is the scheduler's",
    "last_not_found_restart": "a run that starts over shows it by its step",
    "missing_piece_defaults": "the piece that is missing is the generator's",
    "uneven_shard_padding": "a twin pads its parameters",
}
"""Faults that the twins show by another component than the trainers that have them too, and why."""


def test_a_twin_is_one_more_trainer_of_the_catalogue():
    """Every fault is the bug of an entry, and what the judge names is of the kind that an expert would name there."""
    kinds = {entry.id: set() for entry in ENTRIES}
    for entry in ENTRIES:
        kinds[entry.id] |= {component.partition(".")[0] for component in entry.expected}
    assert {*BY_OTHER_CHECKS, *(f.id for f in FAULTS)} <= {*kinds}
    other = {f.id for f in FAULTS if kinds[f.id] and not {s.partition(".")[0] for s in f.suspects} & kinds[f.id]}
    assert other == {*OTHER_WORDS}


def test_catalogue_is_wide():
    """Thirty bugs of eight groups at least, eight or more of them on the JAX side, each with two restarts."""
    assert len({f.id for f in FAULTS}) >= 30
    assert len({f.group for f in FAULTS}) >= 8
    assert not {f.id for f in FAULTS} & {*BY_OTHER_CHECKS}
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*_faults.py"))
    assert not [name for name in BY_OTHER_CHECKS if name not in tests and name not in BY_AUDIT]
    assert len({f.id for f in FAULTS if "jax" in f.sides}) >= 8
    assert all(len(f.kills) >= 2 for f in FAULTS)
