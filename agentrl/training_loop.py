# Generated from notebooks/9_2_training_loop.ipynb by book/tangle.py; edit the notebook.
"""9.2 The training loop."""

# %% [imports]
import copy
import math
import random
from dataclasses import replace
from functools import partial

import torch

from agentrl.agent import device_of, eval_mode
from agentrl.checks import require, require_choice, require_count
from agentrl.clipped_surrogate import check_advantages, ppo_policy_loss
from agentrl.episodes import MAX_CALL_TOKENS, collate, rollout_batch
from agentrl.group_baselines import group_advantages, rloo_advantages
from agentrl.grpo import RLConfig
from agentrl.gym import FIX_OP, BugFixEnv
from agentrl.policy_gradient import masked_mean
from agentrl.shortcuts import EditBudgetEnv, randomize_names
from agentrl.speed import fill_stats, sampled_stats, token_log_probs, token_stats
from agentrl.variants import cispo_policy_loss, gspo_policy_loss


# %% [make-env]
def make_env(cfg):
    """A fresh environment for one episode under `cfg` (section 9.2)."""
    if cfg.max_edits is None:
        return BugFixEnv(cfg.max_turns, cfg.reward)
    return EditBudgetEnv(cfg.max_turns, cfg.reward, cfg.max_edits)


# %% [sample-groups]
def sample_groups(model, env_factory, tasks, tok, cfg, generator):
    """G attempts at each task, contiguous: `list[Trajectory]` (section 9.2).

    `env_factory()` gives a fresh environment for each episode. The seed of the renaming
    stream is drawn from `generator` first, also without renaming.
    """
    rng = random.Random(torch.randint(2**62, (), generator=generator).item())
    attempts = [task for task in tasks for _ in range(cfg.group_size)]
    if cfg.rename:
        attempts = [randomize_names(task, rng) for task in attempts]
    envs = [env_factory() for _ in attempts]
    require(len(set(map(id, envs))) == len(envs), 'env_factory', env_factory,
            'a function that returns a fresh environment each time')
    return rollout_batch(model, envs, attempts, tok, cfg.max_turns, cfg.temperature,
                         generator)


# %% [behavior]
def behavior_stats(trajs):
    """What the agent did, all per episode: a dict of floats (section 9.2).

    `pass_rate` (submitted, hidden tests pass), `reward` (raw), `reads`, `tests`,
    `edits`, `first_edit_right` (no edit is wrong), `turns`, `length` (policy tokens).
    """
    require(len(trajs) > 0, 'len(trajs)', 0, 'at least 1')
    infos = [t.info for t in trajs]
    totals = {
        'pass_rate': sum(i['submitted'] and i['hidden_pass'] for i in infos),
        'reward': sum(t.reward for t in trajs),
        'reads': sum(i['actions'].count('<call> read </call>') for i in infos),
        'tests': sum(i['actions'].count('<call> test </call>') for i in infos),
        'edits': sum(len(i['ops']) for i in infos),
        'first_edit_right': sum(i['ops'][:1] == [FIX_OP[i['task']]] for i in infos),
        'turns': sum(i['n_turns'] for i in infos),
        'length': sum(t.action_mask.sum().item() for t in trajs)}
    return {name: total / len(trajs) for name, total in totals.items()}


# %% [overlong]
def overlong_penalty(n_turns, cfg):
    """0, then a ramp down to -1 over the last `overlong_buffer` turns, `[B]` (9.5)."""
    early = cfg.max_turns - cfg.overlong_buffer - n_turns
    return (early / cfg.overlong_buffer).clamp(-1, 0)


# %% [advantages-code]
def compute_advantages(batch, cfg):
    """Advantages `[B]` from `batch['rewards']`, group by group (section 9.2).

    With `overlong_buffer` the penalty enters before the baseline and needs
    `batch['n_turns']`. `ValueError`: group size 1, rewards that are not finite.
    """
    rewards = batch['rewards']
    if cfg.overlong_buffer:
        require('n_turns' in batch, 'batch', sorted(batch), "'n_turns' in it")
        rewards = rewards + overlong_penalty(batch['n_turns'].to(rewards), cfg)
    if cfg.adv_mode == 'rloo':
        return rloo_advantages(rewards, cfg.group_size)
    return group_advantages(rewards, cfg.group_size, cfg.adv_mode == 'grpo')


# %% [kl-code]
def kl_penalty(logp, ref_logp, kind='k3'):
    """Per-token estimate of KL(policy, reference), nats (section 9.2).

    With l = log(ref/policy): k1 = -l, k2 = l^2 / 2, k3 = e^l - 1 - l. Tokens sampled
    from the policy; no gradient into the reference.
    """
    require_choice('kind', kind, ('k1', 'k2', 'k3'))
    require(logp.shape == ref_logp.shape, 'ref_logp.shape', tuple(ref_logp.shape),
            f'{tuple(logp.shape)}, the shape of logp')
    log_r = ref_logp.detach() - logp
    if kind == 'k1':
        return -log_r
    if kind == 'k2':
        return log_r.square() / 2
    log_r = log_r.clamp(-20, 20)        # before exp, as in the ratio
    return torch.expm1(log_r) - log_r


# %% [policy-loss]
def policy_loss(logp, old_logp, advantages, mask, cfg):
    """The loss that `cfg` names by `ratio_level`: `(loss, stats)` (section 9.2)."""
    if cfg.ratio_level == 'sequence':
        return gspo_policy_loss(logp, old_logp, advantages, mask, cfg.clip_low,
                                cfg.clip_high)
    norm_const = cfg.norm_const
    if norm_const is None:
        norm_const = len(logp) * cfg.max_turns * MAX_CALL_TOKENS
    if cfg.ratio_level == 'cispo':
        return cispo_policy_loss(logp, old_logp, advantages, mask, cfg.clip_high,
                                 cfg.loss_mode, norm_const)
    return ppo_policy_loss(logp, old_logp, advantages, mask, cfg.clip_low,
                           cfg.clip_high, cfg.loss_mode, norm_const)


# %% [minibatch-loss]
def minibatch_loss(model, data, part, cfg, on_policy=False):
    """Loss and statistics of the rows `part` of `data`: `(loss, stats)` (section 9.2).

    `on_policy`: the policy is still the one that sampled; its log-probs become the old,
    and rows without a gradient are taken from `data['sampled']`.
    """
    ids, mask, advantages, live = (
        data[k][part] for k in ('ids', 'mask', 'advantages', 'live'))
    if on_policy:
        known = fill_stats(model, data, part[live], cfg, data['sampled'])
        data['old'], (logp, entropy) = known[0].detach(), known[:, part]
    else:
        logp, entropy = token_stats(model, ids, mask, cfg.temperature, live)
    loss, stats = policy_loss(logp, data['old'][part], advantages, mask, cfg)
    stats['entropy'] = masked_mean(entropy, mask).item()
    if 'ref' in data:
        kl = masked_kl(logp, data['ref'][part], mask, cfg.kl_kind)
        stats['kl_ref'] = kl.item()
        loss = loss + cfg.kl_coef * kl
    return loss, stats


# %% [masked-kl]
def masked_kl(logp, ref_logp, mask, kind):
    """Mean KL penalty over policy tokens; other tokens never matter (section 9.2)."""
    live = mask.bool()
    logp, ref_logp = (torch.where(live, x, 0.0) for x in (logp, ref_logp))
    return masked_mean(kl_penalty(logp, ref_logp, kind), mask)


# %% [optimizer-step]
def optimizer_step(model, optimizer, loss, cfg):
    """Clip the gradient and step; returns its norm before clipping (section 9.2)."""
    optimizer.zero_grad()
    if loss.requires_grad:
        loss.backward()
    else:
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.max_grad_norm).item()
    if not math.isfinite(norm):
        raise FloatingPointError(f'gradient norm is {norm}; weights left as they were')
    optimizer.step()
    return norm


# %% [update-data]
def update_data(model, batch, advantages, cfg, ref_model=None):
    """What an update takes rows of, checked, on the model's device (section 9.2)."""
    ids, mask = batch['ids'], batch['action_mask']
    check_advantages(ids, advantages)
    require(bool(advantages.isfinite().all()), 'advantages', advantages.tolist(),
            'finite numbers')
    require(cfg.kl_coef == 0 or ref_model is not None, 'ref_model', ref_model,
            f'a model, since kl_coef is {cfg.kl_coef}')
    if cfg.mask_truncated:
        require('submitted' in batch, 'batch', sorted(batch), "'submitted' in it")
        mask = mask * batch['submitted'][:, None].to(mask)
    live = (advantages != 0) | (cfg.kl_coef > 0)
    data = {'ids': ids, 'mask': mask, 'advantages': advantages, 'live': live}
    data = {name: x.to(device_of(model)) for name, x in data.items()}
    if ref_model is not None:
        data['ref'] = token_log_probs(ref_model, data['ids'], data['mask'],
                                      cfg.temperature)
    return data


# %% [rl-update]
def rl_update(model, optimizer, batch, advantages, cfg, ref_model=None, generator=None):
    """`epochs` x `minibatches` optimiser steps on one batch: a dict of stats (9.2).

    Old and reference log-probs are computed here, before the first step, at the
    sampling temperature. Statistics are means weighted by rows; `kl_ref` needs a
    reference. A gradient that is not finite is a `FloatingPointError` before its step.
    The model is in eval mode throughout: dropout would move ratios away from 1.
    """
    data = update_data(model, batch, advantages, cfg, ref_model)
    n_rows, totals = len(data['ids']), {}
    with eval_mode(model):
        for epoch in range(cfg.epochs):
            order = torch.randperm(n_rows, generator=generator).to(data['ids'].device)
            parts = order.tensor_split(min(cfg.minibatches, n_rows))
            if epoch == 0:
                data['sampled'] = sampled_stats(model, data, parts[0], cfg)
            for k, part in enumerate(parts):
                loss, stats = minibatch_loss(model, data, part, cfg,
                                             on_policy=epoch == k == 0)
                stats['grad_norm'] = optimizer_step(model, optimizer, loss, cfg)
                for name, value in stats.items():
                    weight = len(part) / (n_rows * cfg.epochs)
                    totals[name] = totals.get(name, 0.0) + weight * value
    return totals


# %% [groups-of]
def groups_of(trajs, group_size):
    """Contiguous groups of trajectories, as lists."""
    return [trajs[i:i + group_size] for i in range(0, len(trajs), group_size)]


def is_informative(group):
    """Whether the raw rewards of a group differ: else its advantages are 0."""
    return len({t.reward for t in group}) > 1


# %% [sample-step]
def sample_step(model, env_factory, tasks, tok, cfg, generator):
    """The episodes of one step: `(kept, sampled)` (section 9.2).

    A round samples `prompts_per_step` distinct tasks. Dynamic sampling keeps groups
    whose rewards differ, for up to `max_sample_rounds` rounds; otherwise one round.
    """
    require(cfg.prompts_per_step <= len(tasks), 'prompts_per_step',
            cfg.prompts_per_step, f'at most the number of tasks, {len(tasks)}')
    wanted, kept, sampled = cfg.prompts_per_step * cfg.group_size, [], []
    for _ in range(cfg.max_sample_rounds if cfg.dynamic_sampling else 1):
        order = torch.randperm(len(tasks), generator=generator).tolist()
        chosen = [tasks[i] for i in order[:cfg.prompts_per_step]]
        trajs = sample_groups(model, env_factory, chosen, tok, cfg, generator)
        sampled += trajs
        for group in groups_of(trajs, cfg.group_size):
            if is_informative(group) or not cfg.dynamic_sampling:
                kept += group
        if len(kept) >= wanted:
            break
    return kept[:wanted], sampled


# %% [evaluate]
def evaluate(model, tasks, tok, n_samples=1, temperature=1.0, generator=None, cfg=None,
             env_factory=None):
    """Behaviour statistics of `n_samples` episodes a task (section 9.2).

    The environment is that of `cfg` (default `RLConfig()`); the default generator has
    seed 0. Leaves the model's mode and the global random state as they were.
    """
    require_count('n_samples', n_samples)
    require(len(tasks) > 0, 'len(tasks)', 0, 'at least 1')
    cfg = replace(cfg or RLConfig(), group_size=n_samples, temperature=temperature)
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    env_factory = env_factory or partial(make_env, cfg)
    return behavior_stats(
        sample_groups(model, env_factory, tasks, tok, cfg, generator))


# %% [sampling-stats]
def sampling_stats(sampled, cfg):
    """Statistics of all sampled episodes of a step, kept or not (section 9.2)."""
    groups = groups_of(sampled, cfg.group_size)
    dead = sum(not is_informative(group) for group in groups)
    return {'n_episodes': len(sampled), 'zero_adv_frac': dead / len(groups),
            **behavior_stats(sampled)}


def log_line(record):
    """One step of a history as one line of text (section 9.2)."""
    entropy = f"{record['entropy']:.3f}" if 'entropy' in record else '  -  '
    line = (f"step {record['step']:3d} | reward {record['reward']:.3f} | "
            f"reads {record['reads']:.2f} | edits {record['edits']:.2f} | "
            f'entropy {entropy}')
    if 'eval_pass' in record:
        line += f" | held-out {record['eval_pass']:.3f}"
    return line


# %% [check-run]
def check_run(cfg, tasks, steps, log_every=0, eval_tasks=None, eval_every=20):
    """Refuse what cannot run before anything does; returns a copy of `cfg` (9.2)."""
    cfg = replace(cfg)      # checks every field again: a config can be changed
    require(cfg.group_size > 1, 'group_size', cfg.group_size,
            'at least 2: a lone attempt has no baseline')
    require(cfg.prompts_per_step <= len(tasks), 'prompts_per_step',
            cfg.prompts_per_step, f'at most the number of tasks, {len(tasks)}')
    require_count('steps', steps, low=0)
    require_count('log_every', log_every, low=0)
    require_count('eval_every', eval_every)
    require(eval_tasks is None or len(eval_tasks) > 0, 'eval_tasks', eval_tasks,
            'None or at least 1 task')
    return cfg


# %% [train-code]
def train_rl(model, tasks, tok, cfg, steps, log_every=0, eval_tasks=None, eval_every=20,
             env_factory=None, ref_model=None, *, on_step=None):
    """Train `model` in place for `steps` steps; returns the history (section 9.2).

    A dict a step: `step`, `n_episodes`, `zero_adv_frac`, behaviour statistics of all
    sampled episodes, update statistics (absent where nothing was kept), `eval_pass`.
    Equal seeds give equal histories. `ValueError` before any work: group size 1, more
    prompts than tasks. With `kl_coef` and no reference: the weights of now, frozen.
    `on_step(history)` is called after each step; a true result ends the training.
    """
    require(on_step is None or callable(on_step), 'on_step', on_step,
            'None or a function of the history', TypeError)
    cfg = check_run(cfg, tasks, steps, log_every, eval_tasks, eval_every)
    torch.manual_seed(cfg.seed)
    generator = torch.Generator().manual_seed(cfg.seed)
    # foreach: all weights in one call, the same bits
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, foreach=True)
    env_factory = env_factory or partial(make_env, cfg)
    if cfg.kl_coef > 0 and ref_model is None:
        ref_model = copy.deepcopy(model).requires_grad_(False)
    history = []
    for step in range(steps):
        kept, sampled = sample_step(model, env_factory, tasks, tok, cfg, generator)
        record = {'step': step, **sampling_stats(sampled, cfg)}
        if kept:
            batch = collate(kept, tok.pad_id)
            record |= rl_update(model, optimizer, batch, compute_advantages(batch, cfg),
                                cfg, ref_model, generator)
        last = step == steps - 1
        if eval_tasks is not None and (step % eval_every == 0 or last):
            record['eval_pass'] = evaluate(
                model, eval_tasks, tok, 4, cfg.temperature,
                torch.Generator().manual_seed(step), cfg, env_factory)['pass_rate']
        history.append(record)
        if log_every and (step % log_every == 0 or last):
            print(log_line(record))
        if on_step is not None and on_step(history):
            break
    return history


__all__ = [
    "make_env",
    "sample_groups",
    "behavior_stats",
    "overlong_penalty",
    "compute_advantages",
    "kl_penalty",
    "policy_loss",
    "minibatch_loss",
    "masked_kl",
    "optimizer_step",
    "update_data",
    "rl_update",
    "groups_of",
    "is_informative",
    "sample_step",
    "evaluate",
    "sampling_stats",
    "log_line",
    "check_run",
    "train_rl",
]
