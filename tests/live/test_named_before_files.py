"""What differs at most resumes and is no loss alone (a mode, a gradient, a seed) is named behind what was lost."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import parity
from parity.results import Resumption


def judged(train: Callable[..., Any]) -> Resumption:
    return parity.resumes(train, steps=14, stop_at=9, mode="inline", scenarios="kill")


@pytest.mark.parametrize("lost", ["", "late"])
def test_a_schedule_whose_phase_is_over_is_named_before_the_seed_of_a_loader(lost: str) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        data = torch.utils.data.TensorDataset(torch.randn(8, 3))
        loader = torch.utils.data.DataLoader(data, batch_size=4)
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        early = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        done, file = 0, folder / "state.pt"
        if file.exists():
            kept = torch.load(file)
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            done = kept["done"]
            if lost != "late":
                early.load_state_dict(kept["early"])
        while done < steps:
            yield done
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            if done < 4:
                early.step()
            done += 1
            parts = {"model": model, "optimizer": optimizer, "early": early}
            torch.save({"done": done} | {name: part.state_dict() for name, part in parts.items()}, file)

    found = judged(train)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    assert not lost or found.suspects[0].path == "early.last_epoch", found.text()


@pytest.mark.parametrize("lost", ["", "a"])
def test_a_list_that_a_file_shows_is_named_before_gradients(lost: str) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        x, net = torch.randn(8, 3), nn.Linear(3, 1)
        a: list[float] = []
        optimizer = torch.optim.LBFGS(net.parameters(), 0.5, 2)
        done, file = 0, folder / "state.pt"
        if file.exists():
            kept = torch.load(file)
            net.load_state_dict(kept["net"])
            optimizer.load_state_dict(kept["optimizer"])
            done, a = kept["done"], a if lost else kept["a"]

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            out = (net(x) - 1).square().mean() + net(x).exp().mean()
            out.backward()
            return out

        while done < steps:
            yield done
            a.append(float(optimizer.step(closure).detach()))
            done += 1
            torch.save({"done": done, "a": a, "net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)

    found = judged(train)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    assert not lost or found.suspects[0].path.startswith("a"), found.text()


@pytest.mark.parametrize("lost", ["", "optimizer", "seed", "mode"])
def test_what_only_a_save_evaluates_is_named_behind_an_optimizer_and_a_mode_that_counts_is_not(lost: str) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        x = torch.randn(8, 3)
        net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        mean = copy.deepcopy(net)
        optimizer = torch.optim.Adam(net.parameters(), 0.01)
        noise = torch.Generator().manual_seed(3)
        done, file = 0, folder / "state.pt"
        if lost == "mode":
            net[1].eval()  # from the first step on: a resumed process forgets it
        if file.exists():
            kept = torch.load(file)
            net.load_state_dict(kept["net"])
            mean.load_state_dict(kept["mean"])
            net.train()
            if lost != "optimizer":
                optimizer.load_state_dict(kept["optimizer"])
            if lost != "seed":
                noise.set_state(kept["noise"])
            done = kept["done"]
        while done < steps:
            yield done
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                for one, other in zip(mean.parameters(), net.parameters(), strict=True):
                    one.lerp_(other, 0.1)
            done += 1
            if done % 4 == 0:
                mean.eval()
                with torch.no_grad():
                    torch.save(mean(torch.randn(2, 3, generator=noise)), folder / f"sample_{done}.pt")
                parts = {"net": net, "mean": mean, "optimizer": optimizer}
                kept = {name: part.state_dict() for name, part in parts.items()}
                torch.save({"done": done, "noise": noise.get_state(), **kept}, file)

    found = judged(train)
    assert found.verdict == ("broken" if lost else "holds"), found.text()
    first = {"optimizer": "optimizer.step", "seed": "rng.noise", "mode": "model.mode", "": ""}[lost]
    assert not lost or found.suspects[0].component == first, found.text()
