# Generated from notebooks/9_5_variants.ipynb by book/tangle.py; edit the notebook.
"""9.5 What each variant changes."""

# %% [imports]
import torch

from agentrl.checks import require_number
from agentrl.clipped_surrogate import check_advantages, log_ratio, ratio_stats
from agentrl.policy_gradient import aggregate_loss, masked_mean


# %% [variants]
VARIANTS = {
    'grpo': {'adv_mode': 'grpo', 'loss_mode': 'seq_mean_token_mean', 'kl_coef': 0.04},
    'dr_grpo': {'adv_mode': 'mean', 'loss_mode': 'constant'},
    'dapo': {'adv_mode': 'grpo', 'loss_mode': 'token_mean', 'clip_high': 0.28,
             'dynamic_sampling': True, 'overlong_buffer': 2},
    'rloo': {'adv_mode': 'rloo', 'loss_mode': 'seq_mean_token_sum', 'minibatches': 1},
    'gspo': {'ratio_level': 'sequence', 'clip_low': 3e-4, 'clip_high': 4e-4},
}


# %% [gspo-code]
def gspo_policy_loss(logp, old_logp, advantages, mask, clip_low=3e-4, clip_high=4e-4,
                     ) -> tuple[torch.Tensor, dict[str, float]]:
    """One length-normalised ratio per sequence; `[B, T]`, advantages `[B]` (9.5, GSPO).

    Returns `(loss, stats)`; the mean is over rows with policy tokens, `clip_frac`,
    `ratio_min` and `ratio_max` are of sequences, the gradient flows through the ratio.
    """
    check_advantages(logp, advantages)
    require_number('clip_low', clip_low, 0)
    require_number('clip_high', clip_high, 0)
    log_r, a = log_ratio(logp, old_logp, mask), advantages.detach()
    rows = mask.bool().any(1)
    ratio = masked_mean(log_r, mask, dim=1).exp()       # geometric mean of token ratios
    clipped = ((ratio > 1 + clip_high) & (a > 0)) | ((ratio < 1 - clip_low) & (a < 0))
    surrogate = torch.min(ratio * a, ratio.clamp(1 - clip_low, 1 + clip_high) * a)
    loss = masked_mean(-surrogate, rows)
    return loss, ratio_stats(log_r, ratio, clipped, mask, rows)


# %% [cispo]
def cispo_policy_loss(logp, old_logp, advantages, mask, clip_high=0.2,
                      loss_mode='token_mean', norm_const=None,
                      ) -> tuple[torch.Tensor, dict[str, float]]:
    """A clipped ratio as a constant weight of log-probs `[B, T]` (exercise 4, CISPO).

    Returns `(loss, stats)`; no lower bound; `clip_frac` counts policy tokens with a
    ratio above `1 + clip_high`, whatever the sign of their advantage.
    """
    check_advantages(logp, advantages)
    require_number('clip_high', clip_high, 0)
    log_r, a = log_ratio(logp, old_logp, mask), advantages.detach()[:, None]
    ratio = log_r.detach().exp()
    weight = ratio.clamp(max=1 + clip_high) * a
    loss = aggregate_loss(-weight * logp, mask, loss_mode, norm_const)
    return loss, ratio_stats(log_r, ratio, ratio > 1 + clip_high, mask)


__all__ = [
    "VARIANTS",
    "gspo_policy_loss",
    "cispo_policy_loss",
]
