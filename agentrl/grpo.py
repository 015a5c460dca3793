# Generated from notebooks/9_1_grpo.ipynb by book/tangle.py; edit the notebook.
"""9.1 GRPO in DeepSeekMath."""

# %% [imports]
from dataclasses import dataclass

from agentrl.checks import require, require_choice, require_count, require_number
from agentrl.policy_gradient import LOSS_MODES


# %% [config-code]
@dataclass
class RLConfig:
    """Every choice of a critic-free run; the defaults are this book's (section 9.1)."""
    # sampling
    group_size: int = 8             # G, attempts a task
    prompts_per_step: int = 8       # P, distinct tasks a step
    temperature: float = 1.0
    max_turns: int = 6
    # environment
    rename: bool = True             # a random function name each episode
    max_edits: int | None = 1       # None: no limit
    reward: object = 'hidden'       # 'hidden', 'public' or a function of the final info
    # advantages
    adv_mode: str = 'grpo'          # 'grpo', 'mean', 'rloo'
    overlong_buffer: int = 0        # a penalty from 0 to -1 over the last turns
    mask_truncated: bool = False    # episodes without submit leave the loss
    dynamic_sampling: bool = False  # drop groups with a single reward value
    max_sample_rounds: int = 4
    # loss and update
    ratio_level: str = 'token'      # 'token', 'sequence', 'cispo'
    clip_low: float = 0.2
    clip_high: float = 0.2
    loss_mode: str = 'token_mean'
    norm_const: float | None = None  # of 'constant'; None: rows x turns x tokens a call
    kl_coef: float = 0.0
    kl_kind: str = 'k3'
    lr: float = 1e-3
    epochs: int = 1
    minibatches: int = 2
    max_grad_norm: float = 1.0
    seed: int = 0

    def __post_init__(self):
        check_config(self)


# %% [config-allowed]
_CHOICES = {'adv_mode': ('grpo', 'mean', 'rloo'), 'loss_mode': LOSS_MODES,
            'ratio_level': ('token', 'sequence', 'cispo'),
            'kl_kind': ('k1', 'k2', 'k3')}
_FLAGS = ('rename', 'mask_truncated', 'dynamic_sampling')
_COUNTS = {'group_size': 1, 'prompts_per_step': 1, 'max_turns': 1,
           'max_sample_rounds': 1, 'overlong_buffer': 0, 'epochs': 1,
           'minibatches': 1, 'seed': 0}
_ABOVE_ZERO = ('temperature', 'lr', 'max_grad_norm')
_FROM_ZERO = ('clip_low', 'clip_high', 'kl_coef')


# %% [check-config-code]
def check_config(cfg):
    """Raise for the first field with a value that no run accepts (section 9.1)."""
    for name, allowed in _CHOICES.items():
        require_choice(name, getattr(cfg, name), allowed)
    for name in _FLAGS:
        value = getattr(cfg, name)
        require(isinstance(value, bool), name, value, 'True or False', TypeError)
    for name, low in _COUNTS.items():
        require_count(name, getattr(cfg, name), low)
    for name in _ABOVE_ZERO + _FROM_ZERO:
        require_number(name, getattr(cfg, name), 0, open_low=name in _ABOVE_ZERO)
    if cfg.max_edits is not None:
        require_count('max_edits', cfg.max_edits, 0)
    if cfg.norm_const is not None:
        require_number('norm_const', cfg.norm_const, 0, open_low=True)
    require(cfg.overlong_buffer <= cfg.max_turns, 'overlong_buffer',
            cfg.overlong_buffer, f'at most max_turns={cfg.max_turns}')
    require(callable(cfg.reward) or cfg.reward in ('hidden', 'public'), 'reward',
            cfg.reward, "'hidden', 'public' or a callable")


__all__ = [
    "RLConfig",
    "check_config",
]
