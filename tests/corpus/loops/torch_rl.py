"""Loops of reinforcement learning: rollouts, replay, targets that follow, with an environment whose state is kept."""

from __future__ import annotations

import copy
import json
import math
import random
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


class Cart:
    """A point that is pushed, with noise of its own generator."""

    def __init__(self, seed: int) -> None:
        self.rng, self.position, self.velocity, self.age = np.random.default_rng(seed), 0.0, 0.1, 0

    def observe(self) -> np.ndarray:
        """Return what is seen."""
        return np.array([self.position, self.velocity, self.age / 10], np.float32)

    def push(self, force: float) -> tuple[np.ndarray, float, bool]:
        """Move, and begin again when it is too far or too old."""
        self.velocity = 0.9 * self.velocity + 0.1 * force + 0.02 * float(self.rng.normal())
        self.position += self.velocity
        self.age += 1
        reward, done = -abs(self.position), abs(self.position) > 1.5 or self.age >= 10
        if done:
            self.position, self.velocity, self.age = 0.0, float(self.rng.normal()) * 0.1, 0
        return self.observe(), reward, done

    def get_state(self) -> dict[str, Any]:
        """Return all of it."""
        held = {"position": self.position, "velocity": self.velocity, "age": self.age}
        return {**held, "rng": self.rng.bit_generator.state}

    def set_state(self, held: dict[str, Any]) -> None:
        """Take all of it."""
        self.position, self.velocity, self.age = held["position"], held["velocity"], held["age"]
        self.rng.bit_generator.state = held["rng"]


def net(inputs: int, outputs: int) -> nn.Sequential:
    """Return a small network."""
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


def reinforce(folder: Path, steps: int = 14, log_interval: int = 5) -> Iterator[int]:
    """Play an episode, weight its log-probabilities with returns; a running reward decides when it is solved.

    Source: pytorch/examples, reinforcement_learning/reinforce.py.
    """
    torch.manual_seed(543)
    policy, env = net(3, 2), Cart(1)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    running_reward, i_episode = 10.0, 0
    if (folder / "reinforce.pt").exists():
        old = torch.load(folder / "reinforce.pt", weights_only=False)
        policy.load_state_dict(old["policy"])
        optimizer.load_state_dict(old["optimizer"])
        env.set_state(old["env"])
        torch.set_rng_state(old["torch"])
        running_reward, i_episode = old["running_reward"], old["i_episode"]
    while i_episode < steps:
        yield i_episode
        saved_log_probs, rewards = [], []
        for _ in range(5):
            probs = F.softmax(policy(torch.from_numpy(env.observe())), 0)
            m = torch.distributions.Categorical(probs)
            action = m.sample()
            saved_log_probs.append(m.log_prob(action))
            _, reward, _ = env.push(float(action) * 2 - 1)
            rewards.append(reward)
        running_reward = 0.05 * sum(rewards) + 0.95 * running_reward
        R, returns = 0.0, []
        for r in rewards[::-1]:
            R = r + 0.99 * R
            returns.insert(0, R)
        scaled = torch.tensor(returns)
        scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-6)
        policy_loss = torch.stack([-log_prob * R for log_prob, R in zip(saved_log_probs, scaled, strict=True)])
        optimizer.zero_grad()
        policy_loss.sum().backward()
        optimizer.step()
        i_episode += 1
        if i_episode % log_interval == 0:
            print(f"Episode {i_episode} average {running_reward:.2f}")
            old = {"policy": policy.state_dict(), "optimizer": optimizer.state_dict(), "env": env.get_state()}
            old |= {"torch": torch.get_rng_state(), "running_reward": running_reward, "i_episode": i_episode}
            torch.save(old, folder / "reinforce.pt")
        if running_reward > 100:
            break
    return policy.state_dict()


def ppo(folder: Path, steps: int = 12) -> Iterator[int]:
    """Collect a rollout, estimate advantages, train on shuffled minibatches of it; the rate is annealed by hand.

    Source: vwxyzjn/cleanrl, ppo.py (GAE, clip_coef, anneal_lr, next_obs carried between updates).
    """
    random.seed(2)
    np.random.seed(2)  # noqa: NPY002 - what the recipe does
    torch.manual_seed(2)
    actor, critic = net(3, 2), net(3, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=5e-3, eps=1e-5)
    envs = [Cart(10), Cart(11)]
    next_obs = torch.from_numpy(np.stack([env.observe() for env in envs]))
    next_done, update = torch.zeros(2), 0
    if (folder / "ppo.cleanrl_model.pt").exists():
        held = torch.load(folder / "ppo.cleanrl_model.pt", weights_only=False)
        actor.load_state_dict(held["actor"])
        critic.load_state_dict(held["critic"])
        optimizer.load_state_dict(held["optimizer"])
        for env, was in zip(envs, held["envs"], strict=True):
            env.set_state(was)
        next_obs, next_done, update = held["next_obs"], held["next_done"], held["update"]
        np.random.set_state(held["np"])  # noqa: NPY002
        torch.set_rng_state(held["th"])
    while update < steps:
        yield update
        optimizer.param_groups[0]["lr"] = (1.0 - update / 40) * 5e-3
        obs, actions = torch.zeros(4, 2, 3), torch.zeros(4, 2, dtype=torch.long)
        logprobs, rewards, dones, values = (torch.zeros(4, 2) for _ in range(4))
        for t in range(4):
            obs[t], dones[t] = next_obs, next_done
            with torch.no_grad():
                spread = torch.distributions.Categorical(logits=actor(next_obs))
                actions[t] = spread.sample()
                logprobs[t], values[t] = spread.log_prob(actions[t]), critic(next_obs)[:, 0]
            moved = [env.push(float(a) * 2 - 1) for env, a in zip(envs, actions[t], strict=True)]
            next_obs = torch.from_numpy(np.stack([one[0] for one in moved]))
            rewards[t] = torch.tensor([one[1] for one in moved])
            next_done = torch.tensor([float(one[2]) for one in moved])
        with torch.no_grad():
            advantages, last, after = torch.zeros(4, 2), torch.zeros(2), critic(next_obs)[:, 0]
            for t in reversed(range(4)):
                alive = 1 - (next_done if t == 3 else dones[t + 1])
                last = rewards[t] + 0.99 * after * alive - values[t] + 0.95 * 0.99 * alive * last
                advantages[t], after = last, values[t]
            returns = advantages + values
        b_inds = np.arange(8)
        for _ in range(2):
            np.random.shuffle(b_inds)  # noqa: NPY002
            for start in (0, 4):
                mb = b_inds[start : start + 4]
                spread = torch.distributions.Categorical(logits=actor(obs.flatten(0, 1)[mb]))
                ratio = (spread.log_prob(actions.flatten()[mb]) - logprobs.flatten()[mb]).exp()
                good = advantages.flatten()[mb]
                good = (good - good.mean()) / (good.std() + 1e-8)
                pg_loss = torch.max(-good * ratio, -good * ratio.clamp(0.8, 1.2)).mean()
                v_loss = (critic(obs.flatten(0, 1)[mb])[:, 0] - returns.flatten()[mb]).square().mean()
                optimizer.zero_grad()
                (pg_loss - 0.01 * spread.entropy().mean() + 0.5 * v_loss).backward()
                nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
                optimizer.step()
        update += 1
        if update % 3 == 0:
            held = {"actor": actor.state_dict(), "critic": critic.state_dict(), "optimizer": optimizer.state_dict()}
            held |= {"envs": [env.get_state() for env in envs], "next_obs": next_obs, "next_done": next_done}
            held |= {"np": np.random.get_state(), "th": torch.get_rng_state(), "update": update}  # noqa: NPY002
            torch.save(held, folder / "ppo.cleanrl_model.pt")
    return actor.state_dict()


class ReplayBuffer:
    """Rows of transitions in arrays of a fixed size."""

    def __init__(self, size: int) -> None:
        self.rows = np.zeros((size, 9), np.float32)
        self.ptr, self.filled, self.max_size = 0, 0, size

    def store(self, *parts: Any) -> None:
        """Write over the oldest."""
        self.rows[self.ptr] = np.concatenate([np.atleast_1d(part) for part in parts])
        self.ptr = (self.ptr + 1) % self.max_size
        self.filled = min(self.filled + 1, self.max_size)

    def sample_batch(self, rng: np.random.Generator, size: int) -> tuple[torch.Tensor, ...]:
        """Return observations, actions, rewards, next observations, ends."""
        rows = torch.from_numpy(self.rows[rng.integers(0, self.filled, size)])
        return rows[:, :3], rows[:, 3:4], rows[:, 4], rows[:, 5:8], rows[:, 8]


def ddpg(folder: Path, steps: int = 16, save_every: int = 5) -> Iterator[int]:
    """Deterministic policy with noise that is correlated in time; both targets follow by Polyak averaging.

    Source: openai/spinningup, algos/pytorch/ddpg/ddpg.py, and the Ornstein-Uhlenbeck noise of Lillicrap et al.
    """
    torch.manual_seed(3)
    ac = nn.ModuleDict({"pi": net(3, 1), "q": net(4, 1)})
    ac_targ = copy.deepcopy(ac)
    for p in ac_targ.parameters():
        p.requires_grad = False
    pi_optimizer, q_optimizer = (
        torch.optim.Adam(ac["pi"].parameters(), 1e-3),
        torch.optim.Adam(ac["q"].parameters(), 1e-3),
    )
    replay_buffer, env, rng, ou, t = ReplayBuffer(12), Cart(5), np.random.default_rng(6), 0.0, 0
    o = env.observe()
    if (folder / "ddpg").exists():
        modules = torch.load(folder / "ddpg" / "model.pt")
        for key, one in (("ac", ac), ("targ", ac_targ), ("pi", pi_optimizer), ("q", q_optimizer)):
            one.load_state_dict(modules[key])
        with np.load(folder / "ddpg" / "replay.npz") as arrays:
            replay_buffer.rows[:], replay_buffer.ptr = arrays["rows"], int(arrays["ptr"])
            replay_buffer.filled, ou = int(arrays["filled"]), float(arrays["ou"])
        plain = json.loads((folder / "ddpg" / "vars.json").read_text())
        env.set_state(plain["env"])
        rng.bit_generator.state = plain["rng"]
        t, o = plain["t"], env.observe()
    while t < steps:
        yield t
        ou = 0.85 * ou + 0.2 * float(rng.normal())
        with torch.no_grad():
            a = np.clip(ac["pi"](torch.from_numpy(o)).tanh().numpy() + np.float32(ou), -1, 1)
        o2, r, d = env.push(float(a[0]))
        replay_buffer.store(o, a, r, o2, d)
        o = o2
        obs, act, rew, after, end = replay_buffer.sample_batch(rng, 6)
        with torch.no_grad():
            goal = ac_targ["q"](torch.cat([after, ac_targ["pi"](after).tanh()], 1))[:, 0]
            backup = rew + 0.99 * (1 - end) * goal
        q_optimizer.zero_grad()
        (ac["q"](torch.cat([obs, act], 1))[:, 0] - backup).square().mean().backward()
        q_optimizer.step()
        ac["q"].requires_grad_(False)
        pi_optimizer.zero_grad()
        (-ac["q"](torch.cat([obs, ac["pi"](obs).tanh()], 1)).mean()).backward()
        pi_optimizer.step()
        ac["q"].requires_grad_(True)
        with torch.no_grad():
            for p, p_targ in zip(ac.parameters(), ac_targ.parameters(), strict=True):
                p_targ.data.mul_(0.9)
                p_targ.data.add_(0.1 * p.data)
        t += 1
        if t % save_every == 0:
            (folder / "ddpg").mkdir(exist_ok=True)
            modules = {"ac": ac.state_dict(), "targ": ac_targ.state_dict(), "pi": pi_optimizer.state_dict()}
            torch.save({**modules, "q": q_optimizer.state_dict()}, folder / "ddpg" / "model.pt")
            sizes = {"ptr": replay_buffer.ptr, "filled": replay_buffer.filled, "ou": ou}
            np.savez(folder / "ddpg" / "replay.npz", rows=replay_buffer.rows, **sizes)
            plain = {"env": env.get_state(), "rng": rng.bit_generator.state, "t": t}
            (folder / "ddpg" / "vars.json").write_text(json.dumps(plain))
    return ac["pi"].state_dict()


def sac(folder: Path, steps: int = 14) -> Iterator[int]:
    """Twin critics, a temperature that is learned, targets that follow; the buffer is a list of tuples.

    Source: pranz24/pytorch-soft-actor-critic, sac.py (automatic_entropy_tuning, soft_update) and replay_memory.py.
    """
    torch.manual_seed(4)
    actor = net(3, 2)
    q1, q2 = net(4, 1), net(4, 1)
    t1, t2 = copy.deepcopy(q1), copy.deepcopy(q2)
    log_alpha = torch.zeros(1, requires_grad=True)
    a_opt = torch.optim.Adam(actor.parameters(), 3e-3)
    q_opt = torch.optim.Adam([*q1.parameters(), *q2.parameters()], 3e-3)
    alpha_optim = torch.optim.Adam([log_alpha], 3e-3)
    memory: list[tuple[Any, ...]] = []
    env, total, picks = Cart(8), 0, random.Random(9)

    def act(obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = actor(obs).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        y = raw.tanh()
        return y, (normal.log_prob(raw) - torch.log(1 - y.pow(2) + 1e-6)).sum(-1)

    parts = {"actor": actor, "q1": q1, "q2": q2, "t1": t1, "t2": t2, "a": a_opt, "q": q_opt, "alpha": alpha_optim}
    if (folder / "sac.pt").exists():
        box = torch.load(folder / "sac.pt", weights_only=False)
        for k, part in parts.items():
            part.load_state_dict(box["parts"][k])  # type: ignore[attr-defined]
        log_alpha.data.copy_(box["log_alpha"])
        memory, total = box["memory"], box["total"]
        env.set_state(box["env"])
        picks.setstate(box["picks"])
        torch.set_rng_state(box["rng"])
    while total < steps:
        yield total
        s = torch.from_numpy(env.observe())
        with torch.no_grad():
            a = act(s)[0]
        s2, r, done = env.push(float(a))
        memory.append((s, a, r, torch.from_numpy(s2), float(not done)))
        del memory[:-10]
        batch = picks.choices(memory, k=6)
        S, A, S2 = (torch.stack([row[at] for row in batch]) for at in (0, 1, 3))
        R, M = (torch.tensor([row[at] for row in batch]) for at in (2, 4))
        with torch.no_grad():
            A2, logp2 = act(S2)
            low = torch.min(t1(torch.cat([S2, A2], 1)), t2(torch.cat([S2, A2], 1)))[:, 0]
            goal = R + 0.99 * M * (low - log_alpha.exp() * logp2)
        q_opt.zero_grad()
        sum(F.mse_loss(q(torch.cat([S, A], 1))[:, 0], goal) for q in (q1, q2)).backward()  # type: ignore[union-attr]
        q_opt.step()
        new, logp = act(S)
        worth = torch.min(q1(torch.cat([S, new], 1)), q2(torch.cat([S, new], 1)))[:, 0]
        a_opt.zero_grad()
        (log_alpha.exp().detach() * logp - worth).mean().backward()
        a_opt.step()
        alpha_optim.zero_grad()
        (-(log_alpha * (logp + (-1.0)).detach()).mean()).backward()
        alpha_optim.step()
        with torch.no_grad():
            for slow, fast in ((t1, q1), (t2, q2)):
                for target_param, param in zip(slow.parameters(), fast.parameters(), strict=True):
                    target_param.copy_(target_param * 0.95 + param * 0.05)
        total += 1
        if total % 4 == 0:
            box = {"parts": {k: part.state_dict() for k, part in parts.items()}, "memory": memory, "total": total}  # type: ignore[attr-defined]
            box |= {"log_alpha": log_alpha.detach(), "env": env.get_state(), "picks": picks.getstate()}
            torch.save({**box, "rng": torch.get_rng_state()}, folder / "sac.pt")
    torch.save((actor.state_dict(), log_alpha.detach()), folder / "sac_final.pt")


class Agent:
    """Acts with an epsilon that falls, learns from priorities, and knows how to keep itself."""

    def __init__(self, folder: Path) -> None:
        torch.manual_seed(5)
        self.folder, self.epsilon, self.env = folder, 1.0, Cart(12)
        self.online, self.steps_done, self.beta = net(3, 2), 0, 0.4
        self.frozen = copy.deepcopy(self.online)
        self.priorities, self.rows, self.rng = (
            [1.0],
            [(self.env.observe(), 0, 0.0, self.env.observe())],
            random.Random(3),
        )
        self.optimizer = torch.optim.RMSprop(self.online.parameters(), 2e-3)

    def save(self) -> None:
        """Write the agent."""
        held = {name: getattr(self, name) for name in ("epsilon", "steps_done", "beta", "priorities", "rows")}
        held |= {"online": self.online.state_dict(), "frozen": self.frozen.state_dict(), "env": self.env.get_state()}
        held |= {"optimizer": self.optimizer.state_dict(), "rng": self.rng.getstate()}
        torch.save(held, self.folder / "agent.ckpt")

    def load(self) -> None:
        """Read the agent."""
        held = torch.load(self.folder / "agent.ckpt", weights_only=False)
        for name in ("epsilon", "steps_done", "beta", "priorities", "rows"):
            setattr(self, name, held[name])
        for name in ("online", "frozen", "optimizer"):
            getattr(self, name).load_state_dict(held[name])
        self.env.set_state(held["env"])
        self.rng.setstate(held["rng"])

    def learn(self) -> None:
        """Act once and take a step."""
        seen = self.env.observe()
        with torch.no_grad():
            greedy = int(self.online(torch.from_numpy(seen)).argmax())
        action = self.rng.randrange(2) if self.rng.random() < self.epsilon else greedy
        after, reward, _ = self.env.push(action * 2.0 - 1)
        self.rows.append((seen, action, reward, after))
        self.priorities.append(max(self.priorities))
        del self.rows[:-16], self.priorities[:-16]
        chosen = self.rng.choices(range(len(self.rows)), [p**0.6 for p in self.priorities], k=5)
        s, a, r, s2 = (torch.from_numpy(np.array(one)) for one in zip(*(self.rows[i] for i in chosen), strict=True))
        with torch.no_grad():
            best = self.online(s2).argmax(1, keepdim=True)
            goal = r.float() + 0.9 * self.frozen(s2).gather(1, best)[:, 0]
        error = self.online(s).gather(1, a[:, None])[:, 0] - goal
        weights = torch.tensor([(len(self.rows) * self.priorities[i]) ** -self.beta for i in chosen])
        self.optimizer.zero_grad()
        (weights * F.huber_loss(error, torch.zeros_like(error), reduction="none")).mean().backward()
        self.optimizer.step()
        for i, e in zip(chosen, error.detach().abs().tolist(), strict=True):
            self.priorities[i] = e + 1e-3
        self.epsilon, self.beta = max(0.05, self.epsilon * 0.9), min(1.0, self.beta + 0.03)

    def run(self, last: int) -> None:
        """Learn to the end."""
        while self.steps_done < last:
            parity.mark(self.steps_done)
            self.learn()
            self.steps_done += 1
            if self.steps_done % 6 == 0:
                self.frozen.load_state_dict(self.online.state_dict())
            if self.steps_done % 4 == 0:
                self.save()


def prioritised_replay(folder: Path, steps: int = 18) -> Any:
    """Draw by priorities that follow the errors; epsilon falls, beta rises, a frozen copy is exchanged at times.

    Source: higgsfield/RL-Adventure, 4.prioritized dqn.ipynb, with the double estimate of 2.double dqn.ipynb.
    """
    agent = Agent(folder)
    if (folder / "agent.ckpt").exists():
        agent.load()
    agent.run(steps)
    return {"net": agent.online.state_dict(), "epsilon": agent.epsilon}


def a2c_many_envs(folder: Path, steps: int = 13) -> Iterator[int]:
    """Advantage actor-critic of a network with two heads and a recurrent state that is kept between updates.

    Source: ikostrikov/pytorch-a2c-ppo-acktr-gail, main.py and a2c_ppo_acktr/storage.py (recurrent_hidden_states).
    """
    torch.manual_seed(6)
    gru, pi, v = nn.GRUCell(3, 6), nn.Linear(6, 2), nn.Linear(6, 1)
    everything = nn.ModuleList([gru, pi, v])
    agent = torch.optim.RMSprop(everything.parameters(), 7e-3, eps=1e-5, alpha=0.99)
    carts = [Cart(seed) for seed in (20, 21, 22)]
    hidden, masks, j = torch.zeros(3, 6), torch.ones(3, 1), 0
    if (folder / "a2c.pth").exists():
        nets, opt, hidden, masks, worlds, rng, j = torch.load(folder / "a2c.pth", weights_only=False)
        everything.load_state_dict(nets)
        agent.load_state_dict(opt)
        for cart, world in zip(carts, worlds, strict=True):
            cart.set_state(world)
        torch.random.set_rng_state(rng)
    for j in range(j, steps):  # noqa: B020 - the shape of the recipe
        yield j
        for group in agent.param_groups:
            group["lr"] = 7e-3 - 7e-3 * (j / 50.0)
        logs, values, rewards, alive, h = [], [], [], [], hidden
        for _ in range(3):
            h = gru(torch.from_numpy(np.stack([cart.observe() for cart in carts])), h * masks)
            spread = torch.distributions.Categorical(logits=pi(h))
            action = spread.sample()
            moved = [cart.push(float(a) * 2 - 1) for cart, a in zip(carts, action, strict=True)]
            masks = torch.tensor([[0.0 if one[2] else 1.0] for one in moved])
            logs.append(spread.log_prob(action))
            values.append(v(h)[:, 0])
            rewards.append(torch.tensor([one[1] for one in moved]))
            alive.append(masks[:, 0])
        hidden = h.detach()
        R, loss = v(hidden)[:, 0].detach(), torch.zeros(())
        for log, value, reward, on in zip(logs[::-1], values[::-1], rewards[::-1], alive[::-1], strict=True):
            R = reward + 0.99 * R * on
            advantage = R - value
            loss = loss + (0.5 * advantage.square() - log * advantage.detach()).mean()
        agent.zero_grad()
        loss.backward()
        assert math.isfinite(nn.utils.clip_grad_norm_(everything.parameters(), 0.5).item())
        agent.step()
        if j % 4 == 3:
            worlds = [cart.get_state() for cart in carts]
            kept = (everything.state_dict(), agent.state_dict(), hidden, masks, worlds, torch.get_rng_state(), j + 1)
            torch.save(kept, folder / "a2c.pth")
    return everything.state_dict()


LOOPS = (
    Loop(train=reinforce, tags=("environment",)),
    Loop(train=ppo, tags=("environment", "rollout"), steps=12, stop_at=8),
    Loop(train=ddpg, tags=("replay", "target network", "no_grad step", "environment"), steps=16, stop_at=11),
    Loop(train=sac, tags=("replay", "target network", "second optimizer")),
    Loop(train=prioritised_replay, tags=("replay", "target network", "class", "mark called"), steps=18, stop_at=11),
    Loop(train=a2c_many_envs, tags=("carried state", "environment"), steps=13, stop_at=9),
)
