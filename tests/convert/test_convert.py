"""`parity convert`: a whole training state from PyTorch to JAX and back, bit for bit, with a line for every leaf."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from parity.cli import main
from parity.convert import compare_sources, open_any
from parity.formats import Array, leaf_name, leaves
from parity.state import digest_text
from tests.convert.states import STEPS, named, saved, trained

RULES = """
[[rule]]
torch = "layers.*.weight"
jax = "blocks.kernel"
stack = 0
transpose = true

[[rule]]
torch = "layers.*.bias"
jax = "blocks.bias"
stack = 0

[[rule]]
torch = "head.weight"
jax = ["out.left", "out.right"]
split = [2, 4]
axis = 1
transpose = true

[[rule]]
torch = ["norm.running_mean", "norm.running_var"]
jax = "norm.stats"
join = 0
collection = "batch_stats"
"""


def converted(capsys: pytest.CaptureFixture[str], *words: Any, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["convert", *map(str, words), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def same(a: Path, b: Path) -> None:
    found = compare_sources(open_any(a), open_any(b))
    assert [leaf for leaf in found.leaves if leaf.outcome != "equal"] == []
    assert found.leaves


CLASSES = {
    "AdamW": {},
    "Adam": {"amsgrad": True},
    "SGD": {"momentum": 0.9},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "NAdam": {},
    "Adadelta": {},
    "ASGD": {},
    "Rprop": {},
    "Adagrad": {},
    "Adamax": {},
    "RAdam": {},
}


@pytest.mark.parametrize("kind", CLASSES)
def test_a_whole_state_comes_back_bit_for_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    """Two groups, a late and an unused parameter: every key of every `state_dict`, the same file for PyTorch."""
    state = trained(kind, **CLASSES[kind])
    source = saved(tmp_path, state)
    there = converted(capsys, source, tmp_path / "o", "--to", "orbax", *named(tmp_path, state))
    assert there["counts"]["refused"] == there["counts"]["reset"] == 0
    converted(capsys, tmp_path / "o", tmp_path / "back.pt", "--to", "torch.save")
    same(source, tmp_path / "back.pt")
    loaded = torch.load(tmp_path / "back.pt", weights_only=True)
    assert list(loaded) == list(state)
    assert type(loaded["best"]) is tuple
    assert main(["verify", str(tmp_path / "o")]) == main(["verify", str(tmp_path / "back.pt")]) == 0


@pytest.mark.parametrize("layout", ["optax", "parity"])
@pytest.mark.parametrize("rules", ["", RULES])
def test_rules_move_parameters_and_their_moments_and_lead_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str, rules: str
) -> None:
    source = saved(tmp_path, trained(plain=True))
    words = ["--optimizer", layout]
    if rules:
        (tmp_path / "rules.toml").write_text(rules)
        words += ["--rules", str(tmp_path / "rules.toml")]
    converted(capsys, source, tmp_path / "o", "--to", "orbax", *words)
    converted(capsys, tmp_path / "o", tmp_path / "back.pt", "--to", "torch.save")
    same(source, tmp_path / "back.pt")


def arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {leaf_name(k): v.load() for k, v in leaves(open_any(path).tree) if isinstance(v, Array)}


def test_moments_lie_where_their_parameters_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against PyTorch's own tensors, so that a swapped slot or an axis that was left as it was cannot hide."""
    state = trained(plain=True)
    (tmp_path / "rules.toml").write_text(RULES)
    converted(capsys, saved(tmp_path, state), tmp_path / "o", "--to", "orbax", "--rules", tmp_path / "rules.toml")
    found = arrays(tmp_path / "o")
    names = [name for name in state["model"] if "running" not in name and "num_b" not in name]
    slots = {
        "params": {name: state["model"][name] for name in names},
        "opt_state.0.mu": {name: state["optimizer"]["state"][at]["exp_avg"] for at, name in enumerate(names)},
        "opt_state.0.nu": {name: state["optimizer"]["state"][at]["exp_avg_sq"] for at, name in enumerate(names)},
    }
    for prefix, values in slots.items():
        for at in range(3):
            assert np.array_equal(found[f"{prefix}.blocks.kernel"][at], values[f"layers.{at}.weight"].numpy().T)
            assert np.array_equal(found[f"{prefix}.blocks.bias"][at], values[f"layers.{at}.bias"].numpy())
        head = np.concatenate([found[f"{prefix}.out.left"], found[f"{prefix}.out.right"]], 1)
        assert np.array_equal(head, values["head.weight"].numpy().T)
        assert np.array_equal(found[f"{prefix}.late"], values["late"].numpy())
    assert found["opt_state.0.count"] == found["opt_state.2.count"] == STEPS
    words = ["compare", str(tmp_path / "state.pt"), str(tmp_path / "o")]
    assert main([*words, "--rules", str(tmp_path / "rules.toml")]) == 0
    assert main(words) == 0  # by the rules of the conversion itself
    stats = [state["model"][f"norm.{name}"].numpy() for name in ("running_mean", "running_var")]
    assert np.array_equal(found["batch_stats.norm.stats"], np.concatenate(stats))


def alone(tmp_path: Path, code: str) -> str:
    """Run code in an interpreter in which this project cannot be imported."""
    blocked = "import sys\nfor name in ('parity', 'jax_side', 'torch_side'): sys.modules[name] = None\n"
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", blocked + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.takes_seconds
def test_plain_orbax_and_optax_restore_the_state_and_train_on_as_pytorch_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = trained(plain=True)
    converted(capsys, saved(tmp_path, state), tmp_path / "o", "--to", "orbax")
    shown = alone(
        tmp_path,
        """
        import jax, jax.numpy as jnp, optax, orbax.checkpoint as ocp, numpy as np
        saved = ocp.PyTreeCheckpointer().restore("{o}".format(o=__import__("os").path.abspath("o")))
        tx = optax.adamw(optax.cosine_decay_schedule(0.01, 10), weight_decay=1e-2)
        like = {"params": saved["params"], "opt_state": tx.init(saved["params"])}
        handler = ocp.PyTreeCheckpointHandler()
        args = ocp.args.PyTreeRestore(
            item=like, restore_args=ocp.checkpoint_utils.construct_restore_args(like), partial_restore=True
        )
        got = ocp.Checkpointer(handler).restore(__import__("os").path.abspath("o"), args=args)
        assert jax.tree.structure(got["opt_state"]) == jax.tree.structure(like["opt_state"])
        gradients = jax.tree.map(lambda p: jnp.full(p.shape, 0.5, p.dtype), got["params"])
        updates, _ = tx.update(gradients, got["opt_state"], got["params"])
        print(*np.asarray(optax.apply_updates(got["params"], updates)["head"]["bias"]).tolist())
        """,
    )
    names = [name for name in state["model"] if "running" not in name and "num_b" not in name]
    params = [torch.nn.Parameter(state["model"][name].clone()) for name in names]
    optimizer = torch.optim.AdamW(params, lr=0.01)
    optimizer.load_state_dict(state["optimizer"])
    for p in params:
        p.grad = torch.full_like(p, 0.5)
    optimizer.step()
    expected = params[names.index("head.bias")].tolist()
    assert np.allclose(list(map(float, shown.split())), expected, rtol=2e-6)


@pytest.mark.takes_seconds
def test_the_state_of_our_own_optimizer_is_the_one_that_the_sides_hand_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two ways from torch.optim to `jax_side.optim`, through files and through the neutral state, are one."""
    import jax

    from jax_side.optim import from_neutral, optimizer_of
    from torch_side.optim import to_neutral

    state = trained()
    converted(capsys, saved(tmp_path, state), tmp_path / "o", "--to", "orbax", *named(tmp_path, state))
    found = open_any(tmp_path / "o").tree["opt_state"]
    params = [(name, torch.nn.Parameter(state["model"][name].clone())) for name in state["names"]]
    biases = [p for name, p in params if name.endswith("bias")]
    others = [p for name, p in params if not name.endswith("bias")]
    optimizer = torch.optim.AdamW([{"params": others}, {"params": biases}], lr=0.01)
    optimizer.load_state_dict(state["optimizer"])
    neutral = to_neutral(optimizer, params)
    tree: dict[str, Any] = {}
    for name, p in params:
        *above, last = name.split(".")
        branch = tree
        for key in above:
            branch = branch.setdefault(key, {})
        branch[last] = p.detach().numpy()
    expected = from_neutral(optimizer_of(neutral), neutral, tree, count=STEPS)
    assert np.array_equal(expected.step, found["step"].load())
    assert expected.step.dtype == found["step"].dtype
    for slot, values in expected.slots.items():
        other = found["slots"].get(slot, {})
        flat = {
            "/".join(str(k.key) for k in path): np.asarray(v)
            for path, v in jax.tree_util.tree_leaves_with_path(values)
        }
        mine = {"/".join(map(str, keys)): leaf.load() for keys, leaf in leaves(other) if isinstance(leaf, Array)}
        assert flat.keys() == mine.keys(), slot
        for name, value in flat.items():
            assert value.dtype == mine[name].dtype
            assert np.array_equal(value, mine[name]), (slot, name)


def refused(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    assert main(["convert", *map(str, words)]) == 2
    return capsys.readouterr().err


def test_a_schedule_and_an_optimizer_of_two_positions_stop_the_conversion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = trained(plain=True)
    state["scheduler"]["_last_lr"] = [0.0099]
    said = refused(capsys, saved(tmp_path, state), tmp_path / "o", "--to", "orbax")
    assert "the schedule is at learning rate [0.0099], the optimizer at" in said
    assert not (tmp_path / "o").exists()


def test_names_are_checked_by_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = trained()
    source = saved(tmp_path, state)
    said = refused(capsys, source, tmp_path / "o", "--to", "orbax")  # equal shapes would hide another order
    assert "has 2 groups, and parameters are numbered group by group" in said
    assert "--names FILE" in said
    (tmp_path / "names.txt").write_text("\n".join(reversed(state["names"])))
    words = [source, tmp_path / "o", "--to", "orbax", "--names", tmp_path / "names.txt"]
    assert "it belongs to" in refused(capsys, *words)
    (tmp_path / "names.txt").write_text("\n".join(state["names"][:-1]))
    assert "names; give the names" in refused(
        capsys, source, tmp_path / "o", "--to", "orbax", "--names", tmp_path / "names.txt"
    )


def test_plain_optax_is_refused_a_state_that_it_cannot_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for state, why in (
        (trained(), "groups differ in lr"),
        (trained("Adam", plain=True, amsgrad=True), "amsgrad is on"),
        (trained("NAdam", plain=True), "Optax keeps the state of NAdam in another form"),
    ):
        words = named(tmp_path, state) if len(state["optimizer"]["param_groups"]) > 1 else []
        source = saved(tmp_path, state)
        assert why in refused(capsys, source, tmp_path / "o", "--to", "orbax", "--optimizer", "optax", *words)
    late = trained(plain=True)
    late["optimizer"]["state"][3]["step"] -= 1
    source = saved(tmp_path, late)
    assert "updates and" in refused(capsys, source, tmp_path / "o", "--to", "orbax", "--optimizer", "optax")


@pytest.mark.takes_seconds
def test_a_run_that_went_on_in_jax_takes_names_from_a_checkpoint_like_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = trained(plain=True)
    for key in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):
        del state["model"][key]
    source = saved(tmp_path, state)
    converted(capsys, source, tmp_path / "o", "--to", "orbax")
    _later(tmp_path / "o", tmp_path / "later")
    assert "--like FILE" in refused(capsys, tmp_path / "later", tmp_path / "b.pt", "--to", "torch.save")
    words = [tmp_path / "later", tmp_path / "b.pt", "--to", "torch.save", "--like", source]
    ledger = converted(capsys, *words, code=1)
    lost = {e["leaf"] for e in ledger["entries"] if e["action"] == "refused"}
    assert lost == {"scaler", "rng", "sampler", "epoch", "best"}
    assert not (tmp_path / "b.pt").exists()
    components = ("loss scaler", "random streams", "data position", "counters", "best so far")
    ledger = converted(capsys, *words, *(word for name in components for word in ("--reset", name)))
    assert {e["leaf"] for e in ledger["entries"] if e["action"] == "reset"} == lost
    back = torch.load(tmp_path / "b.pt", weights_only=True)
    assert back["step"] == STEPS + 7
    assert back["optimizer"]["state"][0]["step"].item() == STEPS + 7
    assert torch.equal(back["model"]["late"], state["model"]["late"] + 1)
    assert torch.equal(back["model"]["head.weight"], state["model"]["head.weight"])


def _later(path: Path, target: Path) -> None:
    import orbax.checkpoint as ocp

    tree = ocp.PyTreeCheckpointer().restore(path.resolve())
    tree["params"]["late"] = tree["params"]["late"] + 1
    for at in (0, 2):
        tree["opt_state"][at]["count"] = np.int32(tree["opt_state"][at]["count"] + 7)
    tree["step"] += 7
    del tree["torch"]
    ocp.PyTreeCheckpointer().save(target.resolve(), tree)


@pytest.mark.takes_seconds
def test_a_document_that_training_left_behind_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tree is carried along with the document of the step at which it was converted."""
    import orbax.checkpoint as ocp

    converted(capsys, saved(tmp_path, trained(plain=True)), tmp_path / "o", "--to", "orbax")
    for name, changes in {"all": (7, 7, 7), "counts": (7, 7, 0), "adam": (7, 0, 0)}.items():
        tree = ocp.PyTreeCheckpointer().restore((tmp_path / "o").resolve())
        adam, schedule, step = changes
        tree["opt_state"][0]["count"] = np.int32(tree["opt_state"][0]["count"] + adam)
        tree["opt_state"][2]["count"] = np.int32(tree["opt_state"][2]["count"] + schedule)
        tree["step"] += step
        ocp.PyTreeCheckpointer().save((tmp_path / name).resolve(), tree)
        words = [tmp_path / name, tmp_path / "b.pt", "--to", "torch.save"]
        if step:
            ledger = converted(capsys, *words, code=1)
            lost = {e["leaf"]: e["how"] for e in ledger["entries"] if e["action"] == "refused"}
            assert "is that of step 4, and the parameters are of step 11" in lost["rng"]
            assert ("scheduler" in lost) == (name != "all")  # moved on by Optax's count
        else:
            assert "step is 4 as it was, and opt_state." in refused(capsys, *words)
        assert not (tmp_path / "b.pt").exists()


def test_a_leaf_without_a_place_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import orbax.checkpoint as ocp

    converted(capsys, saved(tmp_path, trained(plain=True)), tmp_path / "o", "--to", "orbax")
    tree = ocp.PyTreeCheckpointer().restore((tmp_path / "o").resolve())
    tree["params"]["adapter"] = np.ones(3)
    ocp.PyTreeCheckpointer().save((tmp_path / "more").resolve(), tree)
    ledger = converted(capsys, tmp_path / "more", tmp_path / "b.pt", "--to", "torch.save", code=1)
    assert [e["leaf"] for e in ledger["entries"] if e["action"] == "refused"] == ["params.adapter"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["more", "o", "state.pt"]


def test_the_first_update_of_a_parameter_in_jax_makes_the_entry_that_pytorch_had_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its moments would be dropped: before that update they are zeros, and no loss."""
    import orbax.checkpoint as ocp

    state = trained()
    converted(capsys, saved(tmp_path, state), tmp_path / "o", "--to", "orbax", *named(tmp_path, state))
    tree = ocp.PyTreeCheckpointer().restore((tmp_path / "o").resolve())
    order = sorted(tuple(map(str, keys)) for keys, _ in leaves(open_any(tmp_path / "o").tree["params"]))
    place = order.index(("unused",))
    assert tree["opt_state"]["step"][place] == 0
    tree["opt_state"]["step"][place] = 1
    for number, slot in enumerate(("first_moment", "second_moment"), start=2):
        tree["opt_state"]["slots"][slot]["unused"] = np.full_like(tree["params"]["unused"], number)
    ocp.PyTreeCheckpointer().save((tmp_path / "later").resolve(), tree)
    ledger = converted(capsys, tmp_path / "later", tmp_path / "b.pt", "--to", "torch.save")
    assert any("had no state yet of 1 parameter" in note for note in ledger["notes"])
    before, after = (s["optimizer"]["state"] for s in (state, torch.load(tmp_path / "b.pt", weights_only=True)))
    (new,) = after.keys() - before.keys()
    assert (float(after[new]["step"]), *(set(after[new][k].ravel().tolist()) for k in ("exp_avg", "exp_avg_sq"))) == (
        1.0, {2.0}, {3.0},
    )  # fmt: skip
    for key, entry in before.items():
        assert all(torch.equal(value, after[key][name]) for name, value in entry.items())


@pytest.mark.parametrize("to", ["orbax", "safetensors", "torch.save"])
def test_the_parameters_alone_are_shipped(tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str) -> None:
    state = trained(plain=True)
    ledger = converted(capsys, saved(tmp_path, state), tmp_path / "p", "--to", to, "--only", "params")
    assert ledger["counts"]["copied"] == len(state["model"])
    assert ledger["counts"]["left out"] > 20
    found = {name.split(".", 1)[1] if to == "orbax" else name: a for name, a in arrays(tmp_path / "p").items()}
    assert {name: a.tobytes() for name, a in found.items()} == {
        name: tensor.numpy().tobytes() for name, tensor in state["model"].items()
    }
    if to == "orbax":
        converted(capsys, tmp_path / "p", tmp_path / "b.safetensors", "--to", "safetensors", "--only", "params")
        assert arrays(tmp_path / "b.safetensors").keys() == state["model"].keys()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.replace('"dtype"', '"type"', 1), "dtype"),
        (lambda text: text.replace('"head.weight"', '"other.weight"'), "other.weight"),
    ],
)
def test_a_document_with_a_reference_that_is_damaged_ships_no_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Any, message: str
) -> None:
    """Every parameter is shipped or the document is refused: none is left out silently."""
    import orbax.checkpoint as ocp

    converted(capsys, saved(tmp_path, trained(plain=True)), tmp_path / "o", "--to", "orbax")
    tree = ocp.PyTreeCheckpointer().restore((tmp_path / "o").resolve())
    whole = tree["torch"]["state"]
    tree["torch"]["state"] = damage(whole)
    assert tree["torch"]["state"] != whole
    ocp.PyTreeCheckpointer().save((tmp_path / "damaged").resolve(), tree)
    words = [tmp_path / "damaged", tmp_path / "m.safetensors", "--to", "safetensors", "--only", "params"]
    assert message in refused(capsys, *words)
    assert not (tmp_path / "m.safetensors").exists()


@pytest.mark.parametrize("count", [float("nan"), float("inf"), -1.0, 2.5])
def test_a_step_of_the_optimizer_that_is_no_count_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: float
) -> None:
    state = trained(plain=True)
    state["optimizer"]["state"][0]["step"] = torch.tensor(count)
    assert "expected a count of at least 0" in refused(
        capsys, saved(tmp_path, state), tmp_path / "o", "--to", "orbax"
    )


def test_objects_are_refused_by_name_or_left_out_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from argparse import Namespace

    source = saved(tmp_path, {**trained(plain=True), "args": Namespace(lr=0.1)})
    for to in ("orbax", "torch.save"):
        ledger = converted(capsys, source, tmp_path / "o", "--to", to, code=1)
        (entry,) = (e for e in ledger["entries"] if e["action"] == "refused")
        assert (entry["leaf"], "argparse.Namespace" in entry["how"]) == ("args", True)
    ledger = converted(capsys, source, tmp_path / "o", "--to", "orbax", "--reset", "args")
    assert ledger["counts"]["reset"] == 1


CLASSED = {
    "scale = 0.125": "value-scaling",
    'cast = "bfloat16"': "lossy",
}


@pytest.mark.parametrize("row", CLASSED)
def test_a_rule_that_moments_do_not_follow_is_refused_for_a_training_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str
) -> None:
    source = saved(tmp_path, trained(plain=True))
    (tmp_path / "rules.toml").write_text(f'[[rule]]\ntorch = "head.weight"\njax = "head.kernel"\n{row}\n')
    words = [source, tmp_path / "o", "--to", "orbax", "--rules", tmp_path / "rules.toml"]
    ledger = converted(capsys, *words, code=1)
    (entry,) = (e for e in ledger["entries"] if e["action"] == "refused")
    assert entry["leaf"] == "head.weight"
    assert f"its rule is {CLASSED[row]}" in entry["how"]
    converted(capsys, *words, "--only", "params")


def test_a_target_that_exists_a_full_disk_and_nothing_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved(tmp_path, trained(plain=True))
    before = source.read_bytes()
    (tmp_path / "there").mkdir()
    assert "exists already" in refused(capsys, source, tmp_path / "there", "--to", "orbax")
    assert "is no directory" in refused(capsys, source, tmp_path / "no" / "o", "--to", "orbax")
    assert "does not exist" in refused(capsys, tmp_path / "gone", tmp_path / "o", "--to", "orbax")
    import shutil
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 100))
    assert "has 100 bytes free" in refused(capsys, source, tmp_path / "o", "--to", "orbax")
    assert source.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.pt", "there"]


@pytest.mark.parametrize("to", ["orbax", "torch.save", "safetensors", "dcp", "flax-msgpack"])
@pytest.mark.takes_seconds
def test_a_disk_that_is_full_in_the_middle_leaves_nothing(tmp_path: Path, to: str) -> None:
    source = saved(tmp_path, {"model": {f"w{n}": torch.randn(200_000) for n in range(4)}})
    code = (
        "import resource, sys; from parity.cli import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000)); "
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ["convert", str(source), str(tmp_path / "out"), "--to", to]
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert ran.returncode == 3, ran.stderr[-500:]
    assert "File too large" in ran.stderr or f"{to} could not be written" in ran.stderr
    assert "error: write " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state.pt"]


def killed(tmp_path: Path, to: str, times: int, seed: int) -> None:
    """Kill a conversion at random moments: the target is not there, or whole; the source stays."""
    source = saved(tmp_path, {"model": {f"w{n}": torch.randn(2_000_000) for n in range(8)}})
    before = source.stat().st_mtime_ns, source.stat().st_size
    random, target = Random(seed), tmp_path / "out"
    whole = absent = 0
    for _ in range(times):
        child = subprocess.Popen(
            [sys.executable, "-m", "parity", "convert", str(source), str(target), "--to", to],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        limit = time.monotonic() + 60
        while not list(tmp_path.glob(".out*")) and child.poll() is None and time.monotonic() < limit:
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.25))
        child.send_signal(signal.SIGKILL)
        child.wait()
        if target.exists():
            assert main(["verify", str(target)]) == 0
            whole += 1
        else:
            absent += 1
        for left in tmp_path.iterdir():
            if left != source:
                subprocess.run(["rm", "-rf", str(left)], check=True)
    assert absent, "no kill came before the end"
    assert (source.stat().st_mtime_ns, source.stat().st_size) == before


@pytest.mark.takes_seconds
@pytest.mark.parametrize("to", ["torch.save", "safetensors"])
def test_a_killed_conversion_leaves_nothing_that_looks_whole(tmp_path: Path, to: str) -> None:
    killed(tmp_path, to, 3, 1)


@pytest.mark.soak
@pytest.mark.parametrize("to", ["orbax", "torch.save", "safetensors", "dcp", "flax-msgpack"])
def test_a_conversion_killed_at_a_hundred_moments_leaves_nothing_that_looks_whole(tmp_path: Path, to: str) -> None:
    killed(tmp_path, to, 100, 2)


@pytest.mark.parametrize("to", ["orbax", "torch.save", "safetensors", "dcp", "flax-msgpack"])
def test_the_seal_has_the_digest_of_every_array_that_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    converted(capsys, saved(tmp_path, trained(plain=True)), tmp_path / "out", "--to", to)
    written = open_any(tmp_path / "out")
    expected = {leaf_name(keys): digest_text(array.load()) for keys, array in written.arrays().items()}
    assert len(expected) > 20
    assert dict(written.digests) == expected


@pytest.mark.takes_seconds
def test_a_flipped_bit_of_what_was_written_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(tmp_path, trained(plain=True))
    for to, name in (("safetensors", "a.safetensors"), ("torch.save", "a.pt")):
        converted(capsys, source, tmp_path / name, "--to", to)
        whole = (tmp_path / name).read_bytes()
        for at in Random(3).sample(range(len(whole)), 6):
            broken = bytearray(whole)
            broken[at] ^= 1 << at % 8
            (tmp_path / name).write_bytes(broken)
            assert main(["verify", str(tmp_path / name)]) == 1
            assert "is damaged" in refused(capsys, tmp_path / name, tmp_path / "again", "--to", to)
        os.unlink(tmp_path / f".{name}.seal.json")
