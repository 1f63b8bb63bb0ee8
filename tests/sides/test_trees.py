"""Any tree comes back to the last bit and type, and whatever does not fit is an error or is listed."""

import doctest
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import jax_side
import torch_side
from parity.checkpoints import LONE, read_seal, trees, verify
from parity.checkpoints.trees import Rule
from parity.errors import CheckpointError, LockedError, RunDirectoryError, SaveError, UnknownNameError
from parity.policy import Rules
from parity.storage import WriterLock
from tests.support.sealed import flip
from tests.support.tree_states import Config, Pair, array, everything, same, side_of

SIDES = ("jax", "torch")
each_side = pytest.mark.parametrize("side", SIDES)


def fresh(side: str) -> dict[str, Any]:
    """Return a template for `everything` with other values."""
    tree = everything(side, 1)
    tree["numbers"] = [0, 0, 0, 0.0, 0.0, 0.0, 0.0, False, 0j, "", None]
    return tree


def wrong_after_a_round_trip(side: str, home: Path) -> list[str]:
    """Save a tree of everything, restore it in both ways, and return what became another."""
    module, tree = side_of(side), everything(side)
    module.save(home, tree)
    found = module.restore(home, like=fresh(side))
    raw = module.restore(home).tree
    wrong = same(tree, found.tree) + [f"listed: {found.extra, found.filled, dict(found.renamed)}"] * bool(found.extra)
    plain = {"pair": dict, "config": dict, "ordered": dict, "empty": list}
    wrong += [f"raw {name} is a {type(raw[name])}" for name, kind in plain.items() if type(raw[name]) is not kind]
    wrong += same(tree["numbers"], raw["numbers"], "raw numbers")
    wrong += same([{}, [], (), {"first": None, "second": None}], raw["empty"], "raw empty")
    wrong += same(np.asarray(tree["large"]), np.asarray(raw["large"]), "raw large")
    wrong += same(list(raw), list(tree), "raw keys")
    wrong += same((type(tree["pair"].second),), (type(raw["pair"]["second"]),), "raw tuple")
    if side == "jax":
        wrong += same(tree["own"]["typed keys"], raw["own"]["typed keys"], "raw key")
    return wrong + ([] if verify(home).whole else ["its seal does not verify"])


@pytest.mark.takes_seconds
@each_side
def test_everything_comes_back_to_the_last_bit_and_type(side: str, tmp_path: Path) -> None:
    assert wrong_after_a_round_trip(side, tmp_path / "state") == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"], "nothing is left beside it"


LONE_VALUES = (5, 0.5, True, None, "text", {}, [], (), [[]], {"a": None}, Pair(None))


@each_side
def test_a_tree_may_be_one_leaf_or_none(side: str, tmp_path: Path) -> None:
    module = side_of(side)
    values = [*LONE_VALUES, array(side, [1, 2], "bfloat16"), array(side, 3.0), np.arange(3)]
    for number, value in enumerate(values):
        module.save(tmp_path / str(number), value)  # a name of digits is no step
        assert same(value, module.restore(tmp_path / str(number), like=value).tree if number != 3 else None) == []
        assert verify(tmp_path / str(number)).whole
    assert module.restore(tmp_path / "3").tree is None


def plant(side: str, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Return what plants a fault of a kind into saving or restoring."""
    form = "jax_side.formats.tree_form.JaxForm" if side == "jax" else "torch_side.formats.tree_form.TorchForm"
    module = importlib.import_module(form.rpartition(".")[0])
    kind = getattr(module, form.rpartition(".")[2])
    reading, nodes = sys.modules["parity.checkpoints.trees.reading"], sys.modules["parity.checkpoints.trees.nodes"]
    document = sys.modules["parity.checkpoints.trees.document"]
    opened, described = trees.open_plain, kind.describe

    def act(patch: pytest.MonkeyPatch) -> None:
        if name == "leaf dropped":
            read = kind.read
            patch.setattr(kind, "read", lambda self, *args: dict([*read(self, *args).items()][:-1]))
        elif name == "dtype widened":
            place = kind.place
            patch.setattr(kind, "place", lambda *a: widened(place(*a)))
        elif name == "None lost":
            patch.setattr(document, "is_scalar", lambda value: value is not None and trees.is_scalar(value))
        elif name == "tuple became list":
            node = document._node

            def listed(value: Any, *a: Any) -> Any:
                return node({"list": value["tuple"]} if "tuple" in value else value, *a)

            patch.setattr(document, "_node", listed)
        elif name == "class forgotten":
            forget = lambda one: opened(vars(one)) if isinstance(one, Config) else opened(one)  # noqa: E731
            patch.setattr(module, "open_plain", forget)
        elif name == "sign of zero lost":
            to_json = document.to_json
            patch.setattr(sys.modules["parity.checkpoints.trees.snapshot"], "to_json", lambda n: positive(to_json(n)))
        elif name == "values of the template":
            patch.setattr(reading.Pending, "_placed", lambda self, name, leaf, saved: leaf.value)
        elif name == "array without elements lost":
            patch.setattr(
                kind, "describe", lambda self, v: None if 0 in getattr(v, "shape", ()) else described(self, v)
            )
        elif name == "key type lost":
            raw = lambda self, v: described(self, jax.random.key_data(v) if is_key(v) else v)  # noqa: E731
            patch.setattr(kind, "describe", raw)
        assert nodes

    return act


def is_key(value: Any) -> bool:
    return isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.bfloat16 else value
    return value.astype(np.float32) if getattr(value, "dtype", None) == jnp.bfloat16 else value


def positive(document: Any) -> Any:
    """Return a document in which every zero has a positive sign, as `value or 0.0` would make it."""
    if isinstance(document, dict):
        return {k: 0.0 if k == "value" and v == 0 and type(v) is float else positive(v) for k, v in document.items()}
    return [positive(item) for item in document] if isinstance(document, list) else document


PLANTS = (
    *("leaf dropped", "dtype widened", "None lost", "tuple became list", "class forgotten", "sign of zero lost"),
    *("values of the template", "array without elements lost"),
)


@pytest.mark.parametrize(("side", "name"), [*((s, n) for s in SIDES for n in PLANTS), ("jax", "key type lost")])
def test_a_planted_fault_turns_the_round_trip_red(
    side: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(side, name)(monkeypatch)
    try:
        wrong = wrong_after_a_round_trip(side, tmp_path / "state")
    except (CheckpointError, AttributeError) as error:
        wrong = [str(error)]
    assert wrong != []


@pytest.fixture(scope="module", params=SIDES)
def saved(request: Any, tmp_path_factory: Any) -> tuple[str, Path]:
    """Return a side and a checkpoint of a small tree."""
    path: Path = tmp_path_factory.mktemp(request.param) / "small"
    side_of(request.param).save(path, small(request.param))
    return request.param, path


def small(side: str) -> dict[str, Any]:
    return {
        "encoder": [
            {"weight": array(side, np.arange(6).reshape(2, 3)), "bias": array(side, [1, 2])} for _ in range(2)
        ],
        "step": 3,
        "count": array(side, 5, "int32"),
        "none": None,
        "name": "x",
    }


def layer(side: str) -> dict[str, Any]:
    return {"weight": array(side, np.arange(6).reshape(2, 3)), "bias": array(side, [1, 2])}


def changed(side: str, **changes: Any) -> dict[str, Any]:
    """Return the small tree with keys replaced, removed (where the value is `...`) or added."""
    tree = {**small(side), **changes}
    return {key: value for key, value in tree.items() if value is not ...}


MISFITS: list[tuple[str, Callable[[str], dict[str, Any]], str]] = [
    ("missing", lambda s: {"new": array(s, [1])}, r"new: is not in the checkpoint$"),
    ("extra", lambda s: {"count": ..., "step": ...}, r"count: is in .*, and not in the template\n  step: is in"),
    ("shape", lambda s: {"count": array(s, [5], "int32")}, r"count: is int32\[\] in .*, and int32\[1\] in the temp"),
    ("dtype", lambda s: {"count": array(s, 5, "uint8")}, r"count: is int32\[\] in .*, and uint8\[\] .*cast=True"),
    ("None for an array", lambda s: {"count": None}, r"count: is int32\[\] in the checkpoint, and None in"),
    ("array for None", lambda s: {"none": array(s, [1])}, r"none: is None in the checkpoint, and float32\[1\]"),
    ("text for a number", lambda s: {"step": "3"}, r"step: is a Python int in the checkpoint, and a Python str"),
    ("float for an int", lambda s: {"step": 3.0}, r"step: is a Python int in the checkpoint, and a Python float"),
    ("bool for an int", lambda s: {"step": True}, r"step: is a Python int in the checkpoint, and a Python bool"),
    ("a float array for an int", lambda s: {"step": array(s, 3)}, r"step: is a Python int in .*, and float32\[\]"),
    ("a narrow array", lambda s: {"step": array(s, 3, "bfloat16")}, r"step: is a Python int in .*, and bfloat16"),
    ("a function", lambda s: {"name": print}, r"the template cannot be filled.*\n  name: is a builtins.builtin_fun"),
]


@pytest.mark.parametrize("misfit", MISFITS, ids=[name for name, *_ in MISFITS])
def test_what_does_not_fit_is_an_error_that_names_the_leaf(misfit: Any, saved: tuple[str, Path]) -> None:
    side, path = saved
    _, changes, message = misfit
    with pytest.raises(CheckpointError, match=message):
        side_of(side).restore(path, like=changed(side, **changes(side)))


def test_what_is_allowed_to_differ_is_listed(saved: tuple[str, Path]) -> None:
    side, path = saved
    like = changed(side, none=..., new=array(side, [9]), other=[7], count=array(side, 0, "float32"), step=0)
    found = side_of(side).restore(path, like=like, allow_extra=True, allow_missing=True, cast=True)
    assert (found.extra, found.filled) == (("none",), ("new", "other.0"))
    assert dict(found.converted) == {"count": "int32 to float32"}
    assert same(array(side, 5.0), found.tree["count"]) == []
    assert same(array(side, [9]), found.tree["new"]) == []
    assert (found.tree["other"], found.tree["step"]) == ([7], 3)


def test_a_counter_is_a_number_before_a_step_and_an_array_after_it(saved: tuple[str, Path]) -> None:
    side, path = saved
    found = side_of(side).restore(path, like=changed(side, step=array(side, 0, "int32"), count=0))
    assert (int(found.tree["step"]), found.tree["count"], type(found.tree["count"])) == (3, 5, int)
    assert dict(found.converted) == {"step": "a Python int to int32[]", "count": "int32[] to a Python int"}
    side_of(side).save(path.with_name("big"), {"step": 300})
    with pytest.raises(CheckpointError, match=r"step: is 300 in .*, which int8 does not hold exactly"):
        side_of(side).restore(path.with_name("big"), like={"step": array(side, 0, "int8")})


def test_leaves_are_renamed_transposed_and_reshaped_by_rule(saved: tuple[str, Path]) -> None:
    side, path = saved
    blocks = [{"kernel": array(side, np.zeros((3, 2))), "bias": array(side, np.zeros((1, 2)))} for _ in range(2)]
    rules = [
        Rule("encoder.*.weight", "blocks.*.kernel", permute=(1, 0)),
        Rule("encoder.*.bias", "blocks.*.bias", reshape=True),
    ]
    like = changed(side, encoder=..., blocks=blocks)
    found = side_of(side).restore(path, like=like, rules=rules)
    assert same(array(side, np.arange(6).reshape(2, 3).T.copy()), found.tree["blocks"][1]["kernel"]) == []
    assert same(array(side, [[1, 2]]), found.tree["blocks"][0]["bias"]) == []
    assert found.renamed["blocks.1.kernel"] == "encoder.1.weight"
    assert len(found.renamed) == 4


BAD_RULES: list[tuple[Any, str]] = [
    ({"encodre": "blocks"}, r"rules that are about nothing in the checkpoint:\n  encodre -> blocks"),
    (
        [Rule("encoder", "a"), Rule("encoder.*.bias", "b.*")],
        r"two rules are about the saved leaf encoder.0.bias",
    ),
    ({"step": "count"}, r"the saved leaves step and count both become count"),
    (
        [Rule("encoder.*.bias", "encoder.*.bias", permute=(1, 0))],
        r"encoder.0.bias: is float32\[2\]: permute=\(1, 0\)",
    ),
    ([Rule("none", "none", reshape=True)], r"none: is no array: a rule with permute or reshape"),
]


@pytest.mark.parametrize(("rules", "message"), BAD_RULES, ids=[str(i) for i in range(len(BAD_RULES))])
def test_a_rule_that_cannot_hold_is_an_error(rules: Any, message: str, saved: tuple[str, Path]) -> None:
    side, path = saved
    with pytest.raises(CheckpointError, match=message):
        side_of(side).restore(path, like=small(side), rules=rules)


def test_rules_and_permissions_need_a_template(saved: tuple[str, Path]) -> None:
    side, path = saved
    with pytest.raises(CheckpointError, match=r"need a template: give like="):
        side_of(side).restore(path, cast=True)
    with pytest.raises(CheckpointError, match=r"the names have different numbers of \*"):
        Rule("a.*", "b")


@pytest.mark.parametrize("fault", ["filled leaf not listed", "extra leaf not listed", "cast without a word"])
def test_a_list_that_is_short_is_noticed(
    fault: str, saved: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["parity.checkpoints.trees.fit"]
    real = module.fit  # type: ignore[attr-defined]

    def short(*args: Any, **options: Any) -> Any:
        made = real(*args, **options)
        {"filled": made.filled, "extra": made.extra, "cast": made.converted}[fault.split()[0]].clear()
        return made

    monkeypatch.setattr("parity.checkpoints.trees.reading.fit", short)
    with pytest.raises(AssertionError):
        test_what_is_allowed_to_differ_is_listed(saved)


UNSAVED: list[tuple[Callable[[str], Any], str]] = [
    (lambda s: {"f": print, "g": {"h": {1, 2}}}, r"2 leaves are neither .*\n  f: is a .*\n  g\.h: is a builtins.set"),
    (lambda s: {"a": np.array(["text"])}, r"a: is an array of <U4"),
    (lambda s: {"a": np.array([{}])}, r"a: is an array of object"),
    (lambda s: {"a": np.array([1], ">i4")}, r"a: is an array of >i4"),
    (lambda s: {"a": np.ma.masked_array([1], [True])}, r"a: is a numpy.ma.MaskedArray"),
    (lambda s: {"a": 1, 1: {}, "1": 2, "b": b""}, r"b: is a builtins.bytes|two leaves have the name"),
    (lambda s: {1: 1, "1": 2}, r"two leaves have the name '1'"),
    (lambda s: {"a.b": 1, "a": {"b": 2}}, r"two leaves have the name 'a.b'"),
    (lambda s: {(1, 2): 3}, r"the key \(1, 2\) is a tuple; keys are text or integers"),
    (lambda s: {"": 1}, r"a key is empty text"),
    (lambda s: {"a": "\ud800"}, r"a: is a builtins.str, which no checkpoint holds"),
    (lambda s: {"\ud800": 1}, r"the key '\\ud800' is no text that UTF-8 has"),
    (lambda s: {"@tree": 1}, r"'@tree' is that of the description"),
    (lambda s: {"i": 2**2000}, r"i: is a builtins.int"),
    (lambda s: inside_itself(), r"more than 100 deep; is one inside itself\?"),
]


def inside_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@each_side
@pytest.mark.parametrize(("make", "message"), UNSAVED, ids=[str(i) for i in range(len(UNSAVED))])
def test_what_cannot_be_saved_is_named_and_leaves_nothing(side: str, make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        side_of(side).save(tmp_path / "a", make(side))
    assert [*tmp_path.iterdir()] == []


@each_side
def test_a_place_that_cannot_be_saved_to_is_one_clear_error(side: str, tmp_path: Path, saved_file: Path) -> None:
    module, tree = side_of(side), {"a": array(side, [1])}
    module.save(tmp_path / "a", tree)
    before = (tmp_path / "a" / "seal.json").read_bytes()
    for path in (tmp_path / "a", saved_file):
        with pytest.raises(CheckpointError, match=r"exists already; it is not overwritten"):
            module.save(path, tree)
    assert (tmp_path / "a" / "seal.json").read_bytes() == before
    with pytest.raises(CheckpointError, match=r"b could not be saved: mkdir .*/file: File exists|Not a directory"):
        module.save(saved_file / "b", tree)
    for act in (lambda: module.save("hf://bucket/b", tree), lambda: module.restore("hf://bucket/a")):
        with pytest.raises(RunDirectoryError, match=r"is a URL"):
            act()
    with pytest.raises(CheckpointError, match=r"there is no checkpoint$"):
        module.restore(tmp_path / "missing")
    with pytest.raises(CheckpointError, match=r"there is no checkpoint; it is a file"):
        module.restore(saved_file)
    with (
        WriterLock(tmp_path / ".draft-b"),
        pytest.raises(CheckpointError, match=r"b is being saved by another: process \d+"),
    ):
        module.save(tmp_path / "b", tree)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"has no seal"):
        module.restore(tmp_path / "empty")


@pytest.fixture
def saved_file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("something else")
    return path


def test_a_tree_of_the_other_side_and_a_checkpoint_of_a_run_are_told_apart(tmp_path: Path) -> None:
    jax_side.save(tmp_path / "a", {"a": 1})
    with pytest.raises(CheckpointError, match=r"was saved by the side 'jax'; 'torch' cannot read it"):
        torch_side.restore(tmp_path / "a")


@each_side
def test_every_flipped_bit_is_noticed(side: str, tmp_path: Path) -> None:
    """Eight places of every file, its first and its last byte among them; restoring into a template and without."""
    module, like = side_of(side), {"w": array(side, np.arange(2000)), "n": 3, "none": None}
    module.save(tmp_path / "a", like)
    files = [path for path in (tmp_path / "a").rglob("*") if path.is_file()]
    tried = 0
    for path in files:
        data = path.read_bytes()
        for place in sorted({*np.linspace(0, len(data) - 1, 8, dtype=int).tolist()} if data else ()):
            flip(path, place)
            with pytest.raises(CheckpointError, match=r"is not what was sealed|was changed|cannot be read|no seal"):
                module.restore(tmp_path / "a", like=like if tried % 2 else None)
            path.write_bytes(data)
            tried += 1
    assert tried > 20
    assert module.restore(tmp_path / "a", like=like).tree["n"] == 3


@each_side
def test_files_that_say_something_else_under_a_valid_seal_are_refused(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that verify can still be read as something else."""
    module = side_of(side)
    module.save(tmp_path / "a", {"w": array(side, [1.0, 2.0])})
    where = "jax_side.formats.tree_form" if side == "jax" else "torch_side.formats.tree_form"
    for other in (array("torch" if side == "torch" else "jax", [1.0, 3.0]), array(side, [1, 2], "int32")):
        value = np.asarray(other) if side == "jax" else other
        monkeypatch.setattr(f"{where}.read_parts", lambda *_, value=value: {"w": value})
        with pytest.raises(CheckpointError, match=r"is not what was sealed:\n  w: (value|type)"):
            module.restore(tmp_path / "a")


@each_side
def test_the_examples_hold(side: str) -> None:
    found = doctest.testmod(sys.modules[f"{side}_side.trees"])
    assert (found.failed, found.attempted > 6) == (0, True)


# Managers


@each_side
def test_items_are_saved_by_step_and_come_back_by_latest_best_or_step(side: str, tmp_path: Path) -> None:
    module = side_of(side)
    config = {"lr": 0.1, "data": {"position": [1, 2], "name": "x", "none": None}}
    with module.CheckpointManager(tmp_path, keep=Rules(mode="min", keep_latest=2, keep_best=1)) as manager:
        for step, metric in ((1, 0.5), (2, 0.1), (3, 0.3), (4, None), (5, 0.2)):
            value = array(side, np.full((40, 50), step))
            manager.save(step, {"params": {"w": value}, "config": {**config, "step": step}}, metric)
            value += 0  # what was passed may change now
        manager.wait()
        assert (manager.all_steps(), manager.latest_step(), manager.best_step()) == ([2, 4, 5], 5, 2)
        found = manager.restore("best", like={"params": {"w": array(side, np.zeros((40, 50)))}})
        assert (found.step, found.metric, found.extra) == (2, 0.1, ("config",))
        assert same(array(side, np.full((40, 50), 2)), found.tree["params"]["w"]) == []
        assert manager.restore(4).tree["config"] == {**config, "step": 4}
        assert manager.restore().metric == 0.2
        with pytest.raises(CheckpointError, match=r"no whole checkpoint of step 3 in .*whole steps: 2, 4, 5"):
            manager.restore(3)
        with pytest.raises(UnknownNameError, match=r"unknown checkpoint 'newest'; known: best, latest, or a step"):
            manager.restore("newest")
        with pytest.raises(CheckpointError, match=r"5 exists already; it is not overwritten"):
            manager.save(5, {"params": {"w": array(side, [1])}})
        with pytest.raises(LockedError, match="has a writer already"):
            module.CheckpointManager(tmp_path).save(6, {})
        for name in ("", "a/b", "a.b", "seal", "meta", ".hidden", "counters"):
            with pytest.raises(CheckpointError, match="is no name of an item"):
                manager.save(6, {name: 1})
        for step in (-1, 2**31, True):
            with pytest.raises(CheckpointError, match="is no number of completed steps"):
                manager.save(step, {"a": 1})
        with pytest.raises(CheckpointError, match=r"other\.w: is not in the checkpoint"):
            manager.restore(like={"other": {"w": 1}})
    assert module.restore(tmp_path / "checkpoints" / "4").step == 4, "one step is a tree of its items"
    assert read_seal(tmp_path / "checkpoints" / "4").spec_hash != LONE
    with pytest.raises(RunDirectoryError, match="is a URL"):
        module.CheckpointManager("hf://bucket/a")


@each_side
def test_a_failed_save_is_told_once_and_what_was_there_stays(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    manager = side_of(side).CheckpointManager(tmp_path)
    manager.save(1, {"w": array(side, [1])})
    manager.wait()
    with monkeypatch.context() as patch:
        patch.setattr("parity.checkpoints.saving.commit", full)
        manager.save(2, {"w": array(side, [2])})
        with pytest.raises(SaveError, match=r"step 2 could not be saved: .*No space left on device"):
            manager.wait()
    manager.save(3, {"w": array(side, [3])})
    manager.close()
    assert manager.all_steps() == [1, 3]
    assert sorted(entry.name for entry in (tmp_path / "checkpoints").iterdir()) == ["1", "3"]
    with monkeypatch.context() as patch:
        patch.setattr("parity.checkpoints.trees.single.commit", full)
        with pytest.raises(CheckpointError, match=r"a could not be saved: .*No space left on device"):
            side_of(side).save(tmp_path / "a", {"w": array(side, [1])})
    assert not (tmp_path / "a").exists()
