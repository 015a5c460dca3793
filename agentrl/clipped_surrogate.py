# Generated from notebooks/08_clipped_surrogate.ipynb by book/tangle.py; edit the notebook.
"""The clipped surrogate."""

# %% [imports]
import torch

from agentrl.checks import require, require_number
from agentrl.policy_gradient import aggregate_loss, masked_mean


# %% [log-ratio]
def log_ratio(logp, old_logp, mask) -> torch.Tensor:
    """Log of new over old probability, `[B, T]`: 0 at mask 0, within 20 (section 8).

    The mask comes first: `exp` of an unmasked 200 is inf, and its gradient NaN even
    where a later mask multiplies it by 0.
    """
    for name, x in (('old_logp', old_logp), ('mask', mask)):
        require(x.shape == logp.shape, f'{name}.shape', tuple(x.shape),
                f'{tuple(logp.shape)}, the shape of logp')
    return torch.where(mask.bool(), logp - old_logp.detach(), 0.0).clamp(-20, 20)


# %% [check]
def check_advantages(logp, advantages) -> None:
    """Raise unless there is one advantage for each row of `logp` (section 8)."""
    require(advantages.shape == logp.shape[:1], 'advantages.shape',
            tuple(advantages.shape), f'({len(logp)},), one for each row')


# %% [stats]
def ratio_stats(log_r, ratio, clipped, mask, ratio_mask=None) -> dict[str, float]:
    """Statistics over policy tokens: how far the policy moved, how much the clip acts.

    `clipped` and `ratio` live on `ratio_mask` (default: `mask`; sequences in GSPO);
    `approx_kl` is k3 of KL(old, new) per token. All are Python floats (section 8).
    """
    live = (mask if ratio_mask is None else ratio_mask).bool()
    ratio = ratio.detach()[live] if live.any() else torch.ones(1)
    k3 = torch.expm1(log_r.detach()) - log_r.detach()
    return {'clip_frac': masked_mean(clipped.float(), live).item(),
            'approx_kl': masked_mean(k3, mask).item(),
            'ratio_min': ratio.min().item(), 'ratio_max': ratio.max().item()}


# %% [ppo]
def ppo_policy_loss(logp, old_logp, advantages, mask, clip_low=0.2, clip_high=0.2,
                    loss_mode='token_mean', norm_const=None,
                    ) -> tuple[torch.Tensor, dict[str, float]]:
    """PPO's clipped surrogate on tokens `[B, T]`, advantages `[B]` (section 8).

    Returns `(loss, stats)`. A token counts in `clip_frac` where the clip stops its
    gradient: above the range with A > 0, or below it with A < 0.
    """
    require_number('clip_low', clip_low, 0)
    require_number('clip_high', clip_high, 0)
    check_advantages(logp, advantages)
    log_r, a = log_ratio(logp, old_logp, mask), advantages.detach()[:, None]
    ratio = log_r.exp()
    clipped = ((ratio > 1 + clip_high) & (a > 0)) | ((ratio < 1 - clip_low) & (a < 0))
    surrogate = torch.min(ratio * a, ratio.clamp(1 - clip_low, 1 + clip_high) * a)
    loss = aggregate_loss(-surrogate, mask, loss_mode, norm_const)
    return loss, ratio_stats(log_r, ratio, clipped, mask)


__all__ = [
    "log_ratio",
    "check_advantages",
    "ratio_stats",
    "ppo_policy_loss",
]
