"""The loop as a textbook writes it: what the book's own is measured against.

The whole context is read again for every sampled token, every row has a forward and a
backward pass in every minibatch, and old log-probs come from a pass of their own. The
tests compare `agentrl.rl_update` with it.
"""
import torch

import agentrl as arl


class TextbookPolicy(arl.Policy):
    """The same network with a forward of its own: it has no fast form."""

    def forward(self, ids):
        return super().forward(ids)


def textbook_update(model, optimizer, batch, advantages, cfg, ref_model=None,
                    generator=None):
    """`agentrl.rl_update` without its shortcuts; same arguments, same result."""
    ids, mask = batch['ids'], batch['action_mask']
    if cfg.mask_truncated:
        mask = mask * batch['submitted'][:, None]
    data, steps = {'ids': ids, 'mask': mask, 'advantages': advantages}, []
    with arl.eval_mode(model):
        with torch.no_grad():
            data['old'] = log_probs(model, ids, cfg)[0]
            if ref_model is not None:
                data['ref'] = log_probs(ref_model, ids, cfg)[0]
        for _ in range(cfg.epochs):
            order = torch.randperm(len(ids), generator=generator)
            for part in order.tensor_split(min(cfg.minibatches, len(ids))):
                rows = {name: x[part] for name, x in data.items()}
                loss, stats = _loss(model, rows, cfg)
                optimizer.zero_grad()
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(),
                                                      cfg.max_grad_norm)
                stats['grad_norm'] = norm.item()
                optimizer.step()
                steps.append((rows['mask'].any(1).sum().item(), stats))
    count = sum(n for n, _ in steps)        # rows with policy tokens, step by step
    return {name: sum(n * stats[name] for n, stats in steps) / count
            for name in steps[0][1]}


def log_probs(model, ids, cfg):
    """Log-probs of all tokens but the first, `[B, T-1]`; logits `[B, T-1, V]`."""
    logits = model(ids)[:, :-1] / cfg.temperature
    return arl.selected_log_probs(logits, ids[:, 1:]), logits


def _loss(model, rows, cfg):
    """Loss and statistics of some rows."""
    logp, logits = log_probs(model, rows['ids'], cfg)
    loss, stats = arl.policy_loss(logp, rows['old'], rows['advantages'], rows['mask'],
                                  cfg)
    entropy = arl.entropy_from_logits(logits.detach())
    stats['entropy'] = arl.masked_mean(entropy, rows['mask']).item()
    if 'ref' in rows:
        kl = arl.kl_penalty(logp, rows['ref'], cfg.kl_kind)
        kl = arl.masked_mean(kl, rows['mask'])
        stats['kl_ref'], loss = kl.item(), loss + cfg.kl_coef * kl
    return loss, stats
