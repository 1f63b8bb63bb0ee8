"""Training states of PyTorch for conversions: late, unused and grouped parameters, and all that a run keeps."""

from pathlib import Path
from typing import Any

import torch

STEPS = 4


class Net(torch.nn.Module):
    """A model with a stack of layers, a normalization, and two parameters that may never be used."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 6)
        self.late = torch.nn.Parameter(torch.ones(4))
        self.unused = torch.nn.Parameter(torch.full((2, 3), 0.25))

    def forward(self, x: torch.Tensor, late: bool) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        x = self.norm(x)
        return self.head(x * self.late if late else x)


def trained(kind: str = "AdamW", *, plain: bool = False, steps: int = STEPS, **arguments: Any) -> dict[str, Any]:
    """Return the state of a run; `plain` for one group in which every parameter is used in each step."""
    torch.manual_seed(1)
    model = Net()
    if plain:
        del model.unused
    own = dict(model.named_parameters())
    biases = [p for name, p in own.items() if name.endswith("bias")]
    others = [p for name, p in own.items() if not name.endswith("bias")]
    lr = arguments.setdefault("lr", 0.01)
    extra = {} if kind == "Rprop" else {"weight_decay": 0.0}
    groups: Any = list(own.values()) if plain else [{"params": others}, {"params": biases, "lr": lr / 2, **extra}]
    optimizer = getattr(torch.optim, kind)(groups, **arguments)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(5, 4), plain or step >= 2).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    names = [name for group in (others, biases) for p in group for name, q in own.items() if q is p]
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": schedule.state_dict(),
        "scaler": scaler.state_dict(),
        "rng": {"torch": torch.get_rng_state(), "cuda": []},
        "sampler": {"epoch": 0, "position": 20},
        "step": steps,
        "epoch": 0,
        "best": (0.5, 3),
        "config": {"lr": lr, "nested": {"list": [1, 2.5, None, True]}, "text": "ß"},
        "names": names,
    }


def saved(tmp_path: Path, state: dict[str, Any], name: str = "state.pt") -> Path:
    """Write a state as `torch.save` does."""
    torch.save(state, tmp_path / name)
    return tmp_path / name


def named(tmp_path: Path, state: dict[str, Any]) -> list[str]:
    """Return the option that gives the names of the optimizer's parameters in its order."""
    (tmp_path / "names.txt").write_text("\n".join(state["names"]))
    return ["--names", str(tmp_path / "names.txt")]
