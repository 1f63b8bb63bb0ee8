"""`parity inspect` says what a checkpoint is and what a resume would miss, without a framework and without arrays."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from parity.cli import main
from parity.convert import inspect_source, open_any


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
        (lambda s: torch.ones(3), "parameters: enough for inference, and to start training anew"),
        (lambda s: {"foo": 1, "bar": "x"}, "nothing of a training state by a name that is known"),
    ],
)
def test_parts_are_told_from_wholes(tmp_path: Path, make: Any, summary: str) -> None:
    assert inspected(tmp_path, make(training())).summary == summary


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
