"""The training loop against the textbook's, and with each idea left out.

Every arm trains its own copy of the RL base under the default config. The arms take
their steps in turn, in one process, on one thread: what disturbs the machine
disturbs all of them alike. They would drift apart by rounding and then play different
episodes; so before every step all take over weights and random state of the first.
"""
import contextlib
import time
from dataclasses import replace
from functools import partial
from unittest import mock

import torch
from textbook import TextbookPolicy, textbook_update
from torch.profiler import ProfilerActivity
from torch.utils.flop_counter import FlopCounterMode

import agentrl as arl
from agentrl import episodes, speed, training_loop


class NoGuess(speed.CachedContext):
    """The fast reader without its guess of the word that opens a call."""

    def __init__(self, *args):
        super().__init__(*args)
        self.guess = []


def _own_rows(reader, new):
    """Every row reads for itself, whatever the others have read."""
    for row in new:
        reader.home[row] = row


def _no_reader(model, tok, batch_size):
    """No fast reader: the whole context again for every token."""


def _all_live(make, *args):
    """Every row has a backward pass."""
    batch = make(*args)
    return replace(batch, live=torch.ones_like(batch.live))


def _all_old(model, batch, first):
    """Old log-probs of all rows; then the first minibatch, read like any other."""
    old = arl.token_log_probs(model, batch.ids, batch.mask, batch.temperature)
    return old, arl.read_tokens(model, batch.rows(first))


def _one_run(lengths):
    """All rows together, padded to the longest."""
    return [list(lengths)]


def _all_logits(model, ids, places):
    """Logits of every token, then those that are asked for."""
    return arl.pick(model(ids), places)


# Name -> what to replace, where, to leave one idea out.
LEFT_OUT = {
    'ours': [],
    'whole context for every token': [(episodes, 'fast_reader', _no_reader)],
    'no guess': [(speed, 'CachedContext', NoGuess)],
    'equal contexts read apart': [(speed, '_share_rows', _own_rows)],
    'backward through dead rows': [
        (training_loop, 'update_batch', partial(_all_live, arl.update_batch))],
    'old log-probs of all rows': [(training_loop, 'sampled_tokens', _all_old)],
    'logits of all tokens': [(speed, '_logits_at', _all_logits)],
    'rows of any length together': [(speed, 'runs_of', _one_run)],
}


class Arm:
    """One training, step by step, with the time that its parts took in seconds."""

    def __init__(self, start, tok, cfg=None, replaced=(), policy=arl.Policy,
                 update=arl.rl_update, factory=None, foreach=True, **sizes):
        self.model = policy(len(tok), **sizes)
        self.model.load_state_dict(start.state_dict())
        self.tok, self.cfg = tok, cfg or arl.RLConfig()
        self.replaced, self.update, self.steps = replaced, update, []
        self.tasks = arl.make_tasks('train')
        self.factory = factory or partial(arl.make_env, self.cfg)
        self.generator = torch.Generator().manual_seed(self.cfg.seed)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=self.cfg.lr,
                                          foreach=foreach)

    def _timed(self, read):
        def next_logits(reader, *args):
            start = time.process_time()
            logits = read(reader, *args)
            self.reading += time.process_time() - start
            return logits
        return next_logits

    def step(self):
        """One step of `train_rl`, timed."""
        self.reading = 0.0
        readers = [(reader, 'next_logits', self._timed(reader.next_logits))
                   for reader in (episodes.FullContext, speed.CachedContext)]
        with contextlib.ExitStack() as stack:
            for target in (*readers, *self.replaced):
                stack.enter_context(mock.patch.object(*target))
            wall, start = time.perf_counter(), time.process_time()
            kept, _ = arl.sample_step(
                self.model, self.factory, self.tasks, self.tok, self.cfg,
                self.generator)
            batch = arl.collate(kept, self.tok.pad_id)
            advantages = arl.compute_advantages(batch, self.cfg)
            middle = time.process_time()
            self.update(self.model, self.optimizer, batch, advantages, self.cfg,
                        generator=self.generator)
            end = time.process_time()
        self.steps.append({
            'step': end - start, 'rollout': self.reading,
            'environment': middle - start - self.reading, 'update': end - middle,
            'wall': time.perf_counter() - wall})

    def follow(self, lead):
        """Start the next step where another arm does."""
        self.model.load_state_dict(lead.model.state_dict())
        pairs = zip(self.model.parameters(), lead.model.parameters(), strict=True)
        for own, other in pairs:
            state = lead.optimizer.state[other]
            self.optimizer.state[own] = {k: x.clone() for k, x in state.items()}
        self.generator.set_state(lead.generator.get_state())

    def mean(self, part='step', steps=None):
        """Mean of a part over the first `steps` steps, in milliseconds."""
        times = [step[part] for step in self.steps[:steps]]
        return 1e3 * sum(times) / len(times)


def textbook_arm(start, tok, cfg=None, **sizes):
    """The loop as a textbook writes it."""
    return Arm(start, tok, cfg, (), TextbookPolicy, textbook_update, foreach=None,
               **sizes)


def alternate(arms, steps):
    """Each arm takes the same step in turn; a first round warms up and is not counted.

    Another arm begins each round: whoever meets a source first fills the caches of all.
    """
    arms = list(arms)
    for n in range(steps + 1):
        for arm in arms[n % len(arms):] + arms[:n % len(arms)]:
            arm.step()
            if n == 0:
                arm.steps.clear()
        for arm in arms[1:]:
            arm.follow(arms[0])


SHAPES = (700, 64, 192), (700, 64, 256), (700, 256, 64)     # rows, inputs, outputs


def gflop_per_second(times=20):
    """Rate of matrix products of our shapes: the best of ten tries."""
    best = 0.0
    with torch.no_grad():
        for _ in range(10):
            spent = 0.0
            for rows, inputs, outputs in SHAPES:
                x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
                start = time.perf_counter()
                for _ in range(times):
                    torch.nn.functional.linear(x, weight)
                spent += time.perf_counter() - start
            flop = sum(2 * a * b * c for a, b, c in SHAPES) * times
            best = max(best, flop / spent / 1e9)
    return best


def gflop_of_step(arm):
    """Floating-point operations of matrix products in one more step of an arm."""
    with FlopCounterMode(display=False) as counter:
        arm.step()
    return counter.get_total_flops() / 1e9


def study(steps=80):
    """All arms; a dict that holds the table, printed."""
    tok = arl.build_tokenizer(arl.make_tasks('all'))
    base = arl.make_rl_base(tok)
    arms = {name: Arm(base, tok, replaced=new) for name, new in LEFT_OUT.items()}
    arms['textbook'] = textbook_arm(base, tok)
    alternate(arms.values(), steps)
    slow, fast, half = arms['textbook'], arms['ours'], min(40, steps)
    print(f"{'':30} {'CPU ms':>8} {'wall ms':>8} {'rollout':>8} {'environ.':>8} "
          f"{'update':>8} {'/ textbook':>10} {f'first {half}':>9}")
    rows = {}
    for name, arm in arms.items():
        row = {part: arm.mean(part) for part in arm.steps[0]}
        row['ratio'] = row['step'] / slow.mean()
        row['ratio_first'] = arm.mean(steps=half) / slow.mean(steps=half)
        row['wall_ratio'] = row['wall'] / slow.mean('wall')
        rows[name] = {key: round(value, 3) for key, value in row.items()}
        print(f"{name:30} {row['step']:8.0f} {row['wall']:8.0f} {row['rollout']:8.0f} "
              f"{row['environment']:8.0f} {row['update']:8.0f} {row['ratio']:10.3f} "
              f"{row['ratio_first']:9.3f}")
    rate, work = gflop_per_second(), gflop_of_step(fast)
    episodes = fast.cfg.group_size * fast.cfg.prompts_per_step
    more = {'steps': steps,
            'episodes_per_second': round(1e3 * episodes / fast.mean(), 1),
            'gflop_per_second': round(rate, 1), 'gflop_last_step': round(work, 3),
            'gflop_last_step_textbook': round(gflop_of_step(slow), 3),
            'floor_ms': round(1e3 * work / rate, 1)}
    print(f"ours: {more['episodes_per_second']:.0f} episodes a second; matrix products "
          f"of a late step alone: {work:.2f} GFLOP, {more['floor_ms']:.0f} ms at "
          f"{rate:.0f} GFLOP/s (textbook {more['gflop_last_step_textbook']:.2f} GFLOP)")
    return {'arms': rows, **more}


# Kind -> how the names of its operations begin, after 'aten::'.
KINDS = {'matrix products': ('mm', 'addmm', 'bmm'),
         'attention': ('_scaled_dot_product',),
         'copies and look-ups': ('copy_', 'index', '_index', 'cat', 'fill_', 'gather',
                                 'scatter')}


def profile(before=40, steps=8):
    """Where the time of a step goes, in shares of its wall time, while profiled."""
    tok = arl.build_tokenizer(arl.make_tasks('all'))
    arm = Arm(arl.make_rl_base(tok), tok)
    for _ in range(before):
        arm.step()
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        for _ in range(steps):
            arm.step()
        wall = time.perf_counter() - start
    shares = dict.fromkeys((*KINDS, 'other operations'), 0.0)
    calls = 0
    for event in profiler.key_averages():
        name = event.key.removeprefix('aten::')
        kind = next((kind for kind, starts in KINDS.items() if name.startswith(starts)),
                    'other operations')
        shares[kind] += event.self_cpu_time_total / 1e6 / wall
        calls += event.count if event.key.startswith('aten::') else 0
    shares['outside of them: Python'] = 1 - sum(shares.values())
    shares = {kind: round(share, 2) for kind, share in shares.items()}
    print(', '.join(f'{kind} {share:.2f}' for kind, share in shares.items()))
    return {'shares': shares, 'operations_a_step': round(calls / steps)}
