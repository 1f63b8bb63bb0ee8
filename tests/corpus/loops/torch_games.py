"""Loops of recipes for games, adversaries and language: replay, target networks, two optimizers, curricula."""

from __future__ import annotations

import contextlib
import copy
import pickle
import random
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import parity
from tests.corpus.registry import Loop

__all__ = ["LOOPS"]


def dqn(folder: Path, steps: int = 18, save_every: int = 5) -> Iterator[int]:
    """Learn from a replay buffer with a target network; epsilon falls; the environment is a walk that is saved.

    Source: PyTorch tutorial "Reinforcement Learning (DQN)" and CleanRL's dqn.py (target update with tau).
    """
    random.seed(1)
    torch.manual_seed(1)
    policy_net, target_net = nn.Linear(2, 2), nn.Linear(2, 2)
    target_net.load_state_dict(policy_net.state_dict())
    memory: deque[tuple[Any, ...]] = deque(maxlen=12)
    optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True)
    state, steps_done = (0.0, 1.0), 0
    if (folder / "agent.pt").exists():
        agent = torch.load(folder / "agent.pt", weights_only=False)
        policy_net.load_state_dict(agent["policy"])
        target_net.load_state_dict(agent["target"])
        optimizer.load_state_dict(agent["optimizer"])
        memory.extend(agent["memory"])
        state, steps_done = agent["state"], agent["steps_done"]
        random.setstate(agent["random"])
    while steps_done < steps:
        yield steps_done
        if random.random() < 0.05 + 0.85 * 0.9**steps_done:
            action = random.randrange(2)
        else:
            with torch.no_grad():
                action = int(policy_net(torch.tensor(state)).argmax())
        following = (0.9 * state[0] + 0.1 * (2 * action - 1), state[1] * 0.95)
        memory.append((state, action, following, -abs(following[0])))
        state = following
        if len(memory) >= 4:
            batch = random.sample(memory, 4)
            s, s2 = (torch.tensor([one[k] for one in batch]) for k in (0, 2))
            a, r = torch.tensor([one[1] for one in batch]), torch.tensor([one[3] for one in batch])
            with torch.no_grad():
                goal = r + 0.9 * target_net(s2).max(1).values
            loss = F.smooth_l1_loss(policy_net(s).gather(1, a[:, None])[:, 0], goal)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
            optimizer.step()
        kept = target_net.state_dict()
        for key, value in policy_net.state_dict().items():
            kept[key] = 0.1 * value + 0.9 * kept[key]
        target_net.load_state_dict(kept)
        steps_done += 1
        if steps_done % save_every == 0:
            agent = {"policy": policy_net.state_dict(), "target": target_net.state_dict(), "memory": list(memory)}
            agent |= {"optimizer": optimizer.state_dict(), "state": state, "steps_done": steps_done}
            torch.save({**agent, "random": random.getstate()}, folder / "agent.pt")
    return policy_net.state_dict()


def wgan(folder: Path, steps: int = 15) -> Iterator[int]:
    """Two optimizers; the critic's weights are clipped in place; samples of a fixed noise are written.

    Source: martinarjovsky/WassersteinGAN, main.py, and pytorch/examples dcgan (fixed_noise).
    """
    torch.manual_seed(2)
    netG, netD = (
        nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)),
        nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)),
    )
    fixed_noise = torch.randn(4, 3)
    optD, optG = torch.optim.RMSprop(netD.parameters(), lr=5e-3), torch.optim.RMSprop(netG.parameters(), lr=5e-3)
    gen_iterations = 0
    if (folder / "gan.pth").exists():
        gan = torch.load(folder / "gan.pth")
        for key, part in (("G", netG), ("D", netD), ("oG", optG), ("oD", optD)):
            part.load_state_dict(gan[key])  # type: ignore[attr-defined]
        fixed_noise, gen_iterations = gan["noise"], gan["it"]
        torch.set_rng_state(gan["rng"])
    while gen_iterations < steps:
        yield gen_iterations
        for _ in range(2):
            with torch.no_grad():
                for p in netD.parameters():
                    p.clamp_(-0.2, 0.2)
            real = torch.randn(6, 2) * 0.3 + 1
            with torch.no_grad():
                fake = netG(torch.randn(6, 3))
            optD.zero_grad()
            (netD(fake).mean() - netD(real).mean()).backward()
            optD.step()
        optG.zero_grad()
        (-netD(netG(torch.randn(6, 3))).mean()).backward()
        optG.step()
        gen_iterations += 1
        if gen_iterations % 4 == 0:
            with torch.no_grad():
                np.save(folder / f"fake_samples_{gen_iterations}.npy", netG(fixed_noise).numpy())
            gan = {"G": netG.state_dict(), "D": netD.state_dict(), "oG": optG.state_dict(), "oD": optD.state_dict()}
            torch.save(
                {**gan, "noise": fixed_noise, "it": gen_iterations, "rng": torch.get_rng_state()}, folder / "gan.pth"
            )
    return netG.state_dict()


def sam(folder: Path, steps: int = 14, save_every: int = 4) -> Iterator[int]:
    """Climb to the sharpest neighbour under `no_grad`, take the gradient there, come back and step.

    Source: davda54/sam, sam.py and example/train.py.
    """
    torch.manual_seed(3)
    x, y = torch.randn(32, 4), torch.randint(0, 2, (32,))
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    first = 0
    if (folder / "sam.pt").exists():
        blob = torch.load(folder / "sam.pt")
        net.load_state_dict(blob[0])
        base.load_state_dict(blob[1])
        first = blob[2]
    for n in range(first, steps):
        yield n
        rows = torch.arange(n * 8, n * 8 + 8) % 32
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()  # type: ignore[union-attr]
            climbs = [p.grad * 0.05 / (norm + 1e-12) for p in net.parameters()]  # type: ignore[operator]
            for p, e in zip(net.parameters(), climbs, strict=True):
                p.add_(e)
        base.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        with torch.no_grad():
            for p, e in zip(net.parameters(), climbs, strict=True):
                p.sub_(e)
        base.step()
        base.zero_grad()
        if (n + 1) % save_every == 0:
            torch.save((net.state_dict(), base.state_dict(), n + 1), folder / "sam.pt")
    torch.save(net.state_dict(), folder / "sam_final.pt")


def nanogpt(folder: Path, steps: int = 16) -> Iterator[int]:
    """Estimate losses on batches that are drawn from the global generator, which the script saves.

    Source: karpathy/nanoGPT, train.py (estimate_loss, get_batch).
    """
    torch.manual_seed(1337)
    data = torch.randint(0, 9, (200,), generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Embedding(9, 6), nn.Dropout(0.1), nn.Linear(6, 9))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
    iter_num, best_val_loss = 0, 1e9

    def get_batch(split: str) -> tuple[torch.Tensor, torch.Tensor]:
        part = data[:160] if split == "train" else data[160:]
        ix = torch.randint(len(part) - 5, (4,))
        return torch.stack([part[i : i + 4] for i in ix]), torch.stack([part[i + 1 : i + 5] for i in ix])

    @torch.no_grad()
    def estimate_loss() -> dict[str, float]:
        out = {}
        model.eval()
        for split in ("train", "val"):
            losses = torch.zeros(3)
            for k in range(3):
                a, b = get_batch(split)
                losses[k] = F.cross_entropy(model(a).flatten(0, 1), b.flatten()).item()
            out[split] = float(losses.mean())
        model.train()
        return out

    if (folder / "ckpt.pt").exists():
        checkpoint = torch.load(folder / "ckpt.pt")
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]
        torch.set_rng_state(checkpoint["rng_state"])
    while iter_num < steps:
        yield iter_num
        X, Y = get_batch("train")
        loss = F.cross_entropy(model(X).flatten(0, 1), Y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        iter_num += 1
        if iter_num % 5 == 0:
            losses = estimate_loss()
            best_val_loss = min(best_val_loss, losses["val"])
            checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": iter_num}
            checkpoint |= {"best_val_loss": best_val_loss, "rng_state": torch.get_rng_state()}
            torch.save(checkpoint, folder / "ckpt.pt")
    return model.state_dict()


def early_stopping(folder: Path, steps: int = 20) -> Iterator[int]:
    """Stop when validation has not improved for some epochs; the counter and the best are saved with pickle.

    Source: Bjarten/early-stopping-pytorch, pytorchtools.py (EarlyStopping), in its MNIST example.
    """
    torch.manual_seed(5)
    x, y = torch.randn(40, 3), torch.randn(40, 1)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    counter, best_score, early_stop, at = 0, None, False, 0
    if (folder / "run.pkl").exists():
        kept = pickle.loads((folder / "run.pkl").read_bytes())
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optim"])
        counter, best_score, early_stop, at = kept["stopper"]
    while at < steps and not early_stop:
        yield at
        optimizer.zero_grad()
        F.mse_loss(model(x[:30]), y[:30]).backward()
        optimizer.step()
        at += 1
        if at % 2 == 0:
            model.eval()
            with torch.no_grad():
                score = -F.mse_loss(model(x[30:]), y[30:]).item()
            if best_score is None or score > best_score:
                best_score, counter = score, 0
            else:
                counter += 1
                early_stop = counter >= 40
            model.train()
        if at % 5 == 0:
            kept = {"model": model.state_dict(), "optim": optimizer.state_dict()}
            (folder / "run.pkl").write_bytes(pickle.dumps({**kept, "stopper": (counter, best_score, early_stop, at)}))
    torch.save(model.state_dict(), folder / "last.pt")


def amp_accumulation(folder: Path, steps: int = 16, save_every: int = 4) -> Iterator[int]:
    """Scale losses, accumulate two micro-batches a step, unscale before clipping; a cosine over all steps.

    Source: PyTorch documentation, "Automatic Mixed Precision examples" (gradient accumulation, clipping).
    """
    torch.manual_seed(6)
    x, y = torch.randn(32, 6), torch.randn(32, 1)
    net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    i = 0
    if (folder / "amp.pt").exists():
        c = torch.load(folder / "amp.pt", weights_only=False)
        net.load_state_dict(c["net"])
        opt.load_state_dict(c["opt"])
        sched.load_state_dict(c["sched"])
        scaler.load_state_dict(c["scaler"])
        i = c["i"]
    for i in range(i, steps):  # noqa: B020 - the shape of the recipe
        yield i
        for micro in range(2):
            lo = (i * 2 + micro) * 4 % 32
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.mse_loss(net(x[lo : lo + 4]), y[lo : lo + 4]) / 2
            scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        sched.step()
        if (i + 1) % save_every == 0:
            c = {"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "i": i + 1}
            torch.save({**c, "scaler": scaler.state_dict()}, folder / "amp.pt")
    return net.state_dict()


def ddpm(folder: Path, steps: int = 14) -> Iterator[int]:
    """Denoise with timesteps and noise of the global generator; samples are drawn with one of their own.

    Source: Ho et al., "Denoising Diffusion Probabilistic Models", and lucidrains/denoising-diffusion-pytorch (EMA).
    """
    torch.manual_seed(7)
    betas = torch.linspace(1e-4, 0.2, 10)
    bars = torch.cumprod(1 - betas, 0)
    net = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 2))
    ema = copy.deepcopy(net)
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    step = 0
    for milestone in sorted(folder.glob("model-*.pt"), key=lambda p: int(p.stem[6:]))[-1:]:
        blob = torch.load(milestone)
        net.load_state_dict(blob["model"])
        ema.load_state_dict(blob["ema"])
        opt.load_state_dict(blob["opt"])
        torch.set_rng_state(blob["rng"])
        step = blob["step"]
    while step < steps:
        yield step
        x0 = torch.randn(8, 2) * 0.1 + torch.tensor([1.0, -1.0])
        t = torch.randint(0, 10, (8,))
        eps = torch.randn_like(x0)
        noisy = bars[t, None].sqrt() * x0 + (1 - bars[t, None]).sqrt() * eps
        loss = F.mse_loss(net(torch.cat([noisy, t[:, None] / 10], 1)), eps)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        with torch.no_grad():
            for old, new in zip(ema.parameters(), net.parameters(), strict=True):
                old.data = old.data * 0.95 + new.data * 0.05
        if step % 4 == 0:
            g = torch.Generator().manual_seed(step)
            img = torch.randn(3, 2, generator=g)
            with torch.inference_mode():
                for k in reversed(range(10)):
                    guess = ema(torch.cat([img, torch.full((3, 1), k / 10)], 1))
                    img = (img - betas[k] / (1 - bars[k]).sqrt() * guess) / (1 - betas[k]).sqrt()
            torch.save(img, folder / f"sample-{step}.pt")
            blob = {"model": net.state_dict(), "ema": ema.state_dict(), "opt": opt.state_dict(), "step": step}
            torch.save({**blob, "rng": torch.get_rng_state()}, folder / f"model-{step}.pt")


def spectral_gan(folder: Path, steps: int = 12) -> Iterator[int]:
    """Train a discriminator with spectral normalisation, whose power iteration runs in every forward.

    Source: Miyato et al., "Spectral Normalization for GANs"; christiancosgrove/pytorch-spectral-normalization-gan.
    """
    torch.manual_seed(8)
    disc = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 8)), nn.ReLU(), nn.Linear(8, 1))
    gener = nn.Linear(2, 2)
    tools = {
        "d": torch.optim.Adam(disc.parameters(), 1e-2, (0.0, 0.9)),
        "g": torch.optim.Adam(gener.parameters(), 1e-2),
    }
    decay = {k: torch.optim.lr_scheduler.ExponentialLR(v, 0.99) for k, v in tools.items()}
    begin = 0
    if (folder / "both.pt").exists():
        was = torch.load(folder / "both.pt")
        disc.load_state_dict(was["disc"])
        gener.load_state_dict(was["gener"])
        for k in tools:
            tools[k].load_state_dict(was["tools"][k])
            decay[k].load_state_dict(was["decay"][k])
        torch.set_rng_state(was["cpu"])
        begin = was["begin"]
    for turn in range(begin, steps):
        yield turn
        z = torch.randn(6, 2)
        tools["d"].zero_grad()
        (F.relu(1 - disc(torch.randn(6, 2) + 2)).mean() + F.relu(1 + disc(gener(z).detach())).mean()).backward()
        tools["d"].step()
        tools["g"].zero_grad()
        (-disc(gener(z)).mean()).backward()
        tools["g"].step()
        for one in decay.values():
            one.step()
        if turn % 4 == 3:
            was = {"disc": disc.state_dict(), "gener": gener.state_dict(), "begin": turn + 1}
            was |= {"tools": {k: v.state_dict() for k, v in tools.items()}, "cpu": torch.get_rng_state()}
            torch.save({**was, "decay": {k: v.state_dict() for k, v in decay.items()}}, folder / "both.pt")
    return gener.state_dict()


def saves_in_a_thread(folder: Path, steps: int = 14) -> Iterator[int]:
    """Copy the state to the host and write it in a thread; the next save waits for the one before.

    Source: pytorch/torchtitan, components/checkpoint.py (async mode), with torch.save.
    """
    torch.manual_seed(9)
    x = torch.randn(24, 5)
    net = nn.Linear(5, 5)
    opt = torch.optim.AdamW(net.parameters(), 1e-2)
    step, writing = 0, None
    for path in sorted(folder.glob("step-*.pt"), key=lambda p: int(p.stem[5:]), reverse=True)[:1]:
        states = torch.load(path)
        net.load_state_dict(states["net"])
        opt.load_state_dict(states["opt"])
        step = states["train_step"]

    def write(states: Any, path: Path) -> None:
        torch.save(states, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)

    while step < steps:
        yield step
        loss = F.mse_loss(net(x[step % 4 :: 4]), x[step % 4 :: 4].flip(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 3 == 0:
            if writing is not None:
                writing.join()
            states = copy.deepcopy({"net": net.state_dict(), "opt": opt.state_dict(), "train_step": step})
            writing = threading.Thread(target=write, args=(states, folder / f"step-{step}.pt"))
            writing.start()
    if writing is not None:
        writing.join()
    return net.state_dict()


class Lesson:
    """Which samples are easy enough by now."""

    def __init__(self, most: int) -> None:
        self.most, self.competence, self.recent = most, 8, deque(maxlen=3)

    def heard(self, loss: float) -> None:
        """Grow when the last losses fell."""
        self.recent.append(loss)
        if len(self.recent) == 3 and self.recent[-1] < self.recent[0]:
            self.competence = min(self.most, self.competence + 2)
            self.recent.clear()


def curriculum(folder: Path, steps: int = 18) -> None:
    """Draw from the easiest samples only, of which there are more as losses fall; marked by a call.

    Source: Platanios et al., "Competence-based Curriculum Learning for Neural Machine Translation".
    """
    torch.manual_seed(10)
    x = torch.randn(32, 3).sort(0).values
    y = x.sum(1, keepdim=True)
    model, rng = nn.Linear(3, 1), np.random.default_rng(3)
    optimizer, lesson, done = torch.optim.Adagrad(model.parameters(), 0.1), Lesson(32), 0
    with contextlib.suppress(FileNotFoundError):
        old = torch.load(folder / "c.pt", weights_only=False)
        model.load_state_dict(old["model"])
        optimizer.load_state_dict(old["optimizer"])
        lesson.competence, done = old["competence"], old["done"]
        lesson.recent.extend(old["recent"])
        rng.bit_generator.state = old["rng"]
    while done < steps:
        parity.mark(done)
        pick = rng.choice(lesson.competence, 4, replace=False)
        loss = F.mse_loss(model(x[pick]), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lesson.heard(loss.item())
        done += 1
        if done % 5 == 0:
            old = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "done": done}
            old |= {"competence": lesson.competence, "recent": list(lesson.recent), "rng": rng.bit_generator.state}
            torch.save(old, folder / "c.pt")
    torch.save(model.state_dict(), folder / "curriculum_final.pt")


LOOPS = (
    Loop(train=dqn, tags=("replay", "target network", "no_grad step"), steps=18, stop_at=12),
    Loop(train=wgan, tags=("second optimizer", "no_grad step"), steps=15, stop_at=9),
    Loop(train=sam, tags=("no_grad step",)),
    Loop(train=nanogpt, tags=("validation inline", "generator in validation"), steps=16, stop_at=12),
    Loop(train=early_stopping, tags=("early stopping", "validation inline"), steps=20, stop_at=12),
    Loop(train=amp_accumulation, tags=("scaler", "accumulation", "cosine over steps"), steps=16, stop_at=10),
    Loop(train=ddpm, tags=("averages", "no_grad step"), steps=14, stop_at=9),
    Loop(train=spectral_gan, tags=("second optimizer",), steps=12, stop_at=7),
    Loop(train=saves_in_a_thread, tags=("thread",), steps=14, stop_at=8),
    Loop(train=curriculum, tags=("curriculum", "mark called"), steps=18, stop_at=12),
)
