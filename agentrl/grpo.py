# Generated from notebooks/9_1_grpo.ipynb by book/tangle.py; edit the notebook.
"""9.1 GRPO in DeepSeekMath."""

# %% [imports]
from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from agentrl.checks import require, require_choice, require_count, require_number
from agentrl.policy_gradient import LOSS_MODES


# %% [config-code]
@dataclass(frozen=True)
class RLConfig:
    """Every choice of a critic-free run; the defaults are this book's (section 9.1).

    Frozen: `dataclasses.replace` makes a changed copy. A value that no run accepts is a
    `ValueError` or `TypeError` that names its field, from either of them.
    """
    # Whose attempts does a step collect?
    group_size: int = 8             # G: attempts that are compared with each other
    prompts_per_step: int = 8       # P: different tasks, so a step has P x G episodes
    temperature: float = 1.0        # divides the logits, in sampling and in the loss
    max_turns: int = 6
    # What may an attempt do, and what is it paid for?
    rename: bool = True             # every attempt meets its task under a random name
    max_edits: int | None = 1       # None: as many as there are turns
    reward: str | Callable[..., float] = 'hidden'   # 'public'; a function of the info
    # How good was it, beside its group?
    adv_mode: str = 'grpo'          # 'mean': no std; 'rloo': mean of the others
    overlong_buffer: int = 0        # so many last turns cost up to 1; 0: none do
    mask_truncated: bool = False    # whoever never submits is left out of the loss
    dynamic_sampling: bool = False  # sample on until enough groups disagree, in
    max_sample_rounds: int = 4      # at most so many rounds
    # How far may the weights move on it?
    ratio_level: str = 'token'      # 'sequence' is GSPO's; 'cispo'
    clip_low: float = 0.2
    clip_high: float = 0.2
    loss_mode: str = 'token_mean'   # how tokens become one loss: lesson 6
    norm_const: float | None = None     # None: the longest these rows can be
    kl_coef: float = 0.0            # 0: no reference policy
    kl_kind: str = 'k3'
    lr: float = 1e-3
    epochs: int = 1                 # passes over the step's episodes,
    minibatches: int = 2            # each with so many optimiser steps
    max_grad_norm: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):      # numpy's numbers become Python's
            value = getattr(self, field.name)
            if isinstance(value, np.generic):
                object.__setattr__(self, field.name, value.item())
        _check_config(self)


# %% [config-allowed]
_CHOICES = {'adv_mode': ('grpo', 'mean', 'rloo'), 'loss_mode': LOSS_MODES,
            'ratio_level': ('token', 'sequence', 'cispo'),
            'kl_kind': ('k1', 'k2', 'k3')}
_FLAGS = ('rename', 'mask_truncated', 'dynamic_sampling')
_COUNTS = {'group_size': 1, 'prompts_per_step': 1, 'max_turns': 1,
           'max_sample_rounds': 1, 'overlong_buffer': 0, 'epochs': 1,
           'minibatches': 1, 'seed': 0}
_ABOVE_ZERO = ('lr', 'max_grad_norm')
_AT_LEAST = {'clip_low': 0, 'clip_high': 0, 'kl_coef': 0,
             'temperature': 1e-6}       # below, float32 cannot hold the logits
_MOST_EPISODES = 10 ** 6                # in one step: memory ends before


# %% [check-config-code]
def _check_config(cfg):
    """Raise for the first field with a value that no run accepts (section 9.1)."""
    for name, allowed in _CHOICES.items():
        require_choice(name, getattr(cfg, name), allowed)
    for name in _FLAGS:
        value = getattr(cfg, name)
        require(isinstance(value, bool), name, value, 'True or False', TypeError)
    for name, low in _COUNTS.items():
        require_count(name, getattr(cfg, name), low)
    for name in _ABOVE_ZERO:
        require_number(name, getattr(cfg, name), 0, open_low=True)
    for name, low in _AT_LEAST.items():
        require_number(name, getattr(cfg, name), low)
    if cfg.max_edits is not None:
        require_count('max_edits', cfg.max_edits, 0)
    if cfg.norm_const is not None:
        require_number('norm_const', cfg.norm_const, 0, open_low=True)
    require(callable(cfg.reward) or cfg.reward in ('hidden', 'public'), 'reward',
            cfg.reward, "'hidden', 'public' or a callable")
    _check_limits(cfg)


# %% [check-limits]
def _check_limits(cfg):
    """Raise for counts that are fine alone, but not together (section 9.1)."""
    require(cfg.overlong_buffer <= cfg.max_turns, 'overlong_buffer',
            cfg.overlong_buffer, f'at most max_turns={cfg.max_turns}')
    episodes = cfg.prompts_per_step * cfg.group_size
    require(episodes <= _MOST_EPISODES, 'prompts_per_step x group_size', episodes,
            f'at most {_MOST_EPISODES} episodes per step')
    require(cfg.seed < 2 ** 64, 'seed', cfg.seed, 'an integer below 2**64')


__all__ = [
    "RLConfig",
]
