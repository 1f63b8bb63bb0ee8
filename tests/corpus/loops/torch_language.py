"""Loops that train language models: pretraining, adapters, rewards, and the shapes of the libraries around them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import parity
from tests.corpus.registry import Loop

__all__ = ["LOOPS"]

VOCAB = 11
TOKENS = torch.randint(0, VOCAB, (400,), generator=torch.Generator().manual_seed(4))


class Tiny(nn.Module):
    """Embedding, one mixing layer, head."""

    def __init__(self, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.mix = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        hidden = hidden + F.silu(self.mix(hidden.cumsum(1)))
        logits: torch.Tensor = self.head(self.drop(hidden))
        return logits


def token_loss(net: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Return the loss of the next tokens."""
    return F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def llama_pretraining(folder: Path, steps: int = 14, grad_accum: int = 2) -> Iterator[int]:
    """Warm up, then a cosine by formula; accumulate; read shards in order with a position that is kept.

    Source: jzhang38/TinyLlama, pretrain/tinyllama.py (get_lr, gradient accumulation, state dict with iter_num).
    """
    torch.manual_seed(40)
    model = Tiny()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=1e-2, betas=(0.9, 0.95)
    )
    hparams = {"warmup": 3, "decay": 30, "min_lr": 1e-3}
    pos, step_count, tokens_seen = 0, 0, 0
    if (folder / "iter-ckpt.pth").exists():
        state = torch.load(folder / "iter-ckpt.pth", weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        hparams = state["hparams"]
        pos, step_count, tokens_seen = state["pos"], state["step_count"], state["tokens_seen"]

    def get_lr(it: int) -> float:
        if it < hparams["warmup"]:
            return 1e-2 * (it + 1) / hparams["warmup"]
        ratio = (it - hparams["warmup"]) / (hparams["decay"] - hparams["warmup"])
        return hparams["min_lr"] + 0.5 * (1 + math.cos(math.pi * ratio)) * (1e-2 - hparams["min_lr"])

    while step_count < steps:
        yield step_count
        for group in optimizer.param_groups:
            group["lr"] = get_lr(step_count)
        for _ in range(grad_accum):
            ids = TOKENS[pos : pos + 18].view(3, 6)
            pos = (pos + 18) % 360
            tokens_seen += ids.numel()
            (token_loss(model, ids) / grad_accum).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step_count += 1
        if step_count % 4 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "hparams": hparams}
            state |= {"pos": pos, "step_count": step_count, "tokens_seen": tokens_seen}
            torch.save(state, folder / "iter-ckpt.pth")
    print("tokens", tokens_seen)
    return model.state_dict()


def grpo(folder: Path, steps: int = 12, group_size: int = 4) -> Iterator[int]:
    """Sample groups of answers, centre rewards in each group, clip the ratio; a reference follows now and then.

    Source: huggingface/trl, GRPOTrainer (group advantages, sync_ref_model), and DeepSeekMath, algorithm 1.
    """
    torch.manual_seed(41)
    policy, ref = Tiny(6), Tiny(6)
    ref.load_state_dict(policy.state_dict())
    ref.requires_grad_(False)
    adam = torch.optim.Adam(policy.parameters(), 5e-3)
    sampler = torch.Generator().manual_seed(5)
    at = 0
    if (folder / "grpo.pt").exists():
        policy_held, ref_held, adam_held, drawn, at = torch.load(folder / "grpo.pt")
        policy.load_state_dict(policy_held)
        ref.load_state_dict(ref_held)
        adam.load_state_dict(adam_held)
        sampler.set_state(drawn)

    def log_probs(net: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        logp = F.log_softmax(net(ids[:, :-1]), -1)
        return logp.gather(-1, ids[:, 1:, None])[..., 0]

    while at < steps:
        yield at
        prompts = TOKENS[at * 4 : at * 4 + 4].view(2, 2).repeat_interleave(group_size, 0)
        completion = prompts
        with torch.no_grad():
            for _ in range(3):
                probs = F.softmax(policy(completion)[:, -1], -1)
                completion = torch.cat([completion, torch.multinomial(probs, 1, generator=sampler)], 1)
            old, base = log_probs(policy, completion), log_probs(ref, completion)
        rewards = (completion % 2 == 0).float().mean(1).view(-1, group_size)
        advantages = ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        for _ in range(2):
            new = log_probs(policy, completion)
            ratio = (new - old).exp()
            gain = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
            kl = (base - new).exp() - (base - new) - 1
            adam.zero_grad()
            (-(gain - 0.04 * kl)[:, 1:].mean()).backward()
            adam.step()
        at += 1
        if at % 5 == 0:
            ref.load_state_dict(policy.state_dict())
        if at % 3 == 0:
            torch.save(
                (policy.state_dict(), ref.state_dict(), adam.state_dict(), sampler.get_state(), at),
                folder / "grpo.pt",
            )
    torch.save(policy.state_dict(), folder / "policy.pt")


class LowRank(nn.Module):
    """A frozen layer and a product of two small matrices."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.lora_dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x) + self.lora_dropout(x) @ self.lora_A.T @ self.lora_B.T
        return out


def lora_adapters(folder: Path, steps: int = 15, save_every: int = 4) -> Iterator[int]:
    """Train small matrices beside frozen weights; only these are written, as safetensors with a config beside.

    Source: huggingface/peft, examples/causal_language_modeling (get_peft_model, save_pretrained adapter files).
    """
    torch.manual_seed(42)
    model = Tiny()
    model.mix = LowRank(model.mix, 2)
    for name, p in model.named_parameters():
        p.requires_grad = "lora_" in name
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(trainable.values(), lr=2e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: max(0.0, 1 - at / 40))
    out, global_step = folder / "adapter", 0
    if (out / "trainer_state.json").exists():
        global_step = json.loads((out / "trainer_state.json").read_text())["global_step"]
        model.load_state_dict(load_file(out / "adapter_model.safetensors"), strict=False)
        optimizer.load_state_dict(torch.load(out / "optimizer.pt"))
        scheduler.load_state_dict(torch.load(out / "scheduler.pt"))
        torch.set_rng_state(torch.load(out / "rng_state.pth"))
    while global_step < steps:
        yield global_step
        batch = TOKENS[torch.randint(0, 390, (4, 1)) + torch.arange(6)]
        loss = token_loss(model, batch)
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        global_step += 1
        if global_step % save_every == 0:
            out.mkdir(exist_ok=True)
            save_file({n: p.detach() for n, p in trainable.items()}, out / "adapter_model.safetensors")
            torch.save(optimizer.state_dict(), out / "optimizer.pt")
            torch.save(scheduler.state_dict(), out / "scheduler.pt")
            torch.save(torch.get_rng_state(), out / "rng_state.pth")
            (out / "trainer_state.json").write_text(json.dumps({"global_step": global_step}))
    return {n: p.detach() for n, p in trainable.items()}


@dataclass
class TrainerState:
    """What the trainer knows of its progress."""

    global_step: int = 0
    epoch: float = 0.0
    total_flos: float = 0.0
    best_metric: float | None = None


class Trainer:
    """A trainer with a state, a loop inside, and folders of checkpoints of which two are kept."""

    def __init__(self, model: nn.Module, output_dir: Path, max_steps: int, save_steps: int = 4) -> None:
        self.model, self.output_dir, self.max_steps, self.save_steps = model, output_dir, max_steps, save_steps
        self.state = TrainerState()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda at: min(1.0, (at + 1) / 4) * max(0.0, (30 - at) / 30)
        )

    def checkpoints(self) -> list[Path]:
        """Return the folders of checkpoints, oldest first."""
        return sorted(self.output_dir.glob("checkpoint-*"), key=lambda p: int(p.name.partition("-")[2]))

    def _load(self) -> None:
        last = self.checkpoints()[-1]
        self.model.load_state_dict(load_file(last / "model.safetensors"))
        self.optimizer.load_state_dict(torch.load(last / "optimizer.pt"))
        self.lr_scheduler.load_state_dict(torch.load(last / "scheduler.pt"))
        self.state = TrainerState(**json.loads((last / "trainer_state.json").read_text()))
        rng = torch.load(last / "rng_state.pth", weights_only=False)
        random.setstate(rng["python"])
        np.random.set_state(rng["numpy"])  # noqa: NPY002 - what the library does
        torch.set_rng_state(rng["cpu"])

    def _save(self) -> None:
        run_dir = self.output_dir / f"checkpoint-{self.state.global_step}"
        run_dir.mkdir(exist_ok=True)
        save_file(self.model.state_dict(), run_dir / "model.safetensors")
        torch.save(self.optimizer.state_dict(), run_dir / "optimizer.pt")
        torch.save(self.lr_scheduler.state_dict(), run_dir / "scheduler.pt")
        states = {"python": random.getstate(), "numpy": np.random.get_state()}  # noqa: NPY002
        torch.save({**states, "cpu": torch.get_rng_state()}, run_dir / "rng_state.pth")
        (run_dir / "trainer_state.json").write_text(json.dumps(asdict(self.state)))
        for old in self.checkpoints()[:-2]:
            for file in old.iterdir():
                file.unlink()
            old.rmdir()

    def evaluate(self) -> float:
        """Return the loss on what is held out."""
        self.model.eval()
        with torch.no_grad():
            return float(token_loss(self.model, TOKENS[300:360].view(6, 10)))

    def training_step(self, inputs: torch.Tensor) -> float:
        """Take a step."""
        self.model.train()
        loss = token_loss(self.model, inputs)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.lr_scheduler.step()
        self.model.zero_grad()
        return loss.item()

    def train(self, resume_from_checkpoint: bool) -> None:
        """Run to the end."""
        if resume_from_checkpoint and self.checkpoints():
            self._load()
        tr_loss = 0.0
        for epoch in range(self.state.global_step // 8, 99):
            order = torch.randperm(32, generator=torch.Generator().manual_seed(100 + epoch))
            for at in range(self.state.global_step % 8, 8):
                parity.mark(self.state.global_step)
                rows = order[at * 4 : at * 4 + 4, None] * 8 + torch.arange(8)
                tr_loss += self.training_step(TOKENS[rows])
                self.state.global_step += 1
                self.state.epoch = self.state.global_step / 8
                self.state.total_flos += 6 * rows.numel()
                if self.state.global_step % self.save_steps == 0:
                    metric = self.evaluate()
                    if self.state.best_metric is None or metric < self.state.best_metric:
                        self.state.best_metric = metric
                    self._save()
                if self.state.global_step >= self.max_steps:
                    print("train_loss", tr_loss / self.max_steps)
                    return


def hf_trainer(folder: Path, steps: int = 16) -> None:
    """Run a trainer object whose loop, state and checkpoints are within the class.

    Source: huggingface/transformers, trainer.py (_inner_training_loop, TrainerState, _save_checkpoint, rotation).
    """
    torch.manual_seed(43)
    trainer = Trainer(Tiny(dropout=0.1), folder, max_steps=steps)
    trainer.train(resume_from_checkpoint=True)
    save_file(trainer.model.state_dict(), folder / "model.safetensors")


class Accelerator:
    """Keeps what it prepared, and saves all of it."""

    def __init__(self, folder: Path, gradient_accumulation_steps: int) -> None:
        self.folder, self.every, self.step = folder, gradient_accumulation_steps, 0
        self._objects: list[Any] = []

    def prepare(self, *objects: Any) -> Any:
        """Take objects that have a state."""
        self._objects += objects
        return objects

    def save_state(self) -> None:
        """Write all of them."""
        for number, one in enumerate(self._objects):
            torch.save(one.state_dict(), self.folder / f"object_{number}.bin")
        torch.save({"step": self.step, "torch": torch.get_rng_state()}, self.folder / "random_states_0.bin")

    def load_state(self) -> None:
        """Read all of them."""
        for number, one in enumerate(self._objects):
            one.load_state_dict(torch.load(self.folder / f"object_{number}.bin"))
        held = torch.load(self.folder / "random_states_0.bin")
        self.step = held["step"]
        torch.set_rng_state(held["torch"])


class Progress:
    """Counts."""

    def __init__(self) -> None:
        self.completed = 0

    def state_dict(self) -> dict[str, int]:
        """Return the count."""
        return {"completed": self.completed}

    def load_state_dict(self, held: dict[str, int]) -> None:
        """Take the count."""
        self.completed = held["completed"]


def accelerate_loop(folder: Path, steps: int = 14) -> Iterator[int]:
    """Prepare objects with a helper that saves them all, with one that only counts registered beside.

    Source: huggingface/accelerate, examples/by_feature/checkpointing.py (prepare, save_state, register).
    """
    torch.manual_seed(44)
    accelerator, progress = Accelerator(folder, 2), Progress()
    model = Tiny(dropout=0.2)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    lr_scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, total_iters=6)
    model, optimizer, lr_scheduler, progress = accelerator.prepare(model, optimizer, lr_scheduler, progress)
    if (folder / "random_states_0.bin").exists():
        accelerator.load_state()
    for overall_step in range(progress.completed, steps):
        yield overall_step
        model.train()
        for half in range(accelerator.every):
            lo = (overall_step * 2 + half) * 10 % 390
            (token_loss(model, TOKENS[None, lo : lo + 10]) / accelerator.every).backward()
            accelerator.step += 1
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
        progress.completed += 1
        if progress.completed % 4 == 0:
            accelerator.save_state()
    return model.state_dict()


class TrainState:
    """Step, and losses of those that were logged."""

    def __init__(self) -> None:
        self.step = 0
        self.log_steps: list[int] = []
        self.losses: list[float] = []


class Loader:
    """Reads windows of tokens in an order of its own, and can be put back where it was."""

    def __init__(self, seed: int) -> None:
        self._rng, self._buffer = np.random.default_rng(seed), list[int]()

    def __iter__(self) -> Loader:
        return self

    def __next__(self) -> torch.Tensor:
        while len(self._buffer) < 21:
            start = int(self._rng.integers(0, 380))
            self._buffer.extend(TOKENS[start : start + int(self._rng.integers(5, 15))].tolist())
        taken, self._buffer = self._buffer[:21], self._buffer[21:]
        return torch.tensor(taken).view(3, 7)

    def state_dict(self) -> dict[str, Any]:
        """Return the buffer and the generator."""
        return {"token_buffer": list(self._buffer), "rng": self._rng.bit_generator.state}

    def load_state_dict(self, held: dict[str, Any]) -> None:
        """Take the buffer and the generator."""
        self._buffer = list(held["token_buffer"])
        self._rng.bit_generator.state = held["rng"]


def torchtitan_loop(folder: Path, steps: int = 15, interval: int = 4) -> Iterator[int]:
    """Pack tokens of documents through a buffer; logged losses are a part of the saved train state.

    Source: pytorch/torchtitan, train.py (TrainState) and datasets/hf_datasets.py (all_tokens buffer).
    """
    torch.manual_seed(45)
    model, train_state, loader = Tiny(), TrainState(), Loader(7)
    optimizers = [torch.optim.AdamW([p], lr=8e-3, fused=False) for p in model.parameters()]
    if found := sorted(folder.glob("step-*"), key=lambda p: int(p.name[5:])):
        dcp = torch.load(found[-1] / "shard.pt", weights_only=False)
        model.load_state_dict(dcp["model"])
        for one, held in zip(optimizers, dcp["optimizers"], strict=True):
            one.load_state_dict(held)
        loader.load_state_dict(dcp["dataloader"])
        vars(train_state).update(dcp["train_state"])
    batches = iter(loader)
    while train_state.step < steps:
        yield train_state.step
        ids = next(batches)
        loss = token_loss(model, ids)
        loss.backward()
        for one in optimizers:
            one.step()
            one.zero_grad()
        train_state.step += 1
        if train_state.step % 2 == 0:
            train_state.log_steps.append(train_state.step)
            train_state.losses.append(loss.item())
        if train_state.step % interval == 0:
            dcp = {"model": model.state_dict(), "optimizers": [one.state_dict() for one in optimizers]}
            dcp |= {"dataloader": loader.state_dict(), "train_state": vars(train_state)}
            target = folder / f"step-{train_state.step}"
            target.mkdir(exist_ok=True)
            torch.save(dcp, target / "shard.pt")
    (folder / "losses.json").write_text(json.dumps([train_state.log_steps, train_state.losses]))


LOOPS = (
    Loop(train=llama_pretraining, tags=("accumulation", "rate by formula")),
    Loop(train=grpo, tags=("target network", "own generator"), steps=12, stop_at=8),
    Loop(train=lora_adapters, tags=("adapters", "safetensors"), steps=15, stop_at=10),
    Loop(train=hf_trainer, tags=("class", "mark called", "validation inline"), steps=16, stop_at=10),
    Loop(train=accelerate_loop, tags=("class", "accumulation")),
    Loop(train=torchtitan_loop, tags=("class", "loader with a state"), steps=15, stop_at=10),
)
