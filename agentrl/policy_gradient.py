# Generated from notebooks/06_policy_gradient.ipynb by book/tangle.py; edit the notebook.
"""Policy gradient: log-probabilities, masks, aggregation."""

# %% [imports]
import torch

from agentrl.checks import require, require_choice, require_number


# %% [log-probs]
def selected_log_probs(logits, ids) -> torch.Tensor:
    """Log-probability of each id, `[B, T, V]` and `[B, T]` -> `[B, T]` (section 6)."""
    require(logits.shape[:-1] == ids.shape, 'ids.shape', tuple(ids.shape),
            f'{tuple(logits.shape[:-1])}, one id for each row of logits')
    require(ids.dtype == torch.int64, 'ids.dtype', ids.dtype, 'torch.int64')
    low, high = ids.aminmax() if ids.numel() else (0, 0)
    require(0 <= low and high < logits.shape[-1], 'ids: smallest and largest',
            (int(low), int(high)), f'0 to {logits.shape[-1] - 1}')
    log_probs = torch.log_softmax(logits, -1)
    return log_probs.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


# %% [masked-mean]
def masked_mean(x, mask, dim=None) -> torch.Tensor:
    """Mean of `x` where `mask` is 1; 0 for an empty mask (section 6).

    Values at mask 0 never matter, not even inf or NaN. `dim=None`: over everything.
    """
    require(x.shape == mask.shape, 'mask.shape', tuple(mask.shape), tuple(x.shape))
    total, count = torch.where(mask.bool(), x, 0.0), mask.bool().to(x.dtype)
    if dim is None:
        return total.sum() / count.sum().clamp(min=1)
    return total.sum(dim) / count.sum(dim).clamp(min=1)


# %% [entropy]
def entropy_from_logits(logits) -> torch.Tensor:
    """Entropy of each distribution: `[B, T, V]` -> `[B, T]`, nats (section 6)."""
    log_probs = torch.log_softmax(logits, -1)
    finite = log_probs.masked_fill(log_probs == -torch.inf, 0.0)
    return -(log_probs.exp() * finite).sum(-1)


# %% [aggregate]
LOSS_MODES = ('token_mean', 'seq_mean_token_mean', 'seq_mean_token_sum', 'constant')


def aggregate_loss(per_token, mask, mode, norm_const=None) -> torch.Tensor:
    """One loss from per-token losses `[B, T]` and a mask `[B, T]` (section 6).

    'token_mean', 'seq_mean_token_mean', 'seq_mean_token_sum', or 'constant', the sum
    over `norm_const`. Sequence means leave out rows without policy tokens.
    """
    require_choice('mode', mode, LOSS_MODES)
    require(per_token.shape == mask.shape, 'mask.shape', tuple(mask.shape),
            tuple(per_token.shape))
    if mode == 'constant':
        require(norm_const is not None, 'norm_const', norm_const, 'a number above 0')
        require_number('norm_const', norm_const, 0, open_low=True)
    if mode == 'token_mean':
        return masked_mean(per_token, mask)
    if mode == 'seq_mean_token_mean':
        rows = masked_mean(per_token, mask, dim=1)
    else:
        rows = torch.where(mask.bool(), per_token, 0.0).sum(1)
    if mode == 'constant':
        return rows.sum() / norm_const
    return masked_mean(rows, mask.bool().any(1))


__all__ = [
    "selected_log_probs",
    "masked_mean",
    "entropy_from_logits",
    "LOSS_MODES",
    "aggregate_loss",
]
