"""What the tests of the training loop share: small settings, batches, updates."""

import math
import sys
from functools import partial
from pathlib import Path

import torch
from rollouts import gen

import agentrl as arl

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from textbook import textbook_update  # noqa: E402

INF, NAN = math.inf, math.nan
TRAIN = arl.make_tasks("train")
HELDOUT = arl.make_tasks("heldout")
UPDATE = {"clip_frac", "approx_kl", "ratio_min", "ratio_max", "grad_norm", "entropy"}
BEHAVIOR = {
    "pass_rate",
    "reward",
    "reads",
    "tests",
    "edits",
    "first_edit_right",
    "turns",
    "length",
}
MODES = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant")


def turns_used(info):
    """A reward that differs from episode to episode."""
    return info["n_turns"] / 10


def config(**fields):
    """A small setting whose rewards vary."""
    small = {"group_size": 4, "prompts_per_step": 3, "reward": turns_used}
    return arl.RLConfig(**{**small, **fields})


def factory(cfg):
    return partial(arl.make_env, cfg)


def hand_batch(vocab_size, rows=8, length=7, seed=0, dtype=torch.float32):
    """Random ids under a random mask, ragged as padded rows are; rewards, turns."""
    g = gen(seed)
    ids = torch.randint(vocab_size, (rows, length), generator=g)
    mask = (torch.rand(rows, length - 1, generator=g) < 0.6).float()
    mask[-1, 2:] = 0
    mask[0] = 0
    return {
        "ids": ids,
        "action_mask": mask,
        "rewards": torch.rand(rows, generator=g),
        "n_turns": torch.randint(1, 7, (rows,), generator=g).float(),
        "submitted": torch.rand(rows, generator=g) < 0.7,
    }


def update(model, cfg, batch, advantages=None, optimizer=None, **options):
    """One `rl_update` with Adam and a generator of seed 0."""
    if advantages is None:
        advantages = arl.compute_advantages(batch, cfg)
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=cfg.lr)
    options = {"generator": gen(), **options}
    return arl.rl_update(model, optimizer, batch, advantages, cfg, **options)


def textbook(model, cfg, batch, advantages, optimizer, ref_model=None):
    """The same update as a textbook writes it: no work is saved."""
    return textbook_update(model, optimizer, batch, advantages, cfg, ref_model, gen())


def train(model, tok, cfg, n=2, **options):
    return arl.train_rl(model, TRAIN, tok, cfg, n, **options)
