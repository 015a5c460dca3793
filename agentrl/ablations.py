# Generated from notebooks/9_6_ablations.ipynb by book/tangle.py; edit the notebook.
"""9.6 Controlled ablations at small scale."""

# %% [imports]
from itertools import chain, cycle

import numpy as np

from agentrl.checks import require, require_count
from agentrl.figures import LINES, PALETTE
from agentrl.sweeps import arm_runs, sweep


# %% [arms]
ARMS = {
    'default': {},
    'no std': {'adv_mode': 'mean'},
    'seq_mean_token_mean': {'loss_mode': 'seq_mean_token_mean'},
    'clip-higher 0.28': {'clip_high': 0.28},
    'dynamic sampling': {'dynamic_sampling': True},
}


# %% [columns]
def summarise(result):
    """Five figures of one run of a study, as a dict of floats (section 9.6)."""
    series = {name: np.array(values, dtype=float)       # None becomes NaN
              for name, values in result['history'].items()}
    return {'late reward': series['reward'][-10:].mean(),
            'held-out': result['heldout']['pass_rate'],
            'length': series['length'][-10:].mean(),
            'clip_frac': np.nanmean(series['clip_frac']),
            'episodes': series['n_episodes'].mean()}


# %% [by-arm]
def by_arm(results):
    """Arm -> figure -> its values, one a seed in ascending order (section 9.6)."""
    table = {result['arm']: {} for result in results}
    for result in sorted(results, key=lambda result: result['seed']):
        for name, value in summarise(result).items():
            table[result['arm']].setdefault(name, []).append(value)
    return table


# %% [print-arms]
FORMS = {'late reward': '.2f', 'held-out': '.2f', 'length': '.1f', 'clip_frac': '.4f',
         'episodes': '.0f'}


def spread(values, form='.2f'):
    """'mean (smallest-largest)' of the values, as text (section 9.6)."""
    low, high = (f'{f(values):{form}}' for f in (min, max))
    return f'{np.mean(values):{form}} ({low}-{high})'


# %% [arms-table]
def print_arms(results):
    """Print mean and range over seeds of each figure, one arm per line (9.6)."""
    rows = [('mean (range of seeds)', *FORMS)]
    for arm, figures in by_arm(results).items():
        rows.append((arm, *(spread(figures[f], FORMS[f]) for f in FORMS)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print('  '.join(cells).rstrip())


# %% [interval]
def interval(values):
    """Mean and 95% t interval of differences `[n]` or `[n, ...]`: `(mean, low, high)`.

    At least two, all finite. Without any spread there is no interval: it is then from
    -inf to inf (section 9.6).
    """
    from scipy.special import stdtrit
    values = np.asarray(values, dtype=float)
    require(values.ndim > 0 and len(values) > 1, 'values', values.tolist(),
            'at least 2: one has no spread')
    require(np.isfinite(values).all(), 'values', values.tolist(), 'finite numbers')
    n, mean = len(values), values.mean(axis=0)
    half = stdtrit(n - 1, 0.975) * values.std(axis=0, ddof=1) / n ** 0.5
    equal = np.ptp(values, axis=0) <= 1e-9 * np.abs(values).max(axis=0)
    half = np.where(equal, np.inf, half)
    return mean, mean - half, mean + half


# %% [paired-difference]
NOT_DISTINGUISHABLE = 'not distinguishable at this number of seeds'


def paired_difference(pairs):
    """Mean of differences, its 95% interval and what it says, as text (section 9.6).

    'more' or 'less' only where the interval leaves out 0.
    """
    mean, low, high = interval(pairs)
    if not np.isfinite(low):
        return 'equal on every seed' if mean == 0 else (
            f'{mean:+.3f} on every seed: no spread, so no interval')
    words = 'more' if low > 0 else 'less' if high < 0 else NOT_DISTINGUISHABLE
    return f'{mean:+.3f} [{low:+.3f}, {high:+.3f}] {words}'


# %% [differences]
def print_differences(results):
    """Print each arm minus the first arm, seed by seed, with 95% intervals (9.6)."""
    table = by_arm(results)
    reference, *others = table
    print(f'minus {reference!r}, same seed: mean [95% interval]')
    for arm in others:
        for name in ('late reward', 'held-out', 'length'):
            pairs = np.subtract(table[arm][name], table[reference][name])
            print(f'{arm:<20} {name:<12} {paired_difference(pairs)}')


# %% [draw-curves]
def arm_styles(arms):
    """Colour and line of each arm, the same in every figure; the first solid (9.6)."""
    styles = zip(arms, cycle(PALETTE.values()), chain(LINES[:1], cycle(LINES[1:])),
                 strict=False)
    return {arm: {'color': color, 'linestyle': line} for arm, color, line in styles}


def _draw_arm(panel, results, arm, style):
    """Reward of one arm, step by step: mean of the seeds as a line, and range."""
    rewards = [r['history']['reward'] for r in results if r['arm'] == arm]
    panel.fill_between(range(len(rewards[0])), np.min(rewards, 0), np.max(rewards, 0),
                       color=style['color'], alpha=0.2, linewidth=0)
    panel.plot(np.mean(rewards, 0), **style, label=arm)


# %% [curves-drawing]
def draw_curves(results, figure):
    """Reward of each arm over that of the first: mean and range of seeds (9.6)."""
    styles = arm_styles(by_arm(results))
    reference, *others = styles
    columns = min(2, len(others))
    for place, arm in enumerate(others):
        panel = figure.add_subplot(-(-len(others) // columns), columns, place + 1)
        for name in (reference, arm):
            _draw_arm(panel, results, name, styles[name])
        lowest, leftmost = place >= len(others) - columns, place % columns == 0
        panel.set(xlabel='training step' if lowest else '',
                  ylabel='reward' if leftmost else '', ylim=(0, 1.02))
        panel.tick_params(labelbottom=lowest, labelleft=leftmost)
        panel.legend(loc='lower right')


# %% [draw-cost]
def smooth(values, width=5):
    """Means over `width` steps, from the first full window on (section 9.6)."""
    return np.convolve(values, np.ones(width) / width, mode='valid')


# %% [cost-drawing]
def draw_cost(results, figure):
    """Zero-advantage groups a step, and reward against episodes: means (9.6).

    The first arm, and those that sample another number of episodes than it does.
    """
    arms = {arm: np.mean(values['episodes']) for arm, values in by_arm(results).items()}
    styles, usual = arm_styles(arms), next(iter(arms.values()))
    left, right = figure.subplots(1, 2)
    for n, (arm, episodes) in enumerate(arms.items()):
        if n == 0 or episodes != usual:
            zero, reward, sampled = (
                np.mean([r['history'][name] for r in results if r['arm'] == arm], 0)
                for name in ('zero_adv_frac', 'reward', 'n_episodes'))
            left.plot(zero, **styles[arm], label=arm)
            right.plot(np.cumsum(sampled)[4:], smooth(reward), **styles[arm], label=arm)
    left.set(xlabel='training step', ylabel='zero-advantage groups, share', ylim=(0, 1))
    right.set(xlabel='episodes sampled so far', ylabel='reward, mean of 5 steps',
              ylim=(0, 1))
    left.legend()


# %% [episodes-to]
def episodes_to(result, level=0.8):
    """Episodes sampled until five steps have mean reward `level`, or inf (9.6)."""
    reached = np.flatnonzero(smooth(result['history']['reward']) >= level)
    sampled = np.cumsum(result['history']['n_episodes'])
    return float(sampled[reached[0] + 4]) if len(reached) else float('inf')


# %% [report]
def report(arms, seeds, steps=40, recorded=None, jobs=-1):
    """Run a study; print both tables, draw both figures in one (section 9.6).

    Two arms and two seeds at least; the first arm is the reference. -> the results
    """
    import matplotlib.pyplot as plt
    runs = arm_runs(arms, seeds, steps=steps)
    require(len(arms) > 1, 'arms', arms, 'at least two: the first is the reference')
    require(len(runs) > len(arms), 'seeds', seeds, 'at least two: one has no spread')
    require_count('steps', steps, low=10)       # the late reward is that of ten
    results = sweep(runs, jobs, recorded)
    print_arms(results)
    print()
    print_differences(results)
    curves, cost = plt.figure(figsize=(7.2, 8)).subfigures(2, height_ratios=(5, 3))
    draw_curves(results, curves)
    draw_cost(results, cost)
    return results


__all__ = [
    "ARMS",
    "summarise",
    "by_arm",
    "FORMS",
    "spread",
    "print_arms",
    "interval",
    "NOT_DISTINGUISHABLE",
    "paired_difference",
    "print_differences",
    "arm_styles",
    "draw_curves",
    "smooth",
    "draw_cost",
    "episodes_to",
    "report",
]
