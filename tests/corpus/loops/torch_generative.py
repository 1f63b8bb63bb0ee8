"""Loops that train generative models: variational, adversarial, diffusing, quantised, flowing."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim

from tests.corpus.registry import Loop

__all__ = ["LOOPS"]

REALS = torch.rand(40, 6, generator=torch.Generator().manual_seed(21))


def mlp(*widths: int) -> nn.Sequential:
    """Return dense layers."""
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


class VAE(nn.Module):
    """Encoder, two heads, decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.decoder = mlp(2, 8, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        h1 = F.relu(self.fc1(x))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.decoder(z)), mu, logvar


def vae(folder: Path, steps: int = 15, test_every: int = 5) -> Iterator[int]:
    """Reparametrise with noise of the global generator; test draws from it too, and samples are written.

    Source: pytorch/examples, vae/main.py (train, test, sample of each epoch).
    """
    torch.manual_seed(1)
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    seen = 0
    if (folder / "vae.pt").exists():
        held = torch.load(folder / "vae.pt")
        model.load_state_dict(held["vae"])
        optimizer.load_state_dict(held["adam"])
        torch.set_rng_state(held["rng"])
        seen = held["seen"]
    for seen in range(seen, steps):  # noqa: B020 - the shape of the recipe
        yield seen
        model.train()
        data = REALS[torch.randperm(40)[:8]]
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        bce = F.binary_cross_entropy(recon, data, reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        beta = min(1.0, seen / 8)
        (bce + beta * kld).backward()
        optimizer.step()
        if (seen + 1) % test_every == 0:
            model.eval()
            with torch.no_grad():
                print("test loss", F.binary_cross_entropy(model(REALS)[0], REALS).item())
                np.save(folder / f"sample_{seen + 1}.npy", torch.sigmoid(model.decoder(torch.randn(4, 2))).numpy())
            held = {"vae": model.state_dict(), "adam": optimizer.state_dict(), "seen": seen + 1}
            torch.save({**held, "rng": torch.get_rng_state()}, folder / "vae.pt")
    return model.state_dict()


def dcgan(folder: Path, steps: int = 14) -> Iterator[int]:
    """Two networks in two files with two Adams; batch normalisation in both; fixed noise in a third file.

    Source: pytorch/examples, dcgan/main.py (netG_epoch_%d.pth, netD_epoch_%d.pth, fixed_noise).
    """
    torch.manual_seed(999)
    netG = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.Sigmoid())
    netD = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    criterion = nn.BCEWithLogitsLoss()
    optimizerD = optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
    fixed_noise = torch.randn(3, 3)
    real_label, fake_label, i = 1.0, 0.0, 0
    if (folder / "iteration.pkl").exists():
        i, rng, fixed_noise = pickle.loads((folder / "iteration.pkl").read_bytes())
        for net, opt, name in ((netG, optimizerG, "G"), (netD, optimizerD, "D")):
            part = torch.load(folder / f"net{name}.pth")
            net.load_state_dict(part["net"])
            opt.load_state_dict(part["optimizer"])
        torch.set_rng_state(rng)
    while i < steps:
        yield i
        netD.zero_grad()
        real = REALS[i * 5 % 40 : i * 5 % 40 + 5]
        label = torch.full((5, 1), real_label)
        errD_real = criterion(netD(real), label)
        errD_real.backward()
        fake = netG(torch.randn(5, 3))
        label.fill_(fake_label)
        errD_fake = criterion(netD(fake.detach()), label)
        errD_fake.backward()
        optimizerD.step()
        netG.zero_grad()
        label.fill_(real_label)
        errG = criterion(netD(fake), label)
        errG.backward()
        optimizerG.step()
        i += 1
        if i % 4 == 0:
            print(f"D {(errD_real + errD_fake).item():.3f} G {errG.item():.3f}")
            for net, opt, name in ((netG, optimizerG, "G"), (netD, optimizerD, "D")):
                torch.save({"net": net.state_dict(), "optimizer": opt.state_dict()}, folder / f"net{name}.pth")
            state = (i, torch.get_rng_state(), fixed_noise)
            (folder / "iteration.pkl").write_bytes(pickle.dumps(state))
    netG.eval()
    with torch.no_grad():
        torch.save(netG(fixed_noise), folder / "last_samples.pt")


def stylegan_ada(folder: Path, steps: int = 16) -> Iterator[int]:
    """Adapt the probability of augmentation to signs of the critic; lazy penalty; averaged generator by half-life.

    Source: NVlabs/stylegan2-ada-pytorch, training/training_loop.py (ada_target, augment_pipe.p, G_ema, snapshots).
    """
    torch.manual_seed(5)
    G, D = mlp(4, 8, 6), mlp(6, 8, 1)
    G_ema = copy.deepcopy(G).eval().requires_grad_(False)
    phases = [
        ("G", optim.Adam(G.parameters(), 2e-3, (0.0, 0.99))),
        ("D", optim.Adam(D.parameters(), 2e-3, (0.0, 0.99))),
    ]
    pipe_p, signs, counted, cur_nimg, batch_idx = torch.zeros([]), 0.0, 0, 0, 0
    if (folder / "network-snapshot.pkl").exists():
        data = pickle.loads((folder / "network-snapshot.pkl").read_bytes())
        G.load_state_dict(data["G"])
        D.load_state_dict(data["D"])
        G_ema.load_state_dict(data["G_ema"])
        for (_, opt), was in zip(phases, data["phases"], strict=True):
            opt.load_state_dict(was)
        pipe_p, signs, counted = data["p"], data["signs"], data["counted"]
        cur_nimg, batch_idx = data["cur_nimg"], data["batch_idx"]
        torch.set_rng_state(data["cpu"])

    def augment(x: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.rand(len(x), 1) < pipe_p, x.flip(1), x)

    while batch_idx < steps:
        yield batch_idx
        real = REALS[torch.randint(0, 40, (6,))]
        for name, opt in phases:
            opt.zero_grad(set_to_none=True)
            if name == "G":
                F.softplus(-D(augment(G(torch.randn(6, 4))))).mean().backward()
            else:
                real.requires_grad_(batch_idx % 4 == 0)
                logits = D(augment(real))
                loss = F.softplus(-logits).mean() + F.softplus(D(augment(G(torch.randn(6, 4)).detach()))).mean()
                if batch_idx % 4 == 0:
                    (slope,) = torch.autograd.grad(logits.sum(), real, create_graph=True)
                    loss = loss + 0.5 * slope.square().sum(1).mean()
                loss.backward()
                signs += float(logits.detach().sign().sum())
                counted += 6
            opt.step()
        with torch.no_grad():
            beta = 0.5 ** (6 / max(min(20, cur_nimg * 0.5), 1e-8))
            for p_ema, p in zip(G_ema.parameters(), G.parameters(), strict=True):
                p_ema.copy_(p.lerp(p_ema, beta))
        cur_nimg += 6
        batch_idx += 1
        if batch_idx % 3 == 0:
            pipe_p = (pipe_p + np.sign(signs / counted - 0.1) * 0.05).clamp(0, 1)
            signs, counted = 0.0, 0
        if batch_idx % 5 == 0:
            data = {"G": G.state_dict(), "D": D.state_dict(), "G_ema": G_ema.state_dict(), "p": pipe_p}
            data |= {"phases": [opt.state_dict() for _, opt in phases], "cur_nimg": cur_nimg, "signs": signs}
            data |= {"counted": counted, "batch_idx": batch_idx, "cpu": torch.get_rng_state()}
            (folder / "network-snapshot.pkl").write_bytes(pickle.dumps(data))
    return G_ema.state_dict()


class ImagePool:
    """Older pictures, of which the critic sees one at times."""

    def __init__(self, pool_size: int) -> None:
        self.pool_size, self.images = pool_size, list[torch.Tensor]()

    def query(self, images: torch.Tensor) -> torch.Tensor:
        """Return pictures of which some are old."""
        out = []
        for image in images.detach():
            if len(self.images) < self.pool_size:
                self.images.append(image.clone())
                out.append(image)
            elif random.uniform(0, 1) > 0.5:
                at = random.randint(0, self.pool_size - 1)
                out.append(self.images[at])
                self.images[at] = image.clone()
            else:
                out.append(image)
        return torch.stack(out)


def cyclegan(folder: Path, steps: int = 14, save_latest_freq: int = 4) -> Iterator[int]:
    """Map both ways; the critic sees a pool of older pictures, which is saved with Python's generator.

    Source: junyanz/pytorch-CycleGAN-and-pix2pix, util/image_pool.py and models/cycle_gan_model.py.
    """
    torch.manual_seed(6)
    random.seed(6)
    nets = nn.ModuleDict({"A": mlp(6, 6, 6), "B": mlp(6, 6, 6), "D": mlp(6, 6, 1)})
    pool = ImagePool(8)
    optimizer_G = optim.Adam([*nets["A"].parameters(), *nets["B"].parameters()], 2e-3, (0.5, 0.999))
    optimizer_D = optim.Adam(nets["D"].parameters(), 2e-3, (0.5, 0.999))
    rule = [optim.lr_scheduler.LambdaLR(o, lambda at: 1 - max(0, at - 6) / 20) for o in (optimizer_G, optimizer_D)]
    total_iters = 0
    if (folder / "latest_net.pth").exists():
        latest = torch.load(folder / "latest_net.pth", weights_only=False)
        nets.load_state_dict(latest["nets"])
        optimizer_G.load_state_dict(latest["optims"][0])
        optimizer_D.load_state_dict(latest["optims"][1])
        for one, was in zip(rule, latest["rule"], strict=True):
            one.load_state_dict(was)
        pool.images = latest["pool"]
        random.setstate(latest["py"])
        total_iters = latest["total_iters"]
    while total_iters < steps:
        yield total_iters
        real_A = REALS[torch.arange(total_iters * 3, total_iters * 3 + 3) % 40]
        fake_B = nets["A"](real_A)
        nets["D"].requires_grad_(False)
        optimizer_G.zero_grad()
        loss_G = (nets["D"](fake_B) - 1).square().mean() + 10 * (nets["B"](fake_B) - real_A).abs().mean()
        loss_G.backward()
        optimizer_G.step()
        nets["D"].requires_grad_(True)
        optimizer_D.zero_grad()
        shown = pool.query(fake_B)
        ((nets["D"](real_A.flip(1)) - 1).square().mean() + nets["D"](shown).square().mean()).backward()
        optimizer_D.step()
        for one in rule:
            one.step()
        total_iters += 1
        if total_iters % save_latest_freq == 0:
            latest = {"nets": nets.state_dict(), "optims": [optimizer_G.state_dict(), optimizer_D.state_dict()]}
            latest |= {"rule": [one.state_dict() for one in rule], "pool": pool.images, "py": random.getstate()}
            torch.save({**latest, "total_iters": total_iters}, folder / "latest_net.pth")
    torch.save(nets["A"].state_dict(), folder / "final_A.pth")


class Quantizer(nn.Module):
    """A book of codes that follows what is quantised."""

    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("embed", torch.randn(width, codes))
        self.register_buffer("cluster_size", torch.zeros(codes))
        self.register_buffer("embed_avg", torch.randn(width, codes))

    def forward(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        embed: Any = self.embed
        distance = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ embed + embed.pow(2).sum(0, keepdim=True)
        chosen = (-distance).argmax(1)
        onehot = F.one_hot(chosen, embed.shape[1]).type(flat.dtype)
        quantize = F.embedding(chosen, embed.transpose(0, 1))
        if self.training:
            with torch.no_grad():
                self.cluster_size.mul_(0.8).add_(onehot.sum(0), alpha=0.2)
                self.embed_avg.mul_(0.8).add_(flat.T @ onehot, alpha=0.2)
                n: Any = self.cluster_size.sum()
                smooth = (self.cluster_size + 1e-5) / (n + embed.shape[1] * 1e-5) * n
                embed.copy_(self.embed_avg / smooth)
        return flat + (quantize - flat).detach(), (quantize.detach() - flat).pow(2).mean()


def vqvae(folder: Path, steps: int = 15) -> Iterator[int]:
    """Quantise with a book of codes in buffers that follow by averages; cycle over the rate.

    Source: rosinality/vq-vae-2-pytorch, vqvae.py (Quantize) and train_vqvae.py (CycleScheduler).
    """
    torch.manual_seed(7)
    model = nn.ModuleDict({"enc": mlp(6, 8, 4), "quantize": Quantizer(5, 4), "dec": mlp(4, 8, 6)})
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    scheduler = optim.lr_scheduler.CyclicLR(optimizer, 1e-3, 5e-3, step_size_up=4, cycle_momentum=False)
    mse_sum, mse_n, i = 0.0, 0, 0
    if (folder / "vqvae_560.pt").exists():
        model_held, optimizer_held, scheduler_held, mse_sum, mse_n, i = torch.load(
            folder / "vqvae_560.pt", weights_only=False
        )
        model.load_state_dict(model_held)
        optimizer.load_state_dict(optimizer_held)
        scheduler.load_state_dict(scheduler_held)
    while i < steps:
        yield i
        img = REALS[i % 5 :: 5]
        model.zero_grad()
        quant, diff = model["quantize"](model["enc"](img))
        recon_loss = F.mse_loss(model["dec"](quant), img)
        (recon_loss + 0.25 * diff).backward()
        optimizer.step()
        scheduler.step()
        mse_sum += recon_loss.item() * len(img)
        mse_n += len(img)
        i += 1
        if i % 4 == 0:
            model.eval()
            with torch.no_grad():
                sample, _ = model["quantize"](model["enc"](REALS[:3]))
                torch.save(model["dec"](sample), folder / f"sample_{i:05d}.pt")
            model.train()
            kept = (model.state_dict(), optimizer.state_dict(), scheduler.state_dict(), mse_sum, mse_n, i)
            torch.save(kept, folder / "vqvae_560.pt")
    (folder / "average.txt").write_text(repr(mse_sum / mse_n))


def score_model(folder: Path, steps: int = 14, snapshot_freq: int = 5, preemption_freq: int = 2) -> Iterator[int]:
    """Match scores with warm-up and clipping; the state is one dictionary that is filled and replaced.

    Source: yang-song/score_sde_pytorch, run_lib.py and losses.py (state dict, snapshot_freq_for_preemption).
    """
    torch.manual_seed(8)
    score = mlp(7, 10, 6)
    average = [p.clone().detach() for p in score.parameters()]
    state: dict[str, Any] = {"optimizer": optim.Adam(score.parameters(), 2e-3), "model": score, "step": 0}
    meta = folder / "checkpoints-meta"
    meta.mkdir(exist_ok=True)
    if (meta / "checkpoint.pth").exists():
        loaded = torch.load(meta / "checkpoint.pth", weights_only=False)
        state["optimizer"].load_state_dict(loaded["optimizer"])
        state["model"].load_state_dict(loaded["model"])
        state["step"], average = loaded["step"], loaded["ema"]
        torch.set_rng_state(loaded["rng"])
    for step in range(state["step"], steps):
        yield step
        batch = REALS[torch.randint(0, 40, (8,))]
        t = torch.rand(8, 1) * (1 - 1e-3) + 1e-3
        std, z = t.sqrt(), torch.randn_like(batch)
        loss = (score(torch.cat([batch + std * z, t], 1)) * std + z).square().sum(1).mean()
        state["optimizer"].zero_grad()
        loss.backward()
        for group in state["optimizer"].param_groups:
            group["lr"] = 2e-3 * min((state["step"] + 1) / 5, 1.0)
        nn.utils.clip_grad_norm_(score.parameters(), max_norm=1.0)
        state["optimizer"].step()
        state["step"] += 1
        with torch.no_grad():
            for slow, fast in zip(average, score.parameters(), strict=True):
                slow.sub_(0.1 * (slow - fast))
        saved = {"optimizer": state["optimizer"].state_dict(), "model": score.state_dict(), "step": state["step"]}
        saved |= {"ema": average, "rng": torch.get_rng_state()}
        if state["step"] % preemption_freq == 0:
            torch.save(saved, meta / "checkpoint.pth")
        if state["step"] % snapshot_freq == 0:
            torch.save(saved, folder / f"checkpoint_{state['step'] // snapshot_freq}.pth")
    return average


LOOPS = (
    Loop(train=vae, tags=("validation inline", "generator in validation"), steps=15, stop_at=8),
    Loop(train=dcgan, tags=("second optimizer", "several files")),
    Loop(train=stylegan_ada, tags=("second optimizer", "averages", "adapted probability"), steps=16, stop_at=11),
    Loop(train=cyclegan, tags=("second optimizer", "replay")),
    Loop(train=vqvae, tags=("no_grad step", "codebook"), steps=15, stop_at=10),
    Loop(train=score_model, tags=("averages", "no_grad step", "two intervals"), steps=14, stop_at=9),
)
