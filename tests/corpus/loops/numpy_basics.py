"""Loops in NumPy alone: by hand, with permutations, tables, populations and samplers that go on."""

from __future__ import annotations

import json
import os
import pickle
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import parity
from tests.corpus.registry import Loop

__all__ = ["LOOPS"]

X = np.random.default_rng(51).normal(size=(40, 4))
Y = (X @ np.array([1.0, -2.0, 0.5, 0.0]) > 0).astype(float)


def two_layers_with_momentum(folder: Path, steps: int = 14) -> Iterator[int]:
    """Backpropagate by hand with velocities in a list; the order of an epoch is an array that is kept.

    Source: mnielsen/neural-networks-and-deep-learning, src/network2.py (mini-batches, regularisation).
    """
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=(4, 5)) / 2, rng.normal(size=(5, 1)) / 2]
    velocities = [np.zeros_like(w) for w in weights]
    order, at, t = rng.permutation(40), 0, 0
    if (folder / "network.npz").exists():
        with np.load(folder / "network.npz") as f:
            weights, velocities = [f["w0"], f["w1"]], [f["v0"], f["v1"]]
            order, at, t = f["order"], int(f["at"]), int(f["t"])
        rng.bit_generator.state = json.loads((folder / "generator.json").read_text())
    while t < steps:
        yield t
        if at + 8 > len(order):
            order, at = rng.permutation(40), 0
        batch = order[at : at + 8]
        at += 8
        hidden = np.tanh(X[batch] @ weights[0])
        out = 1 / (1 + np.exp(-hidden @ weights[1]))
        delta = (out - Y[batch, None]) / len(batch)
        back = (delta @ weights[1].T) * (1 - hidden**2)
        for layer, grad in enumerate((X[batch].T @ back, hidden.T @ delta)):
            velocities[layer] = 0.9 * velocities[layer] - 0.1 * (grad + 1e-3 * weights[layer])
            weights[layer] = weights[layer] + velocities[layer]
        t += 1
        if t % 4 == 0:
            named = {f"w{k}": w for k, w in enumerate(weights)} | {f"v{k}": v for k, v in enumerate(velocities)}
            (folder / "generator.json").write_text(json.dumps(rng.bit_generator.state))
            np.savez(folder / "network.npz", order=order, at=at, t=t, **named)
    return weights


@dataclass
class Moments:
    """What Adam keeps of one array."""

    m: np.ndarray
    v: np.ndarray
    beta_powers: list[float] = field(default_factory=lambda: [1.0, 1.0])

    def move(self, w: np.ndarray, g: np.ndarray, lr: float) -> np.ndarray:
        """Return the next weights."""
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.99 * self.v + 0.01 * g**2
        self.beta_powers = [self.beta_powers[0] * 0.9, self.beta_powers[1] * 0.99]
        first, second = self.m / (1 - self.beta_powers[0]), self.v / (1 - self.beta_powers[1])
        return w - lr * first / (np.sqrt(second) + 1e-8)


def adam_by_hand(folder: Path, steps: int = 15, save_every: int = 4) -> None:
    """Adam with running powers of its betas in a dataclass that is pickled; accuracy is watched in the loop.

    Source: Kingma and Ba, "Adam", algorithm 1, on the logistic regression of CS229's notes; marked by a call.
    """
    w, moments, epoch, history = np.zeros(4), Moments(np.zeros(4), np.zeros(4)), 0, list[float]()
    file = folder / "logistic.pkl"
    if file.exists():
        w, m, v, powers, epoch, history = pickle.loads(file.read_bytes())
        moments = Moments(m, v, powers)
    while epoch < steps:
        parity.mark(epoch)
        rows = np.random.default_rng([7, epoch]).choice(32, 8, replace=False)
        p = 1 / (1 + np.exp(-X[rows] @ w))
        w = moments.move(w, X[rows].T @ (p - Y[rows]) / 8, 0.05 / np.sqrt(epoch + 1))
        history.append(float(((X[32:] @ w > 0) == Y[32:]).mean()))
        epoch += 1
        if epoch % save_every == 0:
            part = file.with_suffix(".part")
            part.write_bytes(pickle.dumps((w, moments.m, moments.v, moments.beta_powers, epoch, history)))
            part.replace(file)
    np.savez(folder / "final.npz", w=w, history=history)


def mini_batch_kmeans(folder: Path, steps: int = 14) -> Iterator[int]:
    """Move centres by counts of what each has taken; batches of the generator of `np.random`, which is saved.

    Source: Sculley, "Web-Scale K-Means Clustering", algorithm 1, as scikit-learn's MiniBatchKMeans.partial_fit.
    """
    np.random.seed(3)  # noqa: NPY002 - what the recipe does
    centres, counts, i = X[:3].copy(), np.zeros(3, int), 0
    if os.path.exists(folder / "kmeans.npy"):
        held = np.load(folder / "kmeans.npy", allow_pickle=True).item()
        centres, counts, i = held["centres"], held["counts"], held["i"]
        np.random.set_state(held["legacy"])  # noqa: NPY002
    for i in range(i, steps):  # noqa: B020 - the shape of the recipe
        yield i
        batch = X[np.random.randint(0, 40, 6)]  # noqa: NPY002
        nearest = ((batch[:, None] - centres) ** 2).sum(-1).argmin(1)
        for x, c in zip(batch, nearest, strict=True):
            counts[c] += 1
            centres[c] += (x - centres[c]) / counts[c]
        if i % 5 == 4:
            held = {"centres": centres, "counts": counts, "i": i + 1, "legacy": np.random.get_state()}  # noqa: NPY002
            np.save(folder / "kmeans.npy", held)  # type: ignore[arg-type]
    return centres


def tabular_q_learning(folder: Path, steps: int = 16) -> Iterator[int]:
    """Walk a lake with a table of values; an episode goes on across the save; rewards are counted by place.

    Source: simoninithomas/Deep_reinforcement_learning_Course, Q learning with FrozenLake (epsilon decay).
    """
    random.seed(4)
    qtable, state, epsilon, total_step = np.zeros((9, 4)), 0, 1.0, 0
    visits: Counter[int] = Counter()
    if (folder / "qtable.json").exists():
        old = json.loads((folder / "qtable.json").read_text())
        qtable, state, epsilon, total_step = np.array(old["qtable"]), old["state"], old["epsilon"], old["total_step"]
        visits.update({int(k): n for k, n in old["visits"].items()})
        kind, numbers, gauss = old["random"]
        random.setstate((kind, tuple(numbers), gauss))
    while total_step < steps:
        yield total_step
        for _ in range(6):
            greedy = int(qtable[state].argmax())
            action = greedy if random.uniform(0, 1) > epsilon else random.randrange(4)
            row, column = divmod(state, 3)
            row = min(2, max(0, row + (action == 0) - (action == 1)))
            column = min(2, max(0, column + (action == 2) - (action == 3)))
            new_state = row * 3 + column
            reward = 1.0 if new_state == 8 else -0.01
            qtable[state, action] += 0.8 * (reward + 0.95 * qtable[new_state].max() - qtable[state, action])
            visits[new_state] += 1
            state = 0 if new_state == 8 else new_state
        epsilon = 0.01 + 0.99 * np.exp(-0.1 * total_step)
        total_step += 1
        if total_step % 5 == 0:
            old = {"qtable": qtable.tolist(), "state": state, "epsilon": float(epsilon), "total_step": total_step}
            (folder / "qtable.json").write_text(json.dumps({**old, "visits": visits, "random": random.getstate()}))
    np.save(folder / "table.npy", qtable)
    return dict(sorted(visits.items()))


def evolution_strategy(folder: Path, steps: int = 14, save_every: int = 3) -> Iterator[int]:
    """Shake weights in mirrored pairs, rank what they reach; the width of the noise follows successes.

    Source: openai/evolution-strategies-starter (mirrored noise, ranks) and Rechenberg's rule of one fifth.
    """
    rng = np.random.Generator(np.random.PCG64DXSM(5))
    theta, sigma, best, generation = np.zeros(4), 0.3, -np.inf, 0

    def fitness(w: np.ndarray) -> float:
        return -float(np.logaddexp(0, -(2 * Y - 1) * (X @ w)).mean())

    if (folder / "es").is_dir():
        latest = max((folder / "es").glob("gen*.npz"), key=lambda p: int(p.stem[3:]))
        with np.load(latest, allow_pickle=True) as f:
            theta, sigma, best = f["theta"], float(f["sigma"]), float(f["best"])
            generation, rng.bit_generator.state = int(f["generation"]), f["pcg"].item()
    while generation < steps:
        yield generation
        noise = rng.standard_normal((4, 4))
        tried = np.concatenate([noise, -noise])
        scores = np.array([fitness(theta + sigma * e) for e in tried])
        ranks = scores.argsort().argsort() / 7 - 0.5
        theta = theta + 0.2 / (8 * sigma) * ranks @ tried
        sigma *= 1.1 if (scores > best).mean() > 0.2 else 0.95
        best = max(best, fitness(theta))
        generation += 1
        if generation % save_every == 0:
            (folder / "es").mkdir(exist_ok=True)
            kept = {"theta": theta, "sigma": sigma, "best": best, "generation": generation}
            np.savez(folder / "es" / f"gen{generation}.npz", pcg=np.array(rng.bit_generator.state, object), **kept)
    return theta


class RBM:
    """Weights, biases, and chains that go on."""

    def __init__(self) -> None:
        self.rng = np.random.RandomState(6)
        self.W, self.hbias, self.vbias = self.rng.normal(0, 0.1, (6, 4)), np.zeros(4), np.zeros(6)
        self.persistent = np.zeros((5, 4))

    def sample(self, p: np.ndarray) -> np.ndarray:
        """Draw zeros and ones."""
        drawn: np.ndarray = (self.rng.uniform(size=p.shape) < p).astype(float)
        return drawn

    def contrast(self, v0: np.ndarray, lr: float) -> float:
        """Take a step of persistent contrastive divergence and return the error of what is rebuilt."""
        h0 = 1 / (1 + np.exp(-(v0 @ self.W + self.hbias)))
        for _ in range(2):
            vk = self.sample(1 / (1 + np.exp(-(self.persistent @ self.W.T + self.vbias))))
            hk = 1 / (1 + np.exp(-(vk @ self.W + self.hbias)))
            self.persistent = self.sample(hk)
        self.W += lr * (v0.T @ h0 / len(v0) - vk.T @ hk / len(vk))
        self.vbias += lr * (v0.mean(0) - vk.mean(0))
        self.hbias += lr * (h0.mean(0) - hk.mean(0))
        return float(np.square(v0 - 1 / (1 + np.exp(-(h0 @ self.W.T + self.vbias)))).mean())


def persistent_chains(folder: Path, steps: int = 14) -> Iterator[int]:
    """Train a Boltzmann machine with chains that go on across saves; the object is pickled whole.

    Source: lisa-lab/DeepLearningTutorials, code/rbm.py (persistent contrastive divergence).
    """
    rbm, costs, done = RBM(), list[float](), 0
    data = (np.random.default_rng(8).random((20, 6)) < 0.4).astype(float)
    if (folder / "rbm.pickle").exists():
        attributes, costs, done = pickle.loads((folder / "rbm.pickle").read_bytes())
        rbm.__dict__.update(attributes)
    while done < steps:
        yield done
        costs.append(rbm.contrast(data[done * 5 % 20 :][:5], 0.1 if done < 10 else 0.05))
        done += 1
        if done % 4 == 0:
            print("cost", sum(costs) / len(costs))
            (folder / "rbm.pickle").write_bytes(pickle.dumps((vars(rbm), costs, done)))
    return {"W": rbm.W, "chains": rbm.persistent}


def word2vec(folder: Path, steps: int = 14) -> Iterator[int]:
    """Draw negatives from a table of counts, lower the rate with words seen; text is read line after line.

    Source: tmikolov/word2vec, word2vec.c (unigram table, alpha by word_count_actual), skip-gram.
    """
    lines = ["the cat saw the dog", "a dog saw a cat", "the bird saw a fish", "a fish ate the bird"] * 6
    vocab = {word: at for at, (word, _) in enumerate(sorted(Counter(" ".join(lines).split()).items()))}
    table = np.array([vocab[word] for line in lines for word in line.split()])
    syn0, syn1neg = np.random.default_rng(9).uniform(-0.5, 0.5, (len(vocab), 5)), np.zeros((len(vocab), 5))
    next_random, word_count_actual, line_at, vectors = 1, 0, 0, folder / "vectors.w2v"
    if vectors.exists():
        raw = vectors.read_bytes()
        next_random, word_count_actual, line_at = (int(n) for n in np.frombuffer(raw[:24], np.uint64))
        both = np.frombuffer(raw[24:], np.float64).reshape(2, *syn0.shape).copy()
        syn0, syn1neg = both[0], both[1]
    while line_at < steps:
        yield line_at
        words = [vocab[word] for word in lines[line_at].split()]
        alpha = max(0.1 * (1 - word_count_actual / 200), 1e-4)
        for position, word in enumerate(words):
            for other in words[max(0, position - 1) : position] + words[position + 1 : position + 2]:
                slope = np.zeros(5)
                for d in range(3):
                    next_random = (next_random * 25214903917 + 11) % 2**48
                    target, label = (word, 1.0) if d == 0 else (int(table[next_random // 65536 % len(table)]), 0.0)
                    g = (label - 1 / (1 + np.exp(-syn0[other] @ syn1neg[target]))) * alpha
                    slope += g * syn1neg[target]
                    syn1neg[target] += g * syn0[other]
                syn0[other] += slope
        word_count_actual += len(words)
        line_at += 1
        if line_at % 4 == 0:
            head = np.array([next_random, word_count_actual, line_at], np.uint64)
            vectors.write_bytes(head.tobytes() + np.stack([syn0, syn1neg]).tobytes())
    result: Any = {word: syn0[at] for word, at in vocab.items()}
    return result


LOOPS = (
    Loop(train=two_layers_with_momentum, tags=("permutation", "no_grad step")),
    Loop(train=adam_by_hand, tags=("mark called", "validation inline", "history"), steps=15, stop_at=10),
    Loop(train=mini_batch_kmeans, tags=("counts",)),
    Loop(train=tabular_q_learning, tags=("environment", "json"), steps=16, stop_at=12),
    Loop(train=evolution_strategy, tags=("population",), steps=14, stop_at=8),
    Loop(train=persistent_chains, tags=("chains", "class")),
    Loop(train=word2vec, tags=("generator by hand", "bytes")),
)
