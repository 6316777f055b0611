"""Balance a pole by PPO with manual optimization: a rollout in 64 simulated worlds and its updates are one compiled step.

$ python examples/ppo.py
Epoch 0/7: 50 batches in 36.3 s (1.38/s, steady 216.42/s), v_num: 0  episode_length: 116.4
Epoch 1/7: 50 batches in 0.20 s (249.70/s), v_num: 0  episode_length: 167
Epoch 2/7: 50 batches in 0.23 s (221.08/s), v_num: 0  episode_length: 130.4
Epoch 3/7: 50 batches in 0.23 s (217.74/s), v_num: 0  episode_length: 151.8
Epoch 4/7: 50 batches in 0.22 s (227.89/s), v_num: 0  episode_length: 186.6
Epoch 5/7: 50 batches in 0.19 s (267.37/s), v_num: 0  episode_length: 195.8
Epoch 6/7: 50 batches in 0.19 s (265.05/s), v_num: 0  episode_length: 197.5
Epoch 7/7: 50 batches in 0.23 s (221.40/s), v_num: 0  episode_length: 188.6
episodes last 189 of 200 pushes
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader

import systolic as L

LIMIT = 200


def pushed(state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Carts [worlds, 4] (place, speed, angle, its speed) a fiftieth of a second after a push to the left (0) or right (1)."""
    place, speed, angle, turning = state.unbind(1)
    force = action * 20.0 - 10.0
    sin, cos = angle.sin(), angle.cos()
    common = (force + 0.05 * turning**2 * sin) / 1.1
    turns = (9.8 * sin - cos * common) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    moves = common - 0.05 * turns * cos / 1.1
    return torch.stack([place + 0.02 * speed, speed + 0.02 * moves, angle + 0.02 * turning, turning + 0.02 * turns], 1)


class PPO(L.LightningModule):
    """Policy and value network, and the worlds, which go on from step to step as buffers."""

    def __init__(self, worlds: int = 64, horizon: int = 16, updates: int = 4, lr: float = 3e-3) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.horizon, self.updates, self.lr = horizon, updates, lr
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.value = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
        self.register_buffer("state", torch.zeros(worlds, 4))
        self.register_buffer("age", torch.zeros(worlds))
        self.register_buffer("lasted", torch.zeros(()))

    @torch.no_grad()
    def rollout(self) -> tuple[torch.Tensor, ...]:
        """States, actions and their log-probabilities, advantages and returns, all [horizon * worlds]."""
        states, actions, rewards, ended = [], [], [], []
        state, age = self.state, self.age
        for _ in range(self.horizon):
            action = (torch.rand(len(state)) < self.policy(state).softmax(1)[:, 1]).long()
            states.append(state)
            actions.append(action)
            state, age = pushed(state, action), age + 1
            fell = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 0.2095)
            over = fell | (age >= LIMIT)
            rewards.append(1.0 - fell.float())
            ended.append(over.float())
            # a mean over the episodes that ended of late
            share = 0.02 * over.float().mean() * self.horizon
            self.lasted += share * ((age * over).sum() / over.sum().clamp(min=1) - self.lasted)
            state = torch.where(over[:, None], torch.rand_like(state) * 0.1 - 0.05, state)
            age = torch.where(over, 0.0, age)
        self.state.copy_(state)
        self.age.copy_(age)
        values = self.value(torch.stack([*states, state])).squeeze(-1)
        advantage, advantages = torch.zeros_like(values[0]), []
        for time in reversed(range(self.horizon)):
            stays = 1.0 - ended[time]
            surprise = rewards[time] + 0.99 * values[time + 1] * stays - values[time]
            advantage = surprise + 0.99 * 0.95 * stays * advantage
            advantages.insert(0, advantage)
        seen, taken, gained = torch.cat(states), torch.cat(actions), torch.cat(advantages)
        log_prob = Categorical(logits=self.policy(seen), validate_args=False).log_prob(taken)
        return seen, taken, log_prob, (gained - gained.mean()) / (gained.std() + 1e-6), gained + values[:-1].flatten()

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        states, actions, before, advantages, returns = self.rollout()
        optimizer = self.optimizers()
        for _ in range(self.updates):
            choice = Categorical(logits=self.policy(states), validate_args=False)
            ratio = (choice.log_prob(actions) - before).exp()
            gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
            missed = (self.value(states).squeeze(-1) - returns).square().mean()
            optimizer.zero_grad()
            self.manual_backward(0.5 * missed - gain - 0.01 * choice.entropy().mean())
            self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
            optimizer.step()
        self.log("episode_length", self.lasted, prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400, help="rollouts, each with its updates")
    parser.add_argument("--horizon", type=int, default=16, help="pushes in a rollout")
    options = parser.parse_args(words)
    L.seed_everything(0)
    trainer = L.Trainer(devices=1, max_epochs=8, log_every_n_steps=10, limit_train_batches=max(1, options.steps // 8))
    model = PPO(horizon=options.horizon)
    # the worlds are the data; the loader only counts
    trainer.fit(model, DataLoader(torch.arange(options.steps)))
    print(f"episodes last {model.lasted.item():.0f} of {LIMIT} pushes")


if __name__ == "__main__":
    main()
