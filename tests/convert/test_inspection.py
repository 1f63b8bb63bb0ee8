"""`parity inspect` says what a checkpoint is and what a resume would miss, without a framework and without arrays."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import torch
import torch.distributed.checkpoint as dcp
from flax.training.train_state import TrainState
from safetensors.torch import save_file

from parity.cli import main
from parity.convert import inspect_source, open_any
from parity.formats import InMemory, Source


def training(steps: int = 1) -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        schedule.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": schedule.state_dict()}


def inspected(tmp_path: Path, value: Any) -> Any:
    torch.save(value, tmp_path / "x.pt")
    return inspect_source(open_any(tmp_path / "x.pt"))


WHOLE = {
    "scaler": {"scale": 1.0},
    "rng_state": torch.ones(3),
    "sampler": {"position": 3},
    "global_step": 7,
    "epoch": 1,
}


def test_a_whole_training_state_misses_nothing(tmp_path: Path) -> None:
    found = inspected(tmp_path, {**training(), **WHOLE, "config": {"lr": 0.1}})
    assert found.summary == "a whole training state"
    assert (found.missing, found.step, found.step_from, found.fact) == ((), 7, "global_step", "inferred")
    names = [group.component for group in found.groups]
    assert names == [
        *("parameters", "optimizer", "schedule", "loss scaler", "random streams", "data position", "counters"),
        "configuration",
    ]
    assert found.groups[0].elements == 4 * 3 + 3 + 3 * 2 + 2
    assert found.groups[1].nbytes == 2 * 4 * found.groups[0].elements + 4 * 4


@pytest.mark.parametrize(
    ("left_out", "component"),
    [
        ("optimizer", "optimizer"),
        ("scheduler", "schedule"),
        ("scaler", "loss scaler"),
        ("rng_state", "random streams"),
        ("sampler", "data position"),
        ("global_step", None),  # epoch is still a counter
        ("model", None),
    ],
)
def test_what_is_left_out_is_named(tmp_path: Path, left_out: str, component: str | None) -> None:
    value = {**training(), **WHOLE}
    del value[left_out]
    found = inspected(tmp_path, value)
    assert [name for name, _ in found.missing] == ([component] if component else [])
    assert (found.summary == "a whole training state") == (left_out == "global_step")
    if left_out == "model":
        assert "without parameters" in found.summary


@pytest.mark.parametrize(
    ("make", "summary"),
    [
        (lambda s: s["model"], "parameters: enough for inference, and to start training anew"),
        (lambda s: s["optimizer"], "a part of a training state, without parameters: optimizer"),
        (lambda s: s["scheduler"], "a part of a training state, without parameters: schedule"),
        (
            lambda s: {"state_dict": s["model"], "step": 1},
            "parameters and counters, without optimizer: enough for inference",
        ),
        # a table, a voice, means and deviations of data: arrays alone are not known to be a model's
        (lambda s: torch.ones(3), "nothing of a training state by a name that is known"),
        (
            lambda s: {"mean": torch.ones(3), "std": torch.ones(3)},
            "nothing of a training state by a name that is known",
        ),
        (lambda s: {"obs": {"a": torch.ones(3)}}, "nothing of a training state by a name that is known"),
        (
            lambda s: {"net": {"0.weight": torch.ones(3)}},
            "parameters: enough for inference, and to start training anew",
        ),
        (lambda s: {"foo": 1, "bar": "x"}, "nothing of a training state by a name that is known"),
    ],
)
def test_parts_are_told_from_wholes(tmp_path: Path, make: Any, summary: str) -> None:
    assert inspected(tmp_path, make(training())).summary == summary


def gan(*names: str) -> dict[str, Any]:
    """Return the states of two models and their optimizers under four names."""
    one, two = training(), training()
    values = one["model"], two["model"], one["optimizer"], two["optimizer"]
    return dict(zip(names, values, strict=True))


def flax_state() -> Any:
    """Return a linen `TrainState`, whose moments are twice as large as the parameters."""
    params = {"Dense_0": {"kernel": jnp.ones((3, 4)), "bias": jnp.ones(4)}}
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return TrainState.create(apply_fn=print, params=params, tx=tx)


BOTH, GENERATOR = {"parameters": 46, "optimizer": 100}, ("generator_state_dict", "discriminator_state_dict")
ONE, AVERAGED = {"parameters": 16, "optimizer": 33}, {"parameters": 23, "averaged parameters": 23, "optimizer": 100}
PARTS: list[tuple[str, Any, dict[str, int], str]] = [
    ("netG, netD", lambda: gan("netG", "netD", "optG", "optD"), BOTH, "netG, netD"),
    ("generator", lambda: gan(*GENERATOR, "opt_g", "opt_d"), BOTH, "of its leaves, in generator_state_dict"),
    ("G, D", lambda: gan("G", "D", "G_o", "D_o"), BOTH, "by the names of their leaves, in G, D"),
    ("AppState", lambda: {"app": gan("model", "ema", "optim", "o2")}, AVERAGED, "by its name app.model"),
    ("linen in model", lambda: {"model": flax_state()}, ONE, "by its name model.params"),
    ("MaxText's items", lambda: {"items": flax_state()}, ONE, "by its name items.params"),
    (
        "linen GAN",
        lambda: {"gen": flax_state(), "disc": flax_state()},
        {name: 2 * count for name, count in ONE.items()},
        "by their names disc.params, gen.params",
    ),
    (
        "a generator's state",
        lambda: {"model": training()["model"], "generator": torch.Generator().get_state()},
        {"parameters": 23, "random streams": 5056},
        "by its name model",
    ),
]


@pytest.mark.parametrize(("make", "elements", "evidence"), [row[1:] for row in PARTS], ids=[row[0] for row in PARTS])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_parts_are_found_below_any_name_and_say_by_what(
    make: Any, elements: dict[str, int], evidence: str, tmp_path: Path
) -> None:
    """Moments are no parameters, whatever the branch is called that they lie in."""
    value = make()
    if any(isinstance(one, TrainState) for one in value.values()):
        ocp.PyTreeCheckpointer().save(tmp_path / "x", value)
        found = inspect_source(open_any(tmp_path / "x"))
    else:
        found = inspected(tmp_path, value)
    assert {group.component: group.elements for group in found.groups if group.arrays} == elements
    assert evidence in found.groups[0].evidence
    assert ("optimizer" in [name for name, _ in found.missing]) == ("optimizer" not in elements)
    assert "enough for inference" not in found.summary or "optimizer" not in elements


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_app_state_of_dcp_is_found_in_its_directory(tmp_path: Path) -> None:
    dcp.save({"app": gan("model", "ema", "optim", "opt2")}, checkpoint_id=str(tmp_path / "x"), no_dist=True)
    found = inspect_source(open_any(tmp_path / "x"))
    assert found.summary.startswith("a training state without schedule")
    assert [group.component for group in found.groups] == ["parameters", "optimizer", "averaged parameters"]


def test_the_steps_of_a_trainers_document_are_counters(tmp_path: Path) -> None:
    state = training()
    save_file(state["model"], tmp_path / "model.safetensors")
    torch.save(state["optimizer"], tmp_path / "optimizer.pt")
    torch.save(state["scheduler"], tmp_path / "scheduler.pt")
    document = {"global_step": 500, "epoch": 1.5, "best_metric": 0.3, "log_history": [{"step": 10, "loss": 1.0}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(document))
    (tmp_path / "config.json").write_text("{}")
    found = inspect_source(open_any(tmp_path))
    assert (found.step, found.step_from) == (500, "trainer_state.global_step")
    assert "counters" not in [name for name, _ in found.missing]
    assert "counters" not in found.summary


def test_what_is_unknown_is_not_said_to_be_absent(tmp_path: Path) -> None:
    state = training()
    found = inspected(tmp_path, {"model": state["model"], "stuff": {"a": torch.ones(3)}, "step": 4})
    said = "parameters and counters, no optimizer by a name that is known; unknown what else it holds"
    assert found.summary == f"{said} (no customary name: stuff)"
    found = inspected(tmp_path, {"model": state["model"], "stuff": {"a": torch.ones(3)}})
    assert found.summary.startswith("parameters; unknown what else it holds")
    found = inspected(tmp_path, {**state, "stuff": {"a": torch.ones(3)}})
    assert found.summary.startswith(
        "a training state, no loss scaler, random streams, data position or counters by a"
    )
    for words in ("without", "enough"):
        assert words not in found.summary


def test_a_nest_of_containers_takes_no_time(tmp_path: Path) -> None:
    """Each branch is looked at once, not once for each way to ask about it."""
    nest: Any = {"mu": torch.ones(1), "nu": torch.ones(1)}
    lists: Any = [1]
    for _ in range(80):
        nest, lists = {"a": nest, "b": 1}, [lists]
    found = inspected(tmp_path, {"x": nest, "y": lists, "model": {"weight": torch.ones(1)}})
    assert {group.component for group in found.groups} == {"parameters", "optimizer", "other"}


@pytest.mark.parametrize("count", [float("nan"), float("inf"), -1, 2.5, True, "7", torch.tensor(float("nan"))])
def test_a_counter_that_holds_no_count_is_no_step(tmp_path: Path, count: Any) -> None:
    found = inspected(tmp_path, {**training(), "step": count, "iteration": 5})
    assert (found.step, found.step_from) == (5, "iteration")
    assert inspected(tmp_path, {**training(), "step": torch.tensor([3.0])}).step == 3


def test_rows_that_differ_in_numbers_are_one_unless_all_are_asked_for(tmp_path: Path) -> None:
    torch.save({f"layers.{n}.weight": torch.ones(2) for n in range(12)}, tmp_path / "x.pt")
    source = open_any(tmp_path / "x.pt")
    (row,) = inspect_source(source).groups[0].rows
    assert (row.name, row.kind, row.count, row.nbytes) == ("layers.*.weight", "float32[2]", 12, 96)
    assert len(inspect_source(source, every=True).groups[0].rows) == 12


def test_the_command_prints_it_and_its_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({**training(), "args": object, "step": 4}, tmp_path / "x.pt")
    assert main(["inspect", str(tmp_path / "x.pt")]) == 0
    shown = capsys.readouterr().out
    assert "a training state without loss scaler, random streams and data position (inferred)" in shown
    assert "step 4 (inferred from the name step)" in shown
    assert "no random streams by any name that is known" in shown
    assert main(["inspect", str(tmp_path / "x.pt"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["step"]) == ("parity.inspection/1", 4)


def test_a_checkpoint_of_our_own_is_read_by_its_seal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["train", "--side", "torch", "--spec", "mlp-digits", "--dir", str(tmp_path / "run"), "--steps", "2"]
    assert main(run) == 0
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "sealed by the side torch at step 2" in shown
    assert "without loss scaler (read)" in shown or "a whole training state (read)" in shown


def test_nothing_there_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "gone")]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["inspect", str(tmp_path / "empty")]) == 2
    torch.save({}, tmp_path / "x.pt")
    assert main(["inspect", str(tmp_path / "x.pt")]) == 5
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.takes_seconds
def test_eight_gigabytes_take_no_memory_and_no_framework(tmp_path: Path) -> None:
    """The file is sparse, as its arrays must not be read; its directory has 400 of them."""
    count, each = 400, 20 << 20
    names = {
        f"layers.{n}.weight": {"dtype": "F32", "shape": [each // 4], "data_offsets": [n * each, (n + 1) * each]}
        for n in range(count)
    }
    header = json.dumps(names).encode()
    path = tmp_path / "big.safetensors"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + count * each)
    code = (
        "import sys, resource; from parity.cli import main; code = main(['inspect', sys.argv[1]]); "
        "frameworks = {n.split('.')[0] for n in sys.modules} & {'torch', 'jax', 'flax', 'orbax', 'tensorstore'}; "
        "anonymous = [l for l in open('/proc/self/status') if l.startswith('RssAnon')][0].split()[1]; "
        "print(code, sorted(frameworks), int(anonymous) < 200_000)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "0 [] True"
    assert "8,388,608,000 bytes" in ran.stdout


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    from rich.console import Console

    from parity.report import inspection

    save_file({"a_very_long_name_of_a_layer.with.many.parts.0.weight": torch.ones(2, 3)}, tmp_path / "m.safetensors")
    found = inspect_source(open_any(tmp_path / "m.safetensors"))
    out = io.StringIO()
    original = inspection.open_console
    inspection.open_console = lambda file: Console(
        file=file, width=width, force_terminal=True, highlight=False, color_system=None
    )
    try:
        inspection.print_inspection(found, out)
    finally:
        inspection.open_console = original
    lines = out.getvalue().splitlines()
    assert max(map(len, lines[1:])) <= width
    assert any("float32[2,3]" in line for line in lines)


def of_flax_optim() -> dict[str, Any]:
    """Return a state as `flax.optim` and T5X save it: the optimizer holds what it trains."""
    layer = {"kernel": InMemory(np.ones((2, 3), np.float32)), "bias": InMemory(np.ones(3, np.float32))}
    moments = {"kernel": {"m": InMemory(np.ones((2, 3), np.float32)), "v": InMemory(np.ones((2, 3), np.float32))}}
    state = {"step": InMemory(np.array(7, np.int32)), "param_states": {"dense": moments}}
    return {"optimizer": {"target": {"dense": layer}, "state": state}, "version": 3}


def test_what_an_optimizer_of_flax_trains_is_no_part_of_it() -> None:
    found = inspect_source(Source(path=Path("a"), format="orbax", tree=of_flax_optim(), detail=""))
    assert {group.component: group.arrays for group in found.groups if group.arrays} == {
        "parameters": 2,
        "optimizer": 2,
        "counters": 1,
    }
    assert found.step == 7


def test_an_optimizer_by_its_name_alone_may_hold_the_parameters() -> None:
    tree = {"optimizer": {"inner": {"a": InMemory(np.ones(3, np.float32))}}}
    assert (
        "no parameters by a name that is known"
        in inspect_source(Source(path=Path("a"), format="orbax", tree=tree, detail="")).summary
    )
    kept = {"optim": {"state": {0: {"exp_avg": InMemory(np.ones(3, np.float32))}}, "param_groups": [{"params": [0]}]}}
    assert (
        "without parameters"
        in inspect_source(Source(path=Path("a"), format="torch.save", tree=kept, detail="")).summary
    )
