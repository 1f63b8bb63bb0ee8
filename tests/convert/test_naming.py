"""Names of an optimizer's parameters: right, or refused; never a moment at another parameter of the same shape."""

import random
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from parity.cli import main
from parity.convert import read_torch_state, registered
from parity.convert.naming import Naming
from parity.errors import CheckpointError, SpecError
from parity.formats import Array, InMemory

CASES = 150


def lazy(tree: Any, stored: dict[int, int] | None = None) -> Any:
    """Return a tree of tensors as the readers give it; tensors of one storage are `shared`."""
    if isinstance(tree, torch.Tensor):
        array = InMemory(tree.detach().numpy())
        array.shared = (tree.untyped_storage().data_ptr(), tree.storage_offset()) if tree.numel() else None
        return array
    if isinstance(tree, dict):
        return {key: lazy(child) for key, child in tree.items()}
    return [lazy(child) for child in tree] if isinstance(tree, list) else tree


class Block(torch.nn.Module):
    """Some children of few shapes under names in any order; buffers of both kinds, a tied weight, a shared module."""

    def __init__(self, draw: random.Random, depth: int) -> None:
        super().__init__()
        names = draw.sample(["q", "k", "v", "out", "a", "b1", "b2", "z", "w", "x", "y", "targets", "weight_"], 4)
        for name in names:
            kind = draw.randrange(7 if depth else 5)
            if kind == 0:
                setattr(self, name, torch.nn.Parameter(torch.randn(2, 2)))
            elif kind == 1:
                self.register_buffer(name, torch.randn(draw.choice([(2, 2), (2,), (5,)])))
            elif kind in (2, 3):
                setattr(self, name, torch.nn.Linear(2, draw.choice([2, 2, 3]), bias=draw.random() < 0.5))
            elif kind == 4:
                setattr(self, name, torch.nn.BatchNorm1d(2))
            else:
                setattr(self, name, Block(draw, depth - 1))
        linear = [m for m in self.modules() if isinstance(m, torch.nn.Linear) and m.out_features == 2]
        if len(linear) > 1 and draw.random() < 0.3:
            linear[1].weight = linear[0].weight
        if linear and draw.random() < 0.2:
            self.again = linear[0]


def drawn(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer, dict[int, str]]:
    """Return a model, an optimizer over some grouping of its parameters, and the name of each number."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model = Block(draw, 1)
    own = list(model.named_parameters())
    for _, p in own:
        p.requires_grad = draw.random() < (0.7 if seed % 3 == 0 else 1.0)
    trained = [(n, p) for n, p in own if p.requires_grad] or own
    given = own if seed % 2 else trained
    if draw.random() < 0.5:
        groups = [given]
    else:
        groups = [[one for one in given if (one[1].ndim > 1) == flag] for flag in (True, False)]
        groups = [group for group in groups if group]
        for group in groups if len(groups) > 1 else ():
            draw.shuffle(group)
    kind = draw.choice([torch.optim.AdamW, torch.optim.SGD, torch.optim.Adafactor, torch.optim.RMSprop])
    extra = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind([{"params": [p for _, p in group]} for group in groups], lr=0.1, **extra)
    for _, p in trained:
        if draw.random() < 0.9:
            p.grad = torch.randn_like(p)
    optimizer.step()
    return model, optimizer, dict(enumerate(name for group in groups for name, _ in group))


def reordered(model: dict[str, Any], how: str, draw: random.Random) -> dict[str, Any]:
    names = list(model)
    if how == "sorted":
        names.sort()
    elif how == "shuffled":
        draw.shuffle(names)
    return {name: model[name] for name in names}


@pytest.mark.takes_seconds
@pytest.mark.parametrize("how", ["as it was", "sorted", "shuffled"])
def test_no_grouping_and_no_order_puts_a_moment_elsewhere(how: str) -> None:
    """Random models of few shapes: each number has its own parameter's name wherever it has a value, or is refused.

    One group is made in the order of `model.parameters()`, all of them or the trained ones, as the page says.
    """
    decided, hints = 0, []
    for seed in range(CASES):
        model, optimizer, names = drawn(seed)
        state = reordered(dict(model.state_dict()), how, random.Random(seed))
        tree = {"model": lazy(state), "optimizer": lazy(optimizer.state_dict())}
        kept = how == "as it was" and seed % 4 != 0
        if how == "sorted" and seed % 2:
            kept = True  # what was sorted before torch.save: the file looks as if it kept an order
        try:
            part = read_torch_state(tree, Naming(ordered=kept)).optimizer
        except CheckpointError as error:
            hints.append("--names FILE" in str(error))
            continue
        assert part is not None
        decided += 1
        for number, entry in part.state.items():
            if any(isinstance(value, Array) and value.size > 1 for value in entry.values()):
                alike = {names[number]} | _tied(model, names[number])
                assert part.names[number] in alike, (seed, part.named_by)
    assert all(hints)
    assert decided > (CASES // 20 if how == "as it was" else 0)
    assert len(hints) > CASES // 20


def _tied(model: torch.nn.Module, name: str) -> set[str]:
    state = model.state_dict()
    return {other for other, value in state.items() if value.data_ptr() == state[name].data_ptr()}


def square(names: list[str], groups: list[list[int]], **more: Any) -> dict[str, Any]:
    """Return a state of parameters of one shape, the moments of each being its place in the model."""
    model = {name: InMemory(np.full((2, 2), at, np.float32)) for at, name in enumerate(names)}
    count = sum(map(len, groups))
    arguments = {**torch.optim.AdamW([torch.zeros(1)]).defaults}
    entry = lambda at: {  # noqa: E731
        "step": InMemory(np.float32(1)),
        **{key: InMemory(np.full((2, 2), at, np.float32)) for key in ("exp_avg", "exp_avg_sq")},
    }
    optimizer = {
        "state": {at: entry(at) for at in range(count)},
        "param_groups": [{**arguments, "params": one} for one in groups],
    }
    return {"model": model, "optimizer": optimizer, **more}


ORDER = ["b.weight", "a.weight", "c.weight"]


@pytest.mark.parametrize(
    ("tree", "known", "said"),
    [
        (square(ORDER, [[0, 1, 2]]), Naming(), "the format of the model keeps no order"),
        (square(sorted(ORDER), [[0, 1, 2]]), Naming(ordered=True), "the names of the model are sorted"),
        (square(ORDER, [[0], [1, 2]]), Naming(ordered=True), "numbered group by group"),
        (square(ORDER, [[0, 1]]), Naming(ordered=True), "fit in several ways"),
        (square(ORDER, [[0, 1, 2, 3]]), Naming(ordered=True), "has 4 parameters, and .* gives 3 names"),
        (square(["b.x", "a.x", "b.y"], [[0, 1, 2]]), Naming(ordered=True), "not in an order of modules"),
        (square(["b.x.w", "b.w", "a.w"], [[0, 1, 2]]), Naming(ordered=True), "not in an order of modules"),
        (
            square(ORDER, [[0, 1, 2]], criterion={"scale": InMemory(np.ones((2, 2), np.float32))}),
            Naming(ordered=True),
            "may have parameters of criterion too",
        ),
        (
            square(ORDER, [[0, 1, 2]]),
            Naming(order=[("b.weight", True), ("d", True)]),
            "given has d, and the checkpoint",
        ),
    ],
)
def test_what_decides_nothing_is_refused_with_what_would(tree: Any, known: Naming, said: str) -> None:
    with pytest.raises(CheckpointError, match=said) as caught:
        read_torch_state(tree, known)
    if "d, and" not in said:
        assert "--names FILE" in str(caught.value)
        object_that_decides = "mine:both" if "group by group" in said else "mine:Model"
        assert f"--model {object_that_decides}" in str(caught.value)


def test_several_values_of_one_storage_with_more_names_are_refused() -> None:
    """One of its names may be frozen: who wraps the array of a parameter anew has two parameters of one storage."""
    shared = square(ORDER, [[0, 1]])
    for array in shared["model"].values():
        array.shared = "one storage"
    with pytest.raises(CheckpointError, match="fit in several ways"):
        read_torch_state(shared, Naming(ordered=True))
    tied = square(ORDER, [[0]])
    for array in tied["model"].values():
        array.shared = "one storage"
    part = read_torch_state(tied, Naming(ordered=True)).optimizer
    assert part is not None
    assert list(part.names.values()) == ORDER[:1]
    assert part.named_by.endswith("if the names on one storage are one parameter")


@pytest.mark.parametrize(
    ("tree", "known", "names"),
    [
        (square(ORDER, [[0, 1, 2]]), Naming(ordered=True), ORDER),
        (square(sorted(ORDER), [[0, 1, 2]]), Naming(order=[(n, True) for n in ORDER]), ORDER),
        (
            square(sorted(ORDER), [[0, 1]]),
            Naming(order=list(zip(ORDER, (True, False, True), strict=True))),
            ORDER[::2],
        ),
        (square(ORDER, [[0], [1, 2]]), Naming(given=ORDER[::-1]), ORDER[::-1]),
    ],
)
def test_what_decides_gives_the_names(tree: Any, known: Naming, names: list[str]) -> None:
    part = read_torch_state(tree, known).optimizer
    assert part is not None
    assert list(part.names.values()) == names


def test_names_that_the_optimizer_recorded_decide_for_any_grouping() -> None:
    tree = square(ORDER, [[0], [1, 2]])
    for group, names in zip(tree["optimizer"]["param_groups"], (ORDER[2:], ORDER[:2]), strict=True):
        group["param_names"] = names
    part = read_torch_state(tree).optimizer
    assert part is not None
    assert list(part.names.values()) == [ORDER[2], *ORDER[:2]]


def test_shapes_that_are_all_different_decide_for_any_order_and_any_format() -> None:
    model = {f"{name}.w": torch.nn.Parameter(torch.randn(*shape)) for name, shape in _DIFFERENT.items()}
    optimizer = torch.optim.AdamW([{"params": [p]} for p in reversed(model.values())])
    sum(p.sum() for p in model.values()).backward()
    optimizer.step()
    tree = {"model": lazy(dict(sorted(model.items()))), "optimizer": lazy(optimizer.state_dict())}
    part = read_torch_state(tree).optimizer
    assert part is not None
    assert list(part.names.values()) == list(reversed(model))
    assert part.named_by == "their shapes, each of which one parameter alone has"


_DIFFERENT = {"z": (2, 3), "a": (3, 2), "m": (4,)}

MINE = """
import torch
print("a module may print")

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("query", "key", "value"):
            setattr(self, name, torch.nn.Linear(3, 3, bias=False))
        self.key.weight.requires_grad = False

def both():
    model = Model()
    own = dict(model.named_parameters())
    return model, torch.optim.AdamW([{"params": [own["value.weight"]]}, {"params": [own["query.weight"]]}], lr=0.1)

def sized(width):
    return torch.nn.Linear(width, width)

def grouped(model):
    return torch.optim.SGD([{"params": [model.value.weight]}, {"params": [model.query.weight]}], lr=0.1)

def ungrouped(model):
    return 7

lacking = Model.missing if hasattr(Model, "missing") else 7
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    (tmp_path / "mine_of_naming.py").write_text(textwrap.dedent(MINE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import mine_of_naming

    return vars(mine_of_naming)


def test_a_module_that_is_built_gives_the_names(mine: dict[str, Any]) -> None:
    names = ("query.weight", "key.weight", "value.weight")
    order = tuple(zip(names, (True, False, True), strict=True))
    assert registered("--model", mine["Model"]).order == registered("--model", mine["Model"]()).order == order
    assert registered("--model", mine["both"]).names == ("value.weight", "query.weight")


def test_a_function_of_the_module_that_makes_its_optimizer_gives_the_groups(mine: dict[str, Any]) -> None:
    found = registered("--model", mine["Model"], mine["grouped"])
    assert (found.names, found.kind) == (("value.weight", "query.weight"), "SGD")


@pytest.mark.parametrize(
    ("model", "groups", "said"),
    [("Model", "ungrouped", "expected an optimizer, got int"), ("Model", "sized", "a function of the module"),
     ("both", "grouped", "makes the optimizer of a module; --model gave Model, AdamW")],
)  # fmt: skip
def test_groups_that_cannot_be_made_are_refused(mine: dict[str, Any], model: str, groups: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        registered("--model", mine[model], mine[groups])


@pytest.mark.parametrize(
    ("name", "said"),
    [("sized", "cannot be built: TypeError"), ("lacking", "expected a module, or what makes one, got int")],
)
def test_what_is_no_module_is_refused(mine: dict[str, Any], name: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        registered("--model", mine[name])


@pytest.mark.parametrize(
    "option", ["mine_of_naming", "mine_of_naming:", "absent_of_naming:Model", "mine_of_naming:no"]
)
def test_an_object_that_cannot_be_named_is_one_line(
    tmp_path: Path, mine: dict[str, Any], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.pt").touch()
    assert main(["convert", "a.pt", "b", "--to", "flax-msgpack", "--model", option]) == 2
    said = capsys.readouterr().err
    assert "--model" in said
    assert "Traceback" not in said


def test_a_state_of_accelerate_is_refused_until_a_module_names_its_parameters(
    tmp_path: Path, mine: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights in safetensors, which sorts the names; three parameters of one shape."""
    from safetensors.torch import save_file

    model = mine["Model"]()
    model.key.weight.requires_grad = True
    optimizer = torch.optim.AdamW(model.parameters())
    for at, p in enumerate(model.parameters()):
        p.grad = torch.full_like(p, float(at + 1))
    optimizer.step()
    source = tmp_path / "state"
    source.mkdir()
    save_file({name: p.detach() for name, p in sorted(model.named_parameters())}, source / "model.safetensors")
    torch.save(optimizer.state_dict(), source / "optimizer.bin")
    words = ["convert", "state", "out", "--to", "flax-msgpack"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "keeps no order" in said
    assert "--names FILE" in said
    assert "--model mine:Model" in said
    assert not (tmp_path / "out").exists()
    assert main([*words, "--model", "mine_of_naming:Model"]) == 0
    from parity.convert import open_any

    moments = open_any(tmp_path / "out").tree["opt_state"]["0"]["mu"]
    for at, name in enumerate(("query", "key", "value")):
        assert moments[name]["weight"].load().ravel()[0] == np.float32(0.1) * np.float32(at + 1)
