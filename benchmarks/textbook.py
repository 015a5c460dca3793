"""The loop as a textbook writes it: what the lessons' shortcuts are measured against.

The whole context is read again for every sampled token, every row has a forward and a
backward pass in every minibatch, and old log-probs come from a pass of their own.
"""
import torch

import agentrl as arl
from agentrl.training_loop import masked_kl, update_data


class TextbookPolicy(arl.Policy):
    """The same network as another class, so that rollouts take the plain path."""


def textbook_update(model, optimizer, batch, advantages, cfg, ref_model=None,
                    generator=None):
    """`agentrl.rl_update` without its shortcuts; same arguments, same result."""
    data = update_data(model, batch, advantages, cfg, ref_model)
    ids, totals = data['ids'], {}
    with arl.agent.eval_mode(model):
        order = torch.randperm(len(ids), generator=generator)
        with torch.no_grad():
            logits = token_logits(model, ids, cfg.temperature)
            data['old'] = arl.selected_log_probs(logits, ids[:, 1:])
        for epoch in range(cfg.epochs):
            if epoch:
                order = torch.randperm(len(ids), generator=generator)
            for part in order.tensor_split(min(cfg.minibatches, len(ids))):
                loss, stats = _loss(model, {k: x[part] for k, x in data.items()}, cfg)
                optimizer.zero_grad()
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(),
                                                      cfg.max_grad_norm)
                stats['grad_norm'] = norm.item()
                optimizer.step()
                for name, value in stats.items():
                    weight = len(part) / (len(ids) * cfg.epochs)
                    totals[name] = totals.get(name, 0.0) + weight * value
    return totals


def token_logits(model, ids, temperature):
    """Logits of each token after the first, `[B, T-1, V]`."""
    return model(ids)[:, :-1] / temperature


def _loss(model, rows, cfg):
    """Loss and statistics of some rows."""
    logits = token_logits(model, rows['ids'], cfg.temperature)
    logp = arl.selected_log_probs(logits, rows['ids'][:, 1:])
    loss, stats = arl.policy_loss(logp, rows['old'], rows['advantages'], rows['mask'],
                                  cfg)
    entropy = arl.entropy_from_logits(logits.detach())
    stats['entropy'] = arl.masked_mean(entropy, rows['mask']).item()
    if 'ref' in rows:
        kl = masked_kl(logp, rows['ref'], rows['mask'], cfg.kl_kind)
        stats['kl_ref'] = kl.item()
        loss = loss + cfg.kl_coef * kl
    return loss, stats
