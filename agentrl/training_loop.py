# Generated from notebooks/9_2_training_loop.ipynb by book/tangle.py; edit the notebook.
"""9.2 The training loop."""

# %% [imports]
import copy
import math
import random
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch

from agentrl.agent import device_of, eval_mode
from agentrl.checks import require, require_choice, require_count
from agentrl.clipped_surrogate import check_advantages, ppo_policy_loss
from agentrl.episodes import MAX_CALL_TOKENS, MAX_EPISODES, collate, rollout_batch
from agentrl.group_baselines import group_advantages, rloo_advantages
from agentrl.grpo import RLConfig
from agentrl.gym import BugFixEnv, Task
from agentrl.policy_gradient import masked_mean
from agentrl.shortcuts import EditBudgetEnv, randomize_names
from agentrl.speed import TokenRows, read_tokens, sampled_tokens, token_log_probs
from agentrl.variants import cispo_policy_loss, gspo_policy_loss


# %% [make-env]
def make_env(cfg):
    """A fresh environment for one episode under `cfg` (section 9.2)."""
    rules = {'max_turns': cfg.max_turns, 'reward': cfg.reward}
    if cfg.max_edits is None:
        return BugFixEnv(**rules)
    return EditBudgetEnv(**rules, max_edits=cfg.max_edits)


# %% [sample-groups]
def sample_groups(model, env_factory, tasks, tok, cfg, generator):
    """G attempts at each task, contiguous: `list[Trajectory]` (section 9.2).

    `env_factory()` gives a fresh environment for each episode (`Env` says what it must
    do). The seed of the renaming stream comes from `generator` first, in any case.
    """
    names = random.Random(torch.randint(2**62, (), generator=generator).item())
    attempts, envs = [], []
    for task in tasks:
        for _ in range(_checked_size(cfg, tasks)):
            attempts.append(_renamed(task, names) if cfg.rename else task)
            envs.append(env_factory())
    require(len(set(map(id, envs))) == len(envs), 'env_factory', env_factory,
            'a function that returns a fresh environment each time')
    return rollout_batch(model, envs, attempts, tok, cfg.max_turns, cfg.temperature,
                         generator)


# %% [rename]
def _renamed(task, rng):
    """The task under a random name; refuses tasks that have none to change."""
    require(isinstance(task, Task), 'rename', True,
            f'False for tasks that are no Task of the gym, such as {task!r}')
    return randomize_names(task, rng)


def _checked_size(cfg, tasks):
    """The group size, if so many episodes can be played at once."""
    require(cfg.group_size * len(tasks) <= MAX_EPISODES, 'group_size', cfg.group_size,
            f'at most {MAX_EPISODES // len(tasks)} with {len(tasks)} tasks at once')
    return cfg.group_size


# %% [behavior]
def _episode_stats(traj):
    """The figures of one episode, of those that its final info allows (section 9.2)."""
    info = traj.info
    stats = {'pass_rate': info['submitted'] and info['hidden_pass']
             if {'submitted', 'hidden_pass'} <= info.keys() else traj.reward > 0,
             'reward': traj.reward}
    if 'actions' in info:
        stats['reads'] = info['actions'].count('<call> read </call>')
        stats['tests'] = info['actions'].count('<call> test </call>')
    if 'ops' in info:
        stats['edits'] = len(info['ops'])
    if {'ops', 'fix_op'} <= info.keys():
        stats['first_edit_right'] = info['ops'][:1] == [info['fix_op']]
    mask = traj.action_mask
    calls = (mask[1:] > mask[:-1]).sum() + mask[:1].sum()
    stats['turns'] = info['n_turns'] if 'n_turns' in info else calls.item()
    return {**stats, 'length': mask.sum().item()}


# %% [behaviour-mean]
def behavior_stats(trajs):
    """What the agent did, all per episode: a dict of floats (section 9.2).

    `pass_rate` (submitted, hidden tests pass), `reward` (raw), `reads`, `tests`,
    `edits`, `first_edit_right` (no edit is wrong), `turns`, `length` (policy tokens).
    """
    require(len(trajs) > 0, 'len(trajs)', 0, 'at least 1')
    found = [_episode_stats(traj) for traj in trajs]
    return {name: sum(stats[name] for stats in found) / len(found)
            for name in found[0] if all(name in stats for stats in found)}


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
    rewards = torch.as_tensor(batch['rewards'])
    if not rewards.is_floating_point():
        rewards = rewards.float()
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
    tensors = logp, old_logp, advantages, mask
    if cfg.ratio_level == 'sequence':
        return gspo_policy_loss(*tensors, cfg.clip_low, cfg.clip_high)
    norm_const = cfg.norm_const
    if norm_const is None:
        norm_const = len(logp) * cfg.max_turns * MAX_CALL_TOKENS
    if cfg.ratio_level == 'cispo':
        return cispo_policy_loss(*tensors, cfg.clip_high, cfg.loss_mode, norm_const)
    return ppo_policy_loss(*tensors, cfg.clip_low, cfg.clip_high, cfg.loss_mode,
                           norm_const)


# %% [batch]
@dataclass(frozen=True)
class UpdateBatch(TokenRows):
    """The rows of an update, on the model's device (section 9.2)."""
    advantages: torch.Tensor    # [B]


def update_batch(model, batch, advantages, cfg, ref_model=None):
    """A checked `UpdateBatch` from a `collate`d batch (section 9.2)."""
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
    ids, mask, live, advantages = (
        x.to(device_of(model)) for x in (ids, mask, live, advantages))
    return UpdateBatch(ids, mask, live, cfg.temperature, advantages)


# %% [plan]
def _minibatch_rows(batch, cfg, generator=None):
    """The rows of every step, `epochs` x `minibatches` of them, none empty (9.2)."""
    n_rows, plan = len(batch.ids), []
    for _ in range(cfg.epochs):
        order = torch.randperm(n_rows, generator=generator).to(batch.ids.device)
        plan += order.tensor_split(min(cfg.minibatches, n_rows))
    return plan


def _row_means(steps):
    """Means of `[(stats, number of rows), ...]`, weighted by rows (section 9.2)."""
    total, means = sum(n for _, n in steps), {}
    if total == 0:          # no step had a policy token: each counts alike
        steps, total = [(stats, 1) for stats, _ in steps], len(steps)
    for stats, n in steps:
        for name, value in stats.items():
            means[name] = means.get(name, 0.0) + n / total * value
    return means


# %% [optimizer-step]
def optimizer_step(model, optimizer, loss, cfg):
    """Clip the gradient and step; returns its norm before clipping (section 9.2)."""
    optimizer.zero_grad()
    if loss.requires_grad:
        loss.backward()
    else:
        for parameter in filter(lambda p: p.requires_grad, model.parameters()):
            parameter.grad = torch.zeros_like(parameter)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.max_grad_norm).item()
    for name, value in (('gradient norm', norm), ('loss', loss.item())):
        if not math.isfinite(value):
            raise FloatingPointError(f'{name} is {value}; weights left as they were')
    optimizer.step()
    return norm


# %% [rl-update]
def rl_update(model, optimizer, batch, advantages, cfg, ref_model=None, generator=None):
    """`epochs` x `minibatches` optimiser steps on one batch: a dict of stats (9.2).

    Statistics are means over rows with policy tokens; `kl_ref` needs a reference.
    A loss or gradient that is not finite: `FloatingPointError`, before its step.
    """
    data, steps = update_batch(model, batch, advantages, cfg, ref_model), []
    plan = _minibatch_rows(data, cfg, generator)
    with eval_mode(model):          # dropout would move ratios away from 1
        if ref_model is not None:
            ref = token_log_probs(ref_model, data.ids, data.mask, cfg.temperature)
        old, first = sampled_tokens(model, data, plan[0])
        for n, rows in enumerate(plan):
            part = data.rows(rows)
            logp, entropy = first if n == 0 else read_tokens(model, part)
            loss, stats = policy_loss(logp, old[rows], part.advantages, part.mask, cfg)
            stats['entropy'] = masked_mean(entropy, part.mask).item()
            if ref_model is not None:
                kl = masked_mean(kl_penalty(logp, ref[rows], cfg.kl_kind), part.mask)
                stats['kl_ref'], loss = kl.item(), loss + cfg.kl_coef * kl
            stats['grad_norm'] = optimizer_step(model, optimizer, loss, cfg)
            steps.append((stats, int(part.mask.any(1).sum())))
    return _row_means(steps)


# %% [groups-of]
def groups_of(trajs, group_size):
    """Contiguous groups of trajectories, as lists."""
    return [trajs[i:i + group_size] for i in range(0, len(trajs), group_size)]


def is_informative(group):
    """Whether the raw rewards of a group differ: else its advantages are 0."""
    return len({t.reward for t in group}) > 1


def _check_prompts(cfg, tasks):
    """More prompts than tasks cannot be distinct."""
    require(cfg.prompts_per_step <= len(tasks), 'prompts_per_step',
            cfg.prompts_per_step, f'at most the number of tasks, {len(tasks)}')


# %% [sample-step]
def sample_step(model, env_factory, tasks, tok, cfg, generator):
    """The episodes of one step: `(kept, sampled)` (section 9.2).

    A round samples `prompts_per_step` distinct tasks. Dynamic sampling keeps groups
    whose rewards differ, for up to `max_sample_rounds` rounds; otherwise one round.
    """
    _check_prompts(cfg, tasks)
    kept, sampled, rounds = [], [], 0
    wanted = cfg.prompts_per_step * cfg.group_size
    while len(kept) < wanted and rounds < (cfg.max_sample_rounds
                                           if cfg.dynamic_sampling else 1):
        drawn = torch.randperm(len(tasks), generator=generator)[:cfg.prompts_per_step]
        trajs = sample_groups(model, env_factory, [tasks[i] for i in drawn], tok, cfg,
                              generator)
        sampled, rounds = sampled + trajs, rounds + 1
        if cfg.dynamic_sampling:
            trajs = [traj for group in groups_of(trajs, cfg.group_size)
                     if is_informative(group) for traj in group]
        kept += trajs
    return kept[:wanted], sampled


# %% [evaluate]
def evaluate(model, tasks, tok, n_samples=1, temperature=1.0, generator=None, cfg=None,
             env_factory=None, *, stats=behavior_stats):
    """Behaviour statistics of `n_samples` episodes per task (section 9.2).

    The environment is that of `cfg` (default `RLConfig()`); the default generator has
    seed 0. Leaves the model's mode and the global random state as they were. `stats`:
    a function of the trajectories that takes the place of `behavior_stats`.
    """
    require_count('n_samples', n_samples)
    require(len(tasks) > 0, 'len(tasks)', 0, 'at least 1')
    cfg = replace(cfg or RLConfig(), group_size=n_samples, temperature=temperature)
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    return stats(sample_groups(model, env_factory or partial(make_env, cfg), tasks, tok,
                               cfg, generator))


# %% [sampling-stats]
def zero_adv_frac(sampled, cfg):
    """Share of the groups in which every attempt earned the same (section 9.2)."""
    groups = groups_of(sampled, cfg.group_size)
    return sum(not is_informative(group) for group in groups) / len(groups)


_LOGGED = {'reward': ('reward', '.3f'), 'reads': ('reads', '.2f'),
          'edits': ('edits', '.2f'), 'entropy': ('entropy', '.3f'),
          'eval_pass': ('held-out', '.3f')}


def log_line(record):
    """One step of a history as one line of text (section 9.2)."""
    shown = {'entropy': math.nan} | record      # absent where nothing was kept
    fields = [f'{label} {shown[name]:{form}}'
              for name, (label, form) in _LOGGED.items() if name in shown]
    return ' | '.join([f"step {record['step']:3d}", *fields]).replace('nan', '  -  ')


# %% [check-run]
def check_run(cfg, tasks, steps, log_every=0, eval_tasks=None, eval_every=20):
    """Refuse what cannot run before anything does; returns `cfg` (section 9.2)."""
    require(isinstance(cfg, RLConfig), 'cfg', cfg, 'an RLConfig', TypeError)
    require(cfg.group_size > 1, 'group_size', cfg.group_size,
            'at least 2: a lone attempt has no baseline')
    _check_prompts(cfg, tasks)
    require_count('steps', steps, low=0)
    require_count('log_every', log_every, low=0)
    require_count('eval_every', eval_every)
    require(eval_tasks is None or len(eval_tasks) > 0, 'eval_tasks', eval_tasks,
            'None or at least 1 task')
    return cfg


# %% [check-model]
def _check_training(model, on_step):
    """Refuse a model that no gradient would reach, and what cannot be called."""
    require(on_step is None or callable(on_step), 'on_step', on_step,
            'None or a function of the history', TypeError)
    require(torch.is_grad_enabled() and not torch.is_inference_mode_enabled(),
            'gradients', 'off', 'on: train outside of no_grad and inference_mode',
            RuntimeError)
    trained = [p for p in model.parameters() if p.requires_grad]
    require(trained and not any(p.is_inference() for p in trained), 'model',
            type(model), 'a module with at least one weight that is trained '
            '(requires_grad), and none made in inference_mode')


# %% [train-step]
def train_step(model, optimizer, env_factory, tasks, tok, cfg, generator,
               ref_model=None, stats=behavior_stats):
    """One step of training: what it sampled and how it updated, a dict (9.2).

    `n_episodes`, `zero_adv_frac` and `stats` are of all sampled episodes; the figures
    of `rl_update` are absent where nothing was kept.
    """
    kept, sampled = sample_step(model, env_factory, tasks, tok, cfg, generator)
    record = {'n_episodes': len(sampled), 'zero_adv_frac': zero_adv_frac(sampled, cfg),
              **stats(sampled)}
    if kept:
        batch = collate(kept, tok.pad_id)
        record |= rl_update(model, optimizer, batch, compute_advantages(batch, cfg),
                            cfg, ref_model, generator)
    return record


# %% [twin]
def _twin(env_factory):
    """A copy of a factory: what it draws leaves the first one's stream alone (9.2)."""
    try:
        return copy.deepcopy(env_factory)
    except Exception as error:
        raise TypeError(f'env_factory is {env_factory!r}; allowed, with eval_tasks: '
                        'what copy.deepcopy can copy') from error


@contextmanager
def _streams_kept():
    """The random streams of torch and of Python as before afterwards (9.2)."""
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(state)


# %% [held-out]
class _Onlooker:
    """What watches a run and leaves no trace in it: evaluation and log (9.2)."""

    def __init__(self, tasks, tok, cfg, env_factory, last, eval_every, log_every):
        self.tasks, self.tok, self.cfg, self.last = tasks, tok, cfg, last
        self.every = {'eval': eval_every if tasks is not None else 0, 'log': log_every}
        self.env_factory = _twin(env_factory) if tasks is not None else None

    def due(self, what, step):
        """Whether this is a step, or the last one, at which to do it."""
        every = self.every[what]
        return every > 0 and (step % every == 0 or step == self.last)

    def look(self, model, record):
        """Add `eval_pass` (4 episodes per task, the step as seed), print a line."""
        step = record['step']
        if self.due('eval', step):
            with _streams_kept():
                record['eval_pass'] = evaluate(
                    model, self.tasks, self.tok, 4, self.cfg.temperature,
                    torch.Generator().manual_seed(step), self.cfg,
                    _twin(self.env_factory))['pass_rate']
        if self.due('log', step):
            print(log_line(record))


# %% [history-kept]
@contextmanager
def _history_kept(history):
    """An error, Ctrl-C included, carries the history so far as `error.history`."""
    try:
        yield
    except BaseException as error:
        error.history = history
        raise


def _reference(model, ref_model, cfg):
    """The model to stay close to: with a penalty and none given, the one of now."""
    if cfg.kl_coef > 0 and ref_model is None:
        return copy.deepcopy(model).requires_grad_(False)
    return ref_model


# %% [train-code]
def train_rl(model, tasks, tok, cfg, steps, log_every=0, eval_tasks=None, eval_every=20,
             env_factory=None, ref_model=None, *, on_step=None, stats=behavior_stats):
    """Train `model` in place for `steps` steps; the history (section 9.2).

    A dict per step: `step`, what `train_step` returns, `eval_pass` where evaluated.
    `on_step(history)` is called after each step; a true result ends the training.
    """
    check_run(cfg, tasks, steps, log_every, eval_tasks, eval_every)
    _check_training(model, on_step)
    torch.manual_seed(cfg.seed)
    generator, history = torch.Generator().manual_seed(cfg.seed), []
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, foreach=True)
    ref_model = _reference(model, ref_model, cfg)
    make = env_factory or partial(make_env, cfg)
    onlooker = _Onlooker(eval_tasks, tok, cfg, make, steps - 1, eval_every, log_every)
    with _history_kept(history):
        for step in range(steps):
            record = {'step': step} | train_step(
                model, optimizer, make, tasks, tok, cfg, generator, ref_model, stats)
            onlooker.look(model, record)
            history.append(record)
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
    "UpdateBatch",
    "update_batch",
    "optimizer_step",
    "rl_update",
    "groups_of",
    "is_informative",
    "sample_step",
    "evaluate",
    "zero_adv_frac",
    "log_line",
    "check_run",
    "train_step",
    "train_rl",
]
