# Generated from notebooks/07_group_baselines.ipynb by book/tangle.py; edit the notebook.
"""Group baselines."""

# %% [imports]
import torch

from agentrl.checks import require, require_count


# %% [groups]
_TOO_LARGE = 1e18           # in float32, squares of such rewards no longer add up


def _groups(rewards, group_size):
    """Rewards `[B]` as `[groups, G]`, checked."""
    require_count('group_size', group_size, low=2)
    if not torch.is_tensor(rewards):        # None: a reward that never came
        rewards = torch.tensor([torch.nan if r is None else r for r in rewards])
    if not rewards.is_floating_point():     # passed or not: 1.0 or 0.0
        rewards = rewards.float()
    require(rewards.dim() == 1, 'rewards.shape', tuple(rewards.shape), '[B]')
    for i, reward in enumerate(rewards.tolist()):
        require(abs(reward) < _TOO_LARGE, f'reward of episode {i}', reward,
                f'a finite number, below {_TOO_LARGE:g} in size')   # NaN is not below
    require(len(rewards) > 0 and len(rewards) % group_size == 0, 'len(rewards)',
            len(rewards), f'a positive multiple of group_size={group_size}')
    return rewards.view(-1, group_size)


# %% [zero-where-equal]
def _zero_where_equal(advantages, groups):
    """A group with one reward value says nothing: its advantages are exactly 0."""
    equal = groups.amax(1, keepdim=True) == groups.amin(1, keepdim=True)
    return advantages.masked_fill(equal, 0.0).flatten()


# %% [group-advantages]
def group_advantages(rewards, group_size, normalize_std=True) -> torch.Tensor:
    """Reward minus the group's mean, over its std: `[B]` -> `[B]` (section 7).

    Groups are contiguous; the std is unbiased, plus 1e-6; `normalize_std=False` leaves
    it out (Dr. GRPO). `ValueError`: group size 1, rewards that are not finite.
    """
    groups = _groups(rewards, group_size)
    advantages = groups - groups.mean(1, keepdim=True)
    if normalize_std:
        advantages = advantages / (groups.std(1, keepdim=True) + 1e-6)
    return _zero_where_equal(advantages, groups)


# %% [rloo]
def rloo_advantages(rewards, group_size) -> torch.Tensor:
    """Reward minus the mean of the group's others: `[B]` -> `[B]` (section 7, RLOO)."""
    groups = _groups(rewards, group_size)
    others = (groups.sum(1, keepdim=True) - groups) / (group_size - 1)
    return _zero_where_equal(groups - others, groups)


__all__ = [
    "group_advantages",
    "rloo_advantages",
]
