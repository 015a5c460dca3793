# Generated from notebooks/05_2_episodes.ipynb by book/tangle.py; edit the notebook.
"""Episodes and the base agent."""

# %% [imports]
import inspect
import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from agentrl.agent import CALLS, Policy, device_of, eval_mode, from_list, pad_rows
from agentrl.checks import checked_reward, require, require_count, require_number
from agentrl.gym import FIX_OPS, BugFixEnv, make_tasks
from agentrl.speed import fast_reader
from agentrl.store import digest, kept_weights


# %% [trajectory]
@dataclass
class Trajectory:
    """One episode as the trainer sees it (section 5).

    `ids` LongTensor `[n]`, all tokens; `action_mask` FloatTensor `[n-1]`, aligned with
    `ids[1:]`, 1 where the policy sampled; `reward`, unshaped; `info`, the final info.
    """
    ids: torch.Tensor
    action_mask: torch.Tensor
    reward: float
    info: dict


# %% [episode]
MAX_CALL_TOKENS = 6     # most tokens a call may take


class Episode:
    """One environment, and the tokens its agent has seen and written (section 5)."""

    def __init__(self, env, task, tok):
        self.env, self.tok, self.call, self.done = env, tok, [], False
        self.ids = tok.encode('<bos> ' + env.reset(task))
        self.mask = [0.0] * len(self.ids)

    def write(self, token):
        """Add a token that the policy chose."""
        self.ids.append(token)
        self.mask.append(1.0)
        self.call.append(token)


# %% [episode-steps]
def is_writing(episode):
    """Whether the policy is in the middle of a call, or has yet to begin one (5)."""
    call = episode.call
    closed = bool(call) and episode.tok.decode(call[-1:]) == '</call>'
    return not (episode.done or closed or len(call) == MAX_CALL_TOKENS)


def finish_call(episode):
    """Send the call; hear the answer, but nothing after the last call (section 5)."""
    sent, episode.call = episode.tok.decode(episode.call), []
    answer, episode.reward, episode.done, episode.info = episode.env.step(sent)
    if not episode.done:
        heard = episode.tok.encode(f'<obs> {answer} </obs>')
        episode.ids += heard
        episode.mask += [0.0] * len(heard)


def trajectory_of(episode, name='an episode'):
    """A finished episode as tensors: its `Trajectory` (section 5)."""
    require(episode.done, f'done of {name} after max_turns', False, 'True')
    reward = checked_reward(name, episode.reward)
    mask = from_list(episode.mask, dtype=np.float32)
    return Trajectory(from_list(episode.ids), mask[1:], reward, episode.info)


# %% [full-context]
class FullContext:
    """The textbook reader: the whole context again for every token (section 5)."""

    def __init__(self, model, tok):
        self.model, self.pad_id, self.device = model, tok.pad_id, device_of(model)

    def next_logits(self, contexts, rows):
        """Logits `[len(rows), V]` of the token that follows each of these contexts."""
        ids, lengths = pad_rows([contexts[row] for row in rows], self.pad_id,
                                self.device)
        return self.model(ids)[torch.arange(len(rows)), lengths - 1]


# %% [sample]
def sample_tokens(logits, uniforms, temperature):
    """Sample by inverse CDF: logits `[N, V]`, uniforms `[N]` -> ids `[N]` (section 5).

    One uniform number per token, drawn beforehand: so an episode does not depend on
    which others run beside it. `FloatingPointError`: logits that are not numbers.
    """
    cdf = torch.softmax(logits / temperature, -1).cumsum(-1)
    if not cdf[:, -1].isfinite().all():
        raise FloatingPointError('the next token has no probabilities: logits divided '
                                 f'by temperature {temperature} are not numbers')
    target = uniforms.to(cdf)[:, None] * cdf[:, -1:]
    drawn = torch.searchsorted(cdf, target, right=True)[:, 0]
    return drawn.clamp(max=cdf.shape[-1] - 1)       # where rounding reached the end


# %% [checks]
MAX_EPISODES = 100_000      # at once; more would fill the memory without a word


def _check_rollout(envs, tasks, tok, max_turns, temperature):
    """Refuse what cannot run."""
    require_count('max_turns', max_turns)
    require_number('temperature', temperature, 0, open_low=True)
    require(len(envs) == len(tasks) > 0, 'len(envs)', len(envs),
            f'{len(tasks)}, one for each of at least one task')
    require(len(tasks) <= MAX_EPISODES, 'len(tasks)', len(tasks),
            f'at most {MAX_EPISODES} episodes at once')
    require('</call>' in tok.words, 'tok', tok,
            "a tokenizer that knows the word '</call>', which ends a call")


# %% [rollout]
@torch.no_grad()
def rollout_batch(model, envs, tasks, tok, max_turns=6, temperature=1.0,
                  generator=None):
    """Sample one episode for each environment and task, in lock step (section 5).

    `list[Trajectory]` in the order of `tasks`. `ValueError`: an environment that is not
    done after `max_turns`, or pays what is no finite number.
    """
    _check_rollout(envs, tasks, tok, max_turns, temperature)
    uniforms = torch.rand(len(tasks), max_turns, MAX_CALL_TOKENS, generator=generator)
    episodes = [Episode(env, task, tok) for env, task in zip(envs, tasks, strict=True)]
    with eval_mode(model):
        reader = fast_reader(model, tok, len(tasks)) or FullContext(model, tok)
        for turn in range(max_turns):
            for k in range(MAX_CALL_TOKENS):
                rows = [i for i, episode in enumerate(episodes) if is_writing(episode)]
                if rows:
                    logits = reader.next_logits([e.ids for e in episodes], rows)
                    tokens = sample_tokens(logits, uniforms[rows, turn, k], temperature)
                    for i, token in zip(rows, tokens.tolist(), strict=True):
                        episodes[i].write(token)
            for episode in (e for e in episodes if not e.done):
                finish_call(episode)
    return [trajectory_of(e, f'episode {i}') for i, e in enumerate(episodes)]


# %% [collate]
def collate(trajs, pad_id):
    """Trajectories as one batch: a dict of tensors (section 5).

    `ids [B, T]`, `action_mask [B, T-1]`, `rewards [B]`, `n_turns` float `[B]`,
    `submitted` bool `[B]`. A reward that is not a finite number is a `ValueError`.
    """
    require(len(trajs) > 0, 'len(trajs)', 0, 'at least 1')
    rewards = [checked_reward(f'episode {i}', t.reward) for i, t in enumerate(trajs)]
    ids = pad_sequence([t.ids for t in trajs], batch_first=True, padding_value=pad_id)
    mask = pad_sequence([t.action_mask for t in trajs], batch_first=True)
    batch = {'ids': ids, 'action_mask': mask, 'rewards': torch.tensor(rewards)}
    for key, dtype in (('n_turns', torch.float), ('submitted', torch.bool)):
        if all(key in t.info for t in trajs):
            batch[key] = torch.tensor([t.info[key] for t in trajs], dtype=dtype)
    return batch


# %% [players]
def _random_player(task, rng):
    while True:
        yield rng.choice(CALLS)


def _blind_player(task, rng):
    yield f'<call> edit {rng.choice(FIX_OPS)} </call>'
    yield '<call> submit </call>'


def _oracle_player(task, rng):
    yield '<call> read </call>'
    yield f'<call> edit {task.fix_op} </call>'
    yield '<call> test </call>'
    yield '<call> submit </call>'


PLAYERS = {'random': _random_player, 'blind': _blind_player, 'oracle': _oracle_player}


# %% [demonstrate]
def demonstrate(kind, task, tok, rng):
    """One episode of a scripted player on the original gym (section 5)."""
    episode = Episode(BugFixEnv(), task, tok)
    player = PLAYERS[kind](task, rng)
    while not episode.done:
        for token in tok.encode(next(player)):
            episode.write(token)
        finish_call(episode)
    return trajectory_of(episode)


# %% [deal]
def deal_demonstrations(kinds, tok, seed, n=720):
    """`n` demonstrations, the kinds dealt in turn over the training tasks (section 5).

    Whole rounds take every task once with every kind; what they leave over goes over a
    shuffled part of the tasks.
    """
    rng, tasks = random.Random(seed), make_tasks('train')
    rounds, rest = divmod(n, len(tasks) * len(kinds))
    pairs = [(kind, task) for _ in range(rounds) for kind in kinds for task in tasks]
    shuffled = rng.sample(tasks, len(tasks))
    pairs += [(kinds[i % len(kinds)], shuffled[i // len(kinds)]) for i in range(rest)]
    return [demonstrate(kind, task, tok, rng) for kind, task in pairs]


# %% [batches]
_EPOCHS, _BATCH, _LR, _WARMUP = 20, 32, 2e-3, 10


def _batches(demos, generator):
    """Rows of one epoch's batches, in random order."""
    rows = torch.randperm(len(demos), generator=generator).tolist()
    return [rows[i:i + _BATCH] for i in range(0, len(rows), _BATCH)]


# %% [imitate]
def imitate(model, demos, pad_id, generator):
    """Fit `model` to the calls of demonstrations: 20 epochs of Adam (section 5).

    The loss is a sum over policy tokens divided by a constant, their mean number a
    batch: so every token weighs the same, whatever batch it is in.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=_LR)
    steps = _EPOCHS * -(-len(demos) // _BATCH)
    scale = _EPOCHS * sum(t.action_mask.sum() for t in demos) / steps
    step = 0
    for _ in range(_EPOCHS):
        for rows in _batches(demos, generator):
            decay = 1 - 0.9 * (step - _WARMUP) / (steps - _WARMUP)
            optimizer.param_groups[0]['lr'] = _LR * min((step + 1) / _WARMUP, decay)
            batch = collate([demos[row] for row in rows], pad_id)
            logits = model(batch['ids'])[:, :-1]
            nll = F.cross_entropy(logits.transpose(1, 2), batch['ids'][:, 1:],
                                  reduction='none')
            optimizer.zero_grad()
            ((nll * batch['action_mask']).sum() / scale).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1


# %% [fingerprint]
def _fingerprint(model, demos, seed):
    """A hash of what shapes a base agent: data, first weights, recipe, arithmetic."""
    weights = [tensor.numpy() for tensor in model.state_dict().values()]
    shown = [array for t in demos for array in (t.ids.numpy(), t.action_mask.numpy())]
    code = [inspect.getsource(part)
            for part in (inspect.getmodule(Policy), imitate, _batches)]
    recipe = [seed, _EPOCHS, _BATCH, _LR, _WARMUP, code, torch.__version__,
              torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()]
    return digest(recipe, *weights, *shown)


# %% [base-agent]
def make_base_agent(tok, seed=0, kinds=('random', 'blind')):
    """A policy that imitates the named players on the original gym (section 5).

    Always 720 demonstrations and 460 optimiser steps. Kept on disk under a hash of all
    that shapes it; a file that does not match is built again, never trusted.
    """
    require_count('seed', seed, low=0)
    require(seed < 2**63, 'seed', seed, 'an integer below 2**63')
    require(len(kinds) > 0 and set(kinds) <= set(PLAYERS), 'kinds', kinds,
            f'at least one of {sorted(PLAYERS)}, repeats allowed')
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Policy(len(tok))
    demos = deal_demonstrations(kinds, tok, seed)

    def make():
        imitate(model, demos, tok.pad_id, torch.Generator().manual_seed(seed))
        return model.state_dict()

    fingerprint = _fingerprint(model, demos, seed)
    name = f'base-{fingerprint[:16]}.weights'
    model.load_state_dict(kept_weights(name, fingerprint, make))
    return model


__all__ = [
    "Trajectory",
    "MAX_CALL_TOKENS",
    "Episode",
    "is_writing",
    "finish_call",
    "trajectory_of",
    "FullContext",
    "sample_tokens",
    "MAX_EPISODES",
    "rollout_batch",
    "collate",
    "PLAYERS",
    "demonstrate",
    "deal_demonstrations",
    "imitate",
    "make_base_agent",
]
