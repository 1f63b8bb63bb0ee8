"""A small PyTorch trainer as people write them, with every bug of the catalogue that it can have behind a switch.

Without a switch it resumes exactly. Each switch puts the lines of a real report in the place of the right ones.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Sampler

import parity

__all__ = ["train"]

VOCABULARY, WIDTH, CONTEXT = 12, 8, 5
SAMPLES, BATCH = 32, 4
HORIZON = 40


class Net(nn.Module):
    """Bag of tokens: embedding, a block with batch norm and dropout, a head that may be tied to the embedding."""

    def __init__(self, *, dropout: float, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.outer = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next token."""
        x = self.embedding(tokens).mean(dim=1)
        return self.head(x + self.outer(self.dropout(functional.relu(self.norm(self.inner(x))))))


class Average:
    """Moving average of the parameters, with a decay that warms up."""

    def __init__(self, model: nn.Module, decay: float = 0.9) -> None:
        self.decay, self.updates = decay, 0
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.stored: list[torch.Tensor] = []

    def update(self, model: nn.Module) -> None:
        """Move a little towards the parameters."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (4 + self.updates))
        parameters = dict(model.named_parameters(remove_duplicate=False))
        with torch.no_grad():
            for name, kept in self.shadow.items():
                kept.lerp_(parameters[name], 1 - decay)

    def store(self, model: nn.Module) -> None:
        """Put the parameters aside."""
        self.stored = [p.detach().clone() for p in model.parameters()]

    def restore(self, model: nn.Module) -> None:
        """Put them back."""
        for p, kept in zip(model.parameters(), self.stored, strict=True):
            p.data.copy_(kept)
        self.stored = []

    @contextmanager
    def swapped_in(self, model: nn.Module) -> Iterator[None]:
        """Evaluate with the average in the place of the parameters."""
        self.store(model)
        parameters = dict(model.named_parameters(remove_duplicate=False))
        for name, kept in self.shadow.items():
            parameters[name].data.copy_(kept)
        try:
            yield
        finally:
            self.restore(model)


class Tokens(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Random tokens with random targets: a small model learns them by heart, and its validation gets worse."""

    def __init__(self, samples: int, seed: int, *, augment: bool = False, fault: str = "") -> None:
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randint(VOCABULARY, (samples, CONTEXT), generator=generator)
        self.targets = torch.randint(VOCABULARY, (samples,), generator=generator)
        self.augment, self.seed, self.epoch = augment, seed, 0
        self.worker = torch.Generator().manual_seed(0) if fault == "worker_seed_replay" else None

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = self.inputs[index]
        if self.augment:  # put a random token at a random place
            generator = self.worker or torch.Generator().manual_seed(self.seed + 1000 * self.epoch + index)
            place, token = (
                torch.randint(CONTEXT, (1,), generator=generator),
                torch.randint(VOCABULARY, (1,), generator=generator),
            )
            tokens = tokens.clone()
            tokens[place] = token
        return tokens, self.targets[index]


class EpochSampler(Sampler[int]):
    """Another order in every epoch; the first one may start within."""

    def __init__(self, samples: int, seed: int) -> None:
        self.samples, self.seed, self.epoch, self.start = samples, seed, 0, 0

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        return iter(torch.randperm(self.samples, generator=generator).tolist()[self.start :])

    def __len__(self) -> int:
        return self.samples - self.start


class Feed:
    """Batches of one epoch after the other, and how many of them the loop took."""

    def __init__(self, seed: int, *, augment: bool, workers: int, fault: str) -> None:
        self.dataset = Tokens(SAMPLES, seed=1, augment=augment, fault=fault)
        self.sampler = EpochSampler(SAMPLES, seed)
        self.loader = DataLoader(self.dataset, batch_size=BATCH, sampler=self.sampler, num_workers=workers)
        self.epoch, self.taken, self.seed, self.fault = 0, 0, seed, fault
        self.batches: Iterator[Any] | None = None

    def begin(self, skip: int = 0) -> None:
        """Begin the epoch, `skip` batches into it."""
        self.sampler.epoch, self.dataset.epoch = self.epoch, self.epoch
        self.sampler.start = skip * BATCH
        if self.fault == "sampler_epoch_reset" and skip:
            self.sampler.epoch = 0
        self.sampler.seed = 0 if self.fault == "sampler_seed_ignored" and skip else self.seed
        self.batches = iter(self.loader)

    def take(self) -> Any:
        """Return the next batch."""
        if self.batches is None:
            self.begin()
        assert self.batches is not None
        batch = next(self.batches, None)
        if batch is None:
            if self.fault == "epoch_order_twice_or_skipped" and self.sampler.start:
                self.taken = 0  # the loader that skipped was a copy: nobody told the real one that an epoch is over
                self.begin()
            else:
                self.epoch, self.taken = self.epoch + 1, 0
                self.begin(skip=self.sampler.start // BATCH if self.fault == "skip_reapplied_every_epoch" else 0)
            batch = next(self.batches)
        self.taken += 1
        return batch

    def state_dict(self) -> dict[str, int]:
        """Return where the loop is."""
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go there."""
        self.epoch, self.taken = state["epoch"], state["taken"]
        self.begin(self.taken)
        if self.fault == "second_resume_counter_lost":
            self.taken = 0  # counted anew by every process
        elif self.fault == "loader_restarts_at_zero":
            self.batches = None
        elif self.fault == "skip_unit_grad_accum":
            self.begin(self.taken // 2)  # counted in steps, and a step takes two batches
        elif self.fault == "consumed_unit_rows_vs_queries":
            self.begin(min(self.taken * BATCH, 7))  # rows were saved, queries are skipped


class Groups:
    """Rates by hand: sets the rate of every group, scaled by the group's own factor; stages, each with its decay."""

    def __init__(self, optimizer: torch.optim.Optimizer, peak: float) -> None:
        self.groups, self.peak, self.count, self.decay_steps = optimizer.param_groups, peak, 0, HORIZON

    def step(self) -> None:
        """Set the rates of the next step."""
        self.count += 1
        left = max(0.0, 1 - self.count / self.decay_steps) if self.decay_steps else 0.0
        for group in self.groups:
            group["lr"] = group["lr_scale"] * self.peak * max(left, 0.01)

    def state_dict(self) -> dict[str, Any]:
        """Return what has to be saved."""
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.count = state["count"]


@dataclass
class Progress:
    """How far the run is, and what it decides by."""

    step: int = 0
    best: float = math.inf
    latest: float = math.inf
    waited: int = 0
    """Evaluations since the best one."""
    stopped: bool = False
    top: list[tuple[float, str]] = field(default_factory=list)
    """The best evaluations and their files."""


def build_optimizer(model: nn.Module, *, fused_order: bool = False) -> torch.optim.AdamW:
    """Return AdamW with decay for matrices only."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    if fused_order:  # a set, a dict of another order: equal shapes, another order
        matrices = [matrices[0], *matrices[:0:-1]]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": 0.1, "lr_scale": 1.0},
            {"params": vectors, "weight_decay": 0.0, "lr_scale": 0.5},
        ],
        lr=0.05,
    )


def rate(step: int) -> float:
    """Return the factor of the rate: warm-up, then a cosine."""
    return (step + 1) / 5 if step < 4 else 0.5 + 0.5 * math.cos(math.pi * (step - 4) / HORIZON)


def build_schedule(kind: str, optimizer: torch.optim.Optimizer, horizon: int = HORIZON) -> Any:
    """Return the schedule of the rate."""
    if kind == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=horizon)
    if kind == "onecycle":
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.06, total_steps=horizon)
    if kind == "plateau":
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    if kind == "groups":
        return Groups(optimizer, peak=0.05)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


def evaluate(model: nn.Module, held_out: Tokens, *, fault: str = "") -> float:
    """Return the loss on held-out samples."""
    model.eval()
    with torch.no_grad():
        loss = functional.cross_entropy(model(held_out.inputs), held_out.targets).item()
    if fault != "eval_mode_left_on":
        model.train()
    return loss


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints by step, the oldest first."""
    return sorted(folder.glob("step_*.pt"), key=lambda path: int(re.findall(r"\d+", path.stem)[-1]))


def train(
    folder: Path, *, fault: str = "", steps: int = 24, save_every: int = 5, validate_every: int = 4,
    resume: str | int = "latest", schedule: str = "lambda", accumulate: int = 1, tied: bool = True,
    dropout: float = 0.25, augment: bool = False, workers: int = 0, spikes: tuple[int, ...] = (), patience: int = 0,
    unfreeze_at: int = 0, save_first: bool = False, seed: int = 3,
) -> Iterator[int]:  # fmt: skip
    """Train, save, and continue from what the folder holds.

    Args:
        folder: Checkpoints of this run.
        fault: Bug of the catalogue.
        steps: Steps of the whole run.
        save_every: Steps between two checkpoints.
        validate_every: Steps between two evaluations.
        resume: `latest`, `best`, or the step of a checkpoint.
        schedule: `lambda`, `cosine`, `onecycle`, `plateau`, `groups`.
        accumulate: Batches to a step.
        tied: Whether the head is the embedding.
        dropout: Rate of dropout.
        augment: Whether tokens are changed at random.
        workers: Processes that load batches.
        spikes: Steps whose loss overflows.
        patience: Evaluations without a better one after which training stops; 0: never.
        unfreeze_at: Step from which the embedding is trained.
        save_first: Whether a checkpoint is written before the first step.
        seed: Seed of the order of the samples.
    """
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = Net(dropout=dropout, tied=tied)
    pretrained = copy.deepcopy(model.outer.state_dict())
    ema = Average(model)
    optimizer = build_optimizer(model)
    scheduler = build_schedule(schedule, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=6)
    feed = Feed(seed, augment=augment, workers=workers, fault=fault)
    held_out = Tokens(16, seed=6)
    progress = Progress()
    best_state: dict[str, torch.Tensor] = {}
    resumed = False

    if resume == "latest":
        found = checkpoints(folder)[-1:]
    else:
        found = [
            path for path in (folder / ("best.pt" if resume == "best" else f"step_{resume}.pt"),) if path.exists()
        ]
    if found:
        resumed = True
        state = torch.load(found[-1], weights_only=False)
        if fault == "dropout_hparam_not_reapplied":
            model.dropout.p = 0.1  # the default of another module that reads the checkpoint
        if fault == "param_order_swap":
            optimizer = build_optimizer(model, fused_order=True)
            scheduler = build_schedule(schedule, optimizer)
        load_model(state, model, ema, pretrained, fault)
        load_optimizer(state, model, optimizer, fault)
        if fault == "opt_rebuilt_after_load":
            optimizer = build_optimizer(model)
            scheduler = build_schedule(schedule, optimizer)
        if fault == "sched_ctor_clobbers_lr":
            scheduler = build_schedule(schedule, optimizer)
        elif schedule == "groups" and fault != "param_groups_alias_broken":
            scheduler = build_schedule(schedule, optimizer)  # the groups are others since they were loaded
        scheduler = load_schedule(state, optimizer, scheduler, schedule, steps, fault)
        if fault != "scaler_not_saved":
            scaler.load_state_dict(state["scaler"])
        if fault == "offset_read_before_load":
            feed.begin(skip=feed.taken)
            feed.epoch, feed.taken = state["feed"]["epoch"], state["feed"]["taken"]
        else:
            feed.load_state_dict(state["feed"])
        progress = load_progress(state, folder, fault)
        best_state = state["best_state"]
        if unfreeze_at and fault != "unfreeze_schedule_lost":
            model.embedding.requires_grad_(progress.step >= unfreeze_at)
        if fault == "scaler_created_after_load":
            scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=6)
        if fault != "rng_not_saved" and "rng" in state:
            torch.set_rng_state(state["rng"])
        if fault == "sanity_val_consumes_rng":  # two batches of a validation loader that shuffles
            for _, batch in zip(range(2), DataLoader(held_out, batch_size=8, shuffle=True), strict=False):
                model.eval()
                model(batch[0])
                model.train()
        if fault == "eval_after_restore":
            model.eval()  # for a look at where it stands, and never undone
        del state
    elif unfreeze_at:
        model.embedding.requires_grad_(False)
    if fault == "unfreeze_schedule_lost" and resumed:
        model.embedding.requires_grad_(False)
    running_loss, logged = 0.0, False
    while progress.step < steps and not progress.stopped:
        yield progress.step
        if save_first and progress.step == 0:
            with parity.saving():
                save(folder, model, ema, optimizer, scheduler, scaler, feed, progress, best_state, fault, resumed)
        optimizer.zero_grad()
        for _ in range(accumulate):
            inputs, targets = feed.take()
            loss = functional.cross_entropy(model(inputs), targets) / accumulate
            if progress.step in spikes:
                loss = loss * math.inf
            scaler.scale(loss).backward()
            running_loss += loss.item()
            if fault == "loss_accumulator_boundary" and resumed and not logged:
                running_loss += loss.item()  # the first loss after a resume counts twice in the log
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped = scaler.get_scale() < before
        ema.update(model)
        progress.step += 1
        if unfreeze_at and progress.step == unfreeze_at:
            model.embedding.requires_grad_(True)
        if fault == "sched_saved_before_step" and progress.step % save_every == 0:
            save(folder, model, ema, optimizer, scheduler, scaler, feed, progress, best_state, fault, resumed)
        if schedule != "plateau" and (not skipped or fault == "lr_advances_on_skipped_step"):
            scheduler.step()
        if progress.step % 5 == 0:
            print(f"step {progress.step} loss {running_loss / 5:.3f}")
            running_loss, logged = 0.0, True
        if progress.step % validate_every == 0:
            with ema.swapped_in(model):
                progress.latest = evaluate(model, held_out, fault=fault)
                if schedule == "plateau":
                    scheduler.step(progress.latest)
                progress.waited += 1
                if progress.latest < progress.best:
                    progress.best, progress.waited = progress.latest, 0
                    best_state = model.state_dict()
                    if fault != "best_weights_by_reference":
                        best_state = copy.deepcopy(best_state)
                    torch.save({"value": progress.best, "model": best_state}, folder / "best_model.pt")
                keep_top(folder, model, progress)
                if patience and progress.waited >= patience:
                    progress.stopped = True
                if fault == "ema_swap_saved_then_overwritten":
                    save(folder, model, ema, optimizer, scheduler, scaler, feed, progress, best_state, fault, resumed)
        if (progress.step % save_every == 0 or progress.stopped) and fault not in (
            "sched_saved_before_step", "ema_swap_saved_then_overwritten",
        ):  # fmt: skip
            save(folder, model, ema, optimizer, scheduler, scaler, feed, progress, best_state, fault, resumed)
    if patience:
        yield progress.step
    torch.save({"model": best_state, "step": progress.step}, folder / "final_best.pt")


def keep_top(folder: Path, model: nn.Module, progress: Progress, most: int = 2) -> None:
    """Keep the files of the best evaluations, and remove those of the others."""
    name = f"top_{progress.step}.pt"
    torch.save(model.state_dict(), folder / name)
    progress.top = sorted([*progress.top, (progress.latest, name)])
    for _, worse in progress.top[most:]:
        (folder / worse).unlink(missing_ok=True)
    progress.top = progress.top[:most]


def save(
    folder: Path, model: nn.Module, ema: Average, optimizer: torch.optim.Optimizer, scheduler: Any, scaler: Any,
    feed: Feed, progress: Progress, best_state: dict[str, torch.Tensor], fault: str, resumed: bool, keep: int = 2,
) -> None:  # fmt: skip
    """Write a checkpoint, and remove all but the newest."""
    if fault == "adam_step_dummy_on_save" and not optimizer.state:  # so that the optimizer has a state to export
        kept = [p.detach().clone() for p in model.parameters()]
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        for p, value in zip(model.parameters(), kept, strict=True):
            p.data.copy_(value)
            p.grad = None
    step = progress.step
    position = feed.state_dict()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    moments = copy.deepcopy(optimizer.state_dict())
    if fault == "bn_stats_not_saved":
        weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    elif fault == "tied_head_rebuilt":
        del weights["head.weight"]  # the configuration says that it is the embedding
    elif fault == "nonstrict_prefix_noop":
        weights = {f"module.{name}": value for name, value in weights.items()}
    elif fault == "compile_prefix_lost" and resumed:
        weights = {f"_orig_mod.{name}": value for name, value in weights.items()}
    elif fault == "opt_moments_only_for_sgd":
        moments["state"] = {at: s for at, s in moments["state"].items() if "momentum_buffer" in s}
    elif fault == "group_flag_backfill_missing":
        for group in moments["param_groups"]:
            group.pop("lr_scale")
    elif fault == "end_of_epoch_index_overflow" and feed.taken == SAMPLES // BATCH:
        position = {"epoch": feed.epoch + 1, "taken": feed.taken}
    elif fault == "midepoch_extra_step":
        step -= 1  # saved in a hook that runs before the step is counted
    state = {
        "step": step,
        "model": weights,
        "ema": {"shadow": copy.deepcopy(ema.shadow), "updates": ema.updates},
        "optimizer": moments,
        "names": [name for name, _ in model.named_parameters()],
        "scheduler": scheduler.state_dict(),
        "scaler": scaler.state_dict(),
        "feed": position,
        "progress": copy.deepcopy(vars(progress)),
        "best_state": copy.deepcopy(best_state),
        "rng": torch.get_rng_state(),
    }
    if fault == "rng_gated_by_save_flag" and progress.step % 10:
        del state["rng"]  # a light checkpoint, which was to leave out what is only saved with the whole optimizer
    path = folder / f"step_{progress.step}.pt"
    torch.save(state, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)
    if progress.waited == 0:
        torch.save(state, folder / "best.pt")
    for old in checkpoints(folder)[:-keep]:
        old.unlink()


def load_model(
    state: dict[str, Any], model: Net, ema: Average, pretrained: dict[str, torch.Tensor], fault: str
) -> None:
    """Load the parameters, buffers and their average."""
    if fault in ("nonstrict_prefix_noop", "compile_prefix_lost", "bn_stats_not_saved"):
        model.load_state_dict(state["model"], strict=False)
    elif fault == "tied_head_rebuilt":
        model.load_state_dict(state["model"], strict=False)
        model.head.weight.data.copy_(model.embedding.weight)
    else:
        model.load_state_dict(state["model"])
    if fault == "pretrained_over_checkpoint":
        model.outer.load_state_dict(pretrained)
    elif fault == "untied_head_force_tied":
        model.head.weight = model.embedding.weight
    elif fault == "tie_not_made_again":
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())
    if fault == "ema_not_saved":
        ema.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
    else:
        ema.shadow = state["ema"]["shadow"]
    if fault not in ("aux_counter_reset", "ema_not_saved"):
        ema.updates = state["ema"]["updates"]


def load_optimizer(state: dict[str, Any], model: nn.Module, optimizer: torch.optim.Optimizer, fault: str) -> None:
    """Load the moments and the groups."""
    if fault in ("opt_state_not_restored", "load_model_resets_optimizer"):
        for group, saved in zip(optimizer.param_groups, state["optimizer"]["param_groups"], strict=True):
            group["lr"] = saved["lr"]
        return
    if fault == "hparams_tensorised":
        for group in state["optimizer"]["param_groups"]:
            group["betas"] = tuple(torch.as_tensor(beta) for beta in group["betas"])
            group["weight_decay"] = torch.as_tensor(group["weight_decay"])
    elif fault == "opt_identity_by_position_vs_name":  # mapped by sorted names, shapes taken care of
        slots = state["optimizer"]["state"]
        first = {at: s["exp_avg"] for at, s in slots.items()}
        for shape in {tuple(value.shape) for value in first.values()}:
            same = [at for at, value in first.items() if tuple(value.shape) == shape]
            taken = [copy.deepcopy(slots[at]) for at in reversed(same)]
            for at, slot in zip(same, taken, strict=True):
                slots[at] = slot
    optimizer.load_state_dict(state["optimizer"])
    if fault == "hparams_from_ckpt_win":  # here the configuration wins
        for group, decay in zip(optimizer.param_groups, (0.1, 0.0), strict=True):
            group["weight_decay"] = decay
            group["betas"] = (0.9, 0.999)
    for slots in optimizer.state.values():
        if fault == "adam_step_reset":
            slots["step"] = torch.zeros_like(slots["step"])
        elif fault == "opt_state_cast_down":
            for name in ("exp_avg", "exp_avg_sq"):
                slots[name] = slots[name].bfloat16().float()
        elif fault == "step_tensor_dtype_device":
            slots["step"] = slots["step"].bfloat16()


def load_schedule(
    state: dict[str, Any], optimizer: torch.optim.Optimizer, scheduler: Any, kind: str, steps: int, fault: str
) -> Any:
    """Load the schedule; return the one to use."""
    if fault == "sched_not_saved":
        return build_schedule(kind, optimizer)
    if fault == "sched_recursive_vs_closed":  # the rates of now are taken for those of the start
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=HORIZON, last_epoch=state["step"] - 1)
    if fault == "onecycle_not_restored":
        return build_schedule(kind, optimizer)
    if fault == "horizon_changed":  # the horizon is what is left
        scheduler = build_schedule(kind, optimizer, horizon=HORIZON - state["step"])
        saved = dict(state["scheduler"], T_max=HORIZON - state["step"])
        scheduler.load_state_dict(saved)
        return scheduler
    if fault == "plateau_state":
        scheduler.load_state_dict(dict(state["scheduler"], best=math.inf, num_bad_epochs=0))
        return scheduler
    if fault == "sched_ctor_clobbers_lr":
        scheduler.load_state_dict(state["scheduler"])  # knows where it is, and sets the rate at its next step only
        return scheduler
    scheduler.load_state_dict(state["scheduler"])
    if fault == "sched_first_step_initial_lr":
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
    elif fault == "stage_remaining_zero":
        scheduler.decay_steps = 0
    return scheduler


def load_progress(state: dict[str, Any], folder: Path, fault: str) -> Progress:
    """Return how far the run is."""
    progress = Progress(**state["progress"])
    progress.step = state["step"]
    if fault == "step_not_restored":
        progress.step = 0
    elif fault == "step_added_twice":
        progress.step += state["feed"]["epoch"] * (SAMPLES // BATCH)
    elif fault == "epoch_or_step_repeated":
        progress.step -= 1
    elif fault == "best_metric_reset":
        progress.best = math.inf
    elif fault == "best_metric_from_latest":
        progress.best = progress.latest
    elif fault == "topk_list_not_restored":
        progress.top = []
    elif fault == "stop_flag_lost":
        progress.stopped = False
    elif fault == "waited_reset":
        progress.waited = 0
    return progress
