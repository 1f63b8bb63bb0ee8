"""Several schedules of one optimizer: each has the rate that it left, and the optimizer that of the last."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import ExponentialLR, StepLR

from parity.cli import main


def state(first: str, second: str) -> dict[str, Any]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedules = StepLR(optimizer, 1, 0.5), ExponentialLR(optimizer, 0.9)
    for _ in range(3):
        optimizer.step()
        for one in schedules:
            one.step()
    kept = {key: one.state_dict() for key, one in zip((first, second), schedules, strict=True) if key}
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3, **kept}


@pytest.mark.parametrize("names", [("scheduler", "warmup"), ("warmup", "scheduler"), ("a", "b")])
@pytest.mark.parametrize("listed", [False, True])
def test_a_rate_that_another_schedule_set_is_explained_by_it(
    names: tuple[str, str], listed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = state(*names)
    if listed:
        saved["lr_schedulers"] = [saved.pop(name) for name in names]
    source, there, back = (str(tmp_path / name) for name in ("a.pt", "o", "back.pt"))
    torch.save(saved, source)
    assert main(["convert", source, there, "--to", "flax-msgpack"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    first, second = ("lr_schedulers.0", "lr_schedulers.1") if listed else names
    assert f"{first}: at another learning rate than the optimizer, which has that of {second}" in said
    assert main(["convert", there, back, "--to", "torch.save"]) == 0
    assert main(["compare", source, back]) == 0


@pytest.mark.parametrize("names", [("scheduler", ""), ("a", "")])
def test_a_rate_that_no_schedule_has_stops_the_conversion_and_the_advice_works(
    names: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, there = str(tmp_path / "a.pt"), str(tmp_path / "o")
    torch.save(state(*names), source)
    assert main(["convert", source, there, "--to", "flax-msgpack"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "or something else set the rate" in said
    words = said.rpartition("--keys ")[2]
    assert main(["convert", source, there, "--to", "flax-msgpack", "--keys", words]) == 0
