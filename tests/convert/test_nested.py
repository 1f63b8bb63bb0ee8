"""Parts of a training state that lie in dicts of their own: found, converted, and moved on as at the top."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler as lr

from parity.cli.main import main
from parity.convert import inspect_source, open_any

STEP, MORE = 3, 4


class Run:
    """Two layers, AdamW and a cosine."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = lr.CosineAnnealingLR(self.optimizer, 20)
        self.average = torch.optim.swa_utils.AveragedModel(self.model)

    def train(self, steps: int) -> "Run":
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.model(torch.ones(5, 3)).square().mean().backward()
            self.optimizer.step()
            self.schedule.step()
        return self

    def parts(self) -> tuple[Any, Any, Any, Any]:
        average = {name: value + 1 for name, value in self.model.state_dict().items()}
        return self.model.state_dict(), self.optimizer.state_dict(), self.schedule.state_dict(), average


def shapes_of(kind: str, step: int, run: Run) -> dict[str, Any]:
    """Return a state in a layout that trainers have."""
    model, optim, schedule, ema = run.parts()
    return {
        "app state": {"app": {"model": model, "optim": optim}},
        "app and extra": {
            "app": {"model": model, "optim": optim},
            "extra": {"lr_scheduler": schedule, "step": step},
        },
        "one key": {"train": {"model": model, "optimizer": optim, "scheduler": schedule, "global_step": step}},
        "averaged": {"state": {"model": model, "ema": ema, "optimizer": optim}, "step": step},
        "named optimizers": {"model": {"state_dict": model}, "optimizers": {"adam": optim}, "step": step},
        "progress": {
            "model": model,
            "optimizer": optim,
            "progress": {"step": step},
            "schedulers": {"cosine": schedule},
        },
        "metadata": {"model": model, "optimizer": optim, "metadata": {"global_step": step, "commit": "abc"}},
        "list": {"trainers": [{"model": model, "optimizer": optim, "scheduler": schedule}], "step": step},
    }[kind]


KINDS = (
    *("app state", "app and extra", "one key", "averaged", "named optimizers", "progress", "metadata"),
    "list",
)


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_an_optimizer_below_other_keys_is_converted_and_comes_back(tmp_path: Path, kind: str) -> None:
    state = shapes_of(kind, STEP, Run().train(STEP))
    torch.save(state, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    tree = open_any(tmp_path / "o").tree
    assert tree["opt_state"][0]["mu"]["0"]["weight"].load().shape == (4, 3)
    assert tree["step"] == STEP
    assert main(["convert", str(tmp_path / "o"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    assert main(["compare", str(tmp_path / "a.pt"), str(tmp_path / "b.pt")]) == 0
    assert "optimizer" not in dict(inspect_source(open_any(tmp_path / "o")).missing)


def test_an_optimizer_of_dcp_below_another_key_is_converted(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(shapes_of("app and extra", STEP, Run().train(STEP)), checkpoint_id=tmp_path / "a")
    (tmp_path / "names").write_text("0.weight\n0.bias\n1.weight\n1.bias")
    words = [str(tmp_path / "a"), str(tmp_path / "o"), "--to", "orbax", "--names", str(tmp_path / "names")]
    assert main(["convert", *words]) == 0
    tree = open_any(tmp_path / "o").tree
    assert (tree["step"], "mu" in tree["opt_state"][0], "schedule" in tree) == (STEP, True, True)


def moved(tmp_path: Path, state: dict[str, Any], capsys: Any, *words: str) -> tuple[int, Any]:
    """Convert, count on in JAX, convert back; return the exit code and the ledger."""
    import orbax.checkpoint as ocp

    torch.save(state, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "o")
    for one in tree["opt_state"]:
        if one and "count" in one:
            one["count"] = np.int32(one["count"] + MORE)
    tree["step"] += MORE
    ocp.PyTreeCheckpointer().save(tmp_path / "later", tree)
    capsys.readouterr()
    code = main(["convert", str(tmp_path / "later"), str(tmp_path / "b.pt"), "--to", "torch", "--json", *words])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", ["app and extra", "one key", "progress"])
def test_a_schedule_and_a_counter_below_other_keys_go_on(tmp_path: Path, capsys: Any, kind: str) -> None:
    run = Run().train(STEP)
    assert moved(tmp_path, shapes_of(kind, STEP, run), capsys)[0] == 0
    wanted = shapes_of(kind, STEP + MORE, run.train(MORE))
    found = torch.load(tmp_path / "b.pt", weights_only=True)
    for path in (("extra",), ("train", "scheduler"), ("train", "global_step"), ("progress",), ("schedulers",)):
        if path[0] in wanted:
            got, expected = found, wanted
            for key in path:
                got, expected = got[key], expected[key]
            assert got == expected
    rates = [
        [group["lr"] for group in (one.get("app") or one.get("train") or one)[key]["param_groups"]]
        for one in (found, wanted)
        for key in ("optim" if "app" in one else "optimizer",)
    ]
    assert rates[0] == rates[1]


def test_what_lies_deeper_and_moves_is_refused_unless_a_flag_keeps_it(tmp_path: Path, capsys: Any) -> None:
    model, optim, _, ema = Run().train(STEP).parts()
    state = {
        "app": {"model": model, "optim": optim, "ema": {"decay": 0.9, "shadow": list(ema.values())}},
        "extra": {"step": STEP, "epoch": 1, "sampler": {"position": 15}},
    }
    code, said = moved(tmp_path, state, capsys)
    refused = {entry["leaf"]: entry["how"] for entry in said["entries"] if entry["action"] == "refused"}
    assert code == 1
    assert set(refused) == {"app.ema", "extra.epoch", "extra.sampler"}
    assert "--reset 'averaged parameters' keeps it" in refused["app.ema"]
    for path in ("o", "later"):
        (tmp_path / path).rename(tmp_path / f"{path} before")
    words = [one for name in ("averaged parameters", "extra.epoch", "data position") for one in ("--reset", name)]
    code, said = moved(tmp_path, state, capsys, *words)
    assert code == 0
    assert torch.load(tmp_path / "b.pt", weights_only=True)["extra"]["step"] == STEP + MORE


def test_counters_at_several_numbers_are_never_set(tmp_path: Path, capsys: Any) -> None:
    model, optim, _, _ = Run().train(STEP).parts()
    state = {"model": model, "optimizer": optim, "a": {"step": 20}, "b": {"step": 7}, "meta": {"iter": 9, "num_x": 2}}
    code, said = moved(tmp_path, state, capsys)
    refused = {entry["leaf"] for entry in said["entries"] if entry["action"] == "refused"}
    assert (code, refused) == (1, {"a.step", "b.step", "meta.iter"})


def test_what_nobody_knows_is_said_both_ways(tmp_path: Path, capsys: Any) -> None:
    model, optim, _, _ = Run().train(STEP).parts()
    strange = {"moments": [torch.ones(3)], "lr": 0.1}
    state = {
        "model": model,
        "optimizer": optim,
        "optimizer_of_head": strange,
        "head": {"w": torch.ones(2)},
        "step": STEP,
    }
    torch.save(state, tmp_path / "names.pt")
    (tmp_path / "names").write_text("0.weight\n0.bias\n1.weight\n1.bias")
    words = ["--to", "orbax", "--names", str(tmp_path / "names")]
    assert main(["convert", str(tmp_path / "names.pt"), str(tmp_path / "o"), *words]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "optimizer_of_head.moments is no state_dict of torch.optim" in said
    assert "JAX gets nothing of it: head" in said


def test_several_models_below_one_key_name_the_keys_that_decide(tmp_path: Path, capsys: Any) -> None:
    model, optim, _, _ = Run().train(STEP).parts()
    other = torch.nn.Linear(3, 5)
    torch.save({"nets": {"G": model, "D": other.state_dict()}, "optims": {"G": optim}}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 2
    assert "--keys nets.G,optims.G" in " ".join(capsys.readouterr().err.split())
    words = ["--to", "orbax", "--keys", "nets.G,optims.G"]
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), *words]) == 0
    assert "mu" in open_any(tmp_path / "o").tree["opt_state"][0]


def test_what_an_optimizer_has_beside_its_state_is_refused_with_the_flags_that_decide(
    tmp_path: Path, capsys: Any
) -> None:
    model, optim, _, _ = Run().train(STEP).parts()
    state = {"model": model, "optimizer": {**optim, "master_weights": [torch.ones(2)]}, "step": STEP}
    torch.save(state, tmp_path / "a.pt")
    words = ["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]
    assert main(words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "optimizer has master_weights beside state and param_groups" in said
    keys = "model,optimizer.state,optimizer.param_groups"
    assert f"--keys {keys} converts the rest" in said
    assert main([*words, "--keys", keys]) == 0
    assert "mu" in open_any(tmp_path / "o").tree["opt_state"][0]
    words[2] = str(tmp_path / "o2")
    assert main([*words, "--reset", "optimizer"]) == 0


def test_averages_of_another_form_are_said(tmp_path: Path, capsys: Any) -> None:
    model, optim, _, ema = Run().train(STEP).parts()
    average = {"initted": torch.tensor(True), **{f"ema_model.{name}": value for name, value in ema.items()}}
    torch.save({"model": model, "opt": optim, "ema": average, "step": STEP}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "kept in torch for the way back alone, JAX gets nothing of it: ema" in said
