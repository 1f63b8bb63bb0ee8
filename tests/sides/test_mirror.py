"""The sides are mirror images: same files, same public names, same signatures, same phases of a step."""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jax_side.train import Programs

ROOT = Path(__file__).resolve().parents[2]
SIDES = ("jax_side", "torch_side")
NOT_MIRRORED = {
    "adapters",
    "compiled.py",
    "formats",
    "imports.py",
    "mesh.py",
    "optim",
    "parts.py",
    "probes",
    "processes.py",
    "schedules",
    "schedules.py",
    "shard_reads.py",
    "sharding.py",
    "shards.py",
}
"""What only one framework has: trainers and files that people have, processes as its launchers start them, programs
that XLA compiles anew in each process, imports that PyTorch makes late, models that people bring, scheduler objects
and traced schedules, optimizers (PyTorch has its own), how a state is split (by shardings, or in the modules), and
files that several processes write, which Orbax does."""


def mirrored(side: str) -> set[str]:
    paths = {path.relative_to(ROOT / side) for path in (ROOT / side).rglob("*.py")}
    return {str(path) for path in paths if path.parts[0] not in NOT_MIRRORED}


STEMS = sorted(Path(name).stem for name in mirrored("jax_side"))


def test_the_sides_have_the_same_files() -> None:
    assert mirrored("jax_side") == mirrored("torch_side")


ONLY: dict[str, tuple[set[str], set[str], str]] = {
    "__init__": (
        {
            "FilledState",
            "drafts",
            "optimizer_template",
            "shared_programs",
            "take_over",
            "transformations_of",
            "updates_by_class",
            "updates_of",
        },
        set(),
        "processes of the PyTorch twin share no programs; its drafts have the suite's own names, the state of its "
        "optimizers has no form that only their code knows, and `load_state_dict` takes what is converted for it",
    ),
    "dropout": (set(), {"random_bits"}, "JAX draws these bits itself"),
    "model": ({"Conv3x3"}, set(), "PyTorch's own layer is the reference"),
    "numerics": ({"x64"}, {"autocast"}, "float64 is a switch in JAX, low precision a context in PyTorch"),
    "optimizer": (
        {"clip_by_global_norm", "leaves_of", "scale_by_adam", "scale_by_lr", "slots"},
        {"RuleScheduler", "build_scheduler", "clip_gradients", "set_position"},
        "PyTorch has its optimizers, keeps the rate in a scheduler and clips gradients in place; Optax chains "
        "transforms, is handed the rate of each step, and keeps slots in trees, where torch.optim has keys",
    ),
    "scaler": (
        {"ScalerState", "all_finite", "unscale", "update_scaler"},
        set(),
        "PyTorch has GradScaler; JAX needs it as a pure function",
    ),
    "state": (
        {"DeviceState", "abstract_model", "neutral_parts", "stored_names"},
        {"LiveState", "check_file_state", "file_state", "load_file_state", "neutral_arrays"},
        "a JAX state is a value, saved as it is under Orbax's names, of a module that is built without values; "
        "PyTorch's lives in objects, has a form in files, and is checked before they are filled",
    ),
}
"""Module to the public names that one side alone has (jax, torch), and why. Everything else is the same."""

DIFFERENT: dict[str, str] = {
    "dropout.Dropout": "an NNX module takes its streams when it is built",
    "dropout.mask_keys": "JAX derives a key inside the step; PyTorch is given the keys of a chunk",
    "model.BatchNorm": "an NNX module is built in its dtype, a PyTorch model is cast when it is whole",
    "model.Cnn": "as Dropout",
    "model.Gpt": "as Dropout",
    "model.Linear": "as BatchNorm",
    "model.Mlp": "as Dropout; a PyTorch model is cast when it is whole",
    "optimizer.build_optimizer": "a torch.optim optimizer holds the parameters, an Optax one is a pair of functions",
    "placement.Placement": "several devices in a mesh, or one",
    "placement.Placement.replicated": "a single device has no shardings",
    "placement.Placement.share": "JAX is handed whole batches, of which its shardings take a part",
    "scaler.build_scaler": "torch.amp.GradScaler is made for a device",
    **dict.fromkeys(
        [f"{stem}.{name}" for stem in ("__init__", "trees") for name in ("restore", "CheckpointManager.restore")],
        "map_location is PyTorch's; in JAX the sharding of a template says where an array goes",
    ),
    **dict.fromkeys(
        [f"{stem}.{name}" for stem in ("__init__", "trees") for name in ("save", "CheckpointManager")],
        "together is PyTorch's: replicas do not say whether all processes save or one; those of JAX always do",
    ),
    "state.export_arrays": "arrays of several JAX processes may stay where they are; PyTorch gathers parts",
    "snapshot.Snapshot.records": "torch.save numbers what it writes; Orbax names it",
}
"""Public name, or member of a class, whose parameters differ or which one side alone has, and why."""

NAMES = {"JaxTrainer": "Trainer", "TorchTrainer": "Trainer", "forward": "__call__"}
"""Names that differ to the one they are compared by."""


def module(side: str, stem: str) -> Any:
    return importlib.import_module(f"{side}.{stem}" if stem != "__init__" else side)


def public(side: str, stem: str) -> dict[str, Any]:
    found = module(side, stem)
    return {NAMES.get(name, name): getattr(found, name) for name in found.__all__}


@pytest.mark.parametrize("stem", STEMS)
def test_twin_modules_have_the_same_public_names(stem: str) -> None:
    ours, theirs = set(public("jax_side", stem)), set(public("torch_side", stem))
    only_jax, only_torch, reason = ONLY.get(stem, (set(), set(), "no exception"))
    assert (ours - theirs, theirs - ours) == (only_jax, only_torch), reason


def test_every_exception_is_of_a_module_that_is_there() -> None:
    assert set(ONLY) <= set(STEMS)


Parameters = list[tuple[str, Any, Any]]


def parameters(value: Any) -> Parameters:
    """Return name, kind and default of each parameter."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(value).parameters.values()]


def members(cls: type) -> Iterator[tuple[str, Parameters]]:
    """Yield the public members that a class has from us, not from its framework, with their parameters."""
    owners = [base for base in cls.__mro__ if base.__module__.split(".")[0] in (*SIDES, "parity")]
    for name in {name for base in owners for name in vars(base)}:
        value = inspect.getattr_static(cls, name)
        if name in ("__call__", "forward") or not name.startswith("_"):
            if inspect.isfunction(value):
                yield NAMES.get(name, name), parameters(value)
            elif isinstance(value, property):
                yield name, []


def shapes(stem: str, name: str, value: Any) -> dict[str, Parameters]:
    """Return what is compared of a public name: dotted path to parameters."""
    path = f"{stem}.{name}"
    if inspect.isclass(value):
        return {path: parameters(value), **{f"{path}.{member}": found for member, found in members(value)}}
    return {path: parameters(value)} if callable(value) else {}


def compared(ours: dict[str, Any], theirs: dict[str, Any], stem: str) -> set[str]:
    """Return the dotted paths that differ between two modules, among the names that both have."""
    different = set()
    for name in ours.keys() & theirs.keys():
        left, right = shapes(stem, name, ours[name]), shapes(stem, name, theirs[name])
        different |= {path for path in left.keys() | right.keys() if left.get(path) != right.get(path)}
    return different


@pytest.mark.parametrize("stem", STEMS)
def test_twin_modules_have_the_same_signatures(stem: str) -> None:
    """Both ways: a difference needs a reason, and a reason a difference."""
    expected = {path for path in DIFFERENT if path.split(".")[0] == stem}
    assert compared(public("jax_side", stem), public("torch_side", stem), stem) == expected


class _Ours:
    def act(self, x: int, *, train: bool) -> None: ...


class _Renamed:
    def act(self, y: int, *, train: bool) -> None: ...


class _Positional:
    def act(self, x: int, train: bool) -> None: ...


class _WithDefault:
    def act(self, x: int, *, train: bool = True) -> None: ...


class _More(_Ours):
    def more(self) -> None: ...


@pytest.mark.parametrize("other", [_Renamed, _Positional, _WithDefault, _More])
def test_a_difference_is_found(other: type, monkeypatch: pytest.MonkeyPatch) -> None:
    for planted in (_Ours, other):
        monkeypatch.setattr(planted, "__module__", "parity.planted")
    found = compared({"Thing": _Ours}, {"Thing": other}, "planted")
    assert found == {"planted.Thing.more" if other is _More else "planted.Thing.act"}
    assert compared({"Thing": _Ours}, {"Thing": _Ours}, "planted") == set()


ONLY_METHODS = {
    "jax_side": {"_context"},  # float64 is one
    # In JAX what is traced is a class of its own, shared by trainers, and the schedule is that of the host.
    "torch_side": {"_train_step", "_plain_loss", "_moved_by", "_schedule_now"},
}


def trainer(side: str) -> type:
    found: type = public(side, "train")["Trainer"]
    return found


def methods(side: str) -> list[str]:
    return [name for name, value in vars(trainer(side)).items() if inspect.isfunction(value)]


def test_twin_trainers_have_the_same_methods_in_the_same_order() -> None:
    ours, theirs = ([m for m in methods(s) if m not in ONLY_METHODS[s]] for s in SIDES)
    assert ours == theirs
    for side, names in ONLY_METHODS.items():
        assert names <= set(methods(side)), "an exception that is no more"


@pytest.mark.parametrize("side", SIDES)
def test_the_phases_of_a_step_come_in_the_same_order(side: str) -> None:
    """Forward and backward, unscale, update: each begins with the comment that says why."""
    source = inspect.getsource((Programs if side == "jax_side" else trainer(side))._train_step)
    comments = [line.strip()[2:] for line in source.splitlines() if line.strip().startswith("# ")]
    assert [comment.split()[0].rstrip(",;") for comment in comments] == ["Forward", "Unscale", "Update"]
    assert len(source.splitlines()) <= 60
