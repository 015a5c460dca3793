"""The studies over many seeds: each is written to a JSON file beside this one.

    python evidence/studies.py                   all of them
    python evidence/studies.py arms variants     these

A run that is finished is kept in the cache folder at once, so an interrupted study goes
on where it stopped. `--jobs` processes, each with one thread; default: one per core.
"""
import argparse
import inspect
import json
import time
from pathlib import Path

from agentrl.ablations import ARMS
from agentrl.exercises import ExerciseRun, train_exercise
from agentrl.sweeps import (
    Run,
    arm_runs,
    check_unchanged,
    code_hash,
    on_cores,
    sweep,
    this_machine,
    train_run,
)
from agentrl.variants import VARIANTS

HERE = Path(__file__).resolve().parent
SEEDS = range(10)
FEW_SEEDS = range(5)
ORIGINAL = {'rename': False, 'max_edits': None}
RENAMED = {'rename': True, 'max_edits': None}
ONE_EDIT = {'rename': True, 'max_edits': 1}
KEPT = {'rename': False, 'max_edits': 1}
# Name -> base, environment, whether it is trained.
FIVE_RUNS = {
    'base agent, not trained': ('base agent', ORIGINAL, False),
    'RL base, not trained': ('RL base', ONE_EDIT, False),
    'GRPO, original gym': ('base agent', ORIGINAL, True),
    'GRPO, renamed': ('base agent', RENAMED, True),
    'GRPO, one edit': ('base agent', ONE_EDIT, True),
    'GRPO from RL base, one edit': ('RL base', ONE_EDIT, True),
    'GRPO from RL base, original gym': ('RL base', ORIGINAL, True),
}
# With five of those runs: every combination of base, renaming and edit limit.
OTHER_CELLS = {
    'GRPO, one edit, names kept': ('base agent', KEPT, True),
    'GRPO from RL base, renamed': ('RL base', RENAMED, True),
    'GRPO from RL base, one edit, names kept': ('RL base', KEPT, True),
}
BUDGET = 64     # episodes a step: group size times prompts


def seeded_bases(cells):
    """Runs in each of which seed s sets the base agent and the training."""
    return [Run(arm, seed, environment, 80 if trained else 0, base, seed, samples=64)
            for seed in SEEDS
            for arm, (base, environment, trained) in cells.items()]


def five_runs():
    """Sections 9.3 and 9.4: seed s sets the base agent and the training."""
    return seeded_bases(FIVE_RUNS)


def other_cells():
    """Section 9.4: the cells of base, renaming and limit that five_runs leaves out."""
    return seeded_bases(OTHER_CELLS)


def arms():
    """Section 9.6: one field at a time, all from the RL base of seed 0."""
    return arm_runs(ARMS, SEEDS)


def variants():
    """Section 9.5: published variants, all from the RL base of seed 0."""
    return arm_runs(VARIANTS, SEEDS)


def overlong():
    """Section 9.5: two ways to treat long episodes, else the default; same base."""
    return arm_runs({'shaping': {'overlong_buffer': 2},
                     'filtering': {'mask_truncated': True}}, SEEDS)


def group_sizes():
    """Section 9.7: group size at 64 episodes a step, all from the RL base of seed 0."""
    return arm_runs({f'G = {size}': {'group_size': size,
                                     'prompts_per_step': BUDGET // size}
                     for size in (4, 8, 16, 32)}, SEEDS)


def oracle_share():
    """Exercise 2: one reading player in so many, at two amounts of imitation."""
    shares = (9, 13, 17, 25, 33)
    usual = [(seed, one_in, 720) for seed in FEW_SEEDS for one_in in shares]
    more = [(seed, one_in, 1080) for seed in range(3) for one_in in (17, 25)]
    return [ExerciseRun(f'1 in {one_in}, {amount} demonstrations', seed, {}, 80,
                        base_seed=seed, samples=64, one_in=one_in,
                        demonstrations=amount)
            for seed, one_in, amount in usual + more]


def name_pools():
    """Exercise 3: function names drawn from all tasks, or from the training tasks."""
    return [ExerciseRun(f'names of {names}', seed, {'rename': False}, 80,
                        base_seed=seed, names=names)
            for seed in FEW_SEEDS
            for names in ('all', 'train')]


def cispo():
    """Exercise 4: CISPO's loss, else the default; from the RL base of seed 0."""
    return arm_runs({'cispo': {'ratio_level': 'cispo'}}, SEEDS)


def kl_penalties():
    """Exercise 5: coefficient and kind of the KL penalty; RL base of seed 0."""
    arms = {'no penalty': {}} | {
        f'{coef} {kind}': {'kl_coef': coef, 'kl_kind': kind}
        for coef in (0.01, 0.1, 1.0) for kind in ('k1', 'k2', 'k3')}
    return [ExerciseRun(arm, seed, fields, 30)
            for seed in FEW_SEEDS for arm, fields in arms.items()]


def filter_and_pairs():
    """Section 9.7: groups dropped but not replaced, and pairs; RL base of seed 0.

    Pairs are 40 episodes a step, not 64: there are 20 tasks to draw from.
    """
    return arm_runs({'filter only': {'dynamic_sampling': True, 'max_sample_rounds': 1},
                     'G = 2': {'group_size': 2, 'prompts_per_step': 20}}, SEEDS)


def matched_base():
    """Section 9.4: the default from bases with one reading player in 13."""
    return [ExerciseRun('1 in 13, 720 demonstrations', seed, {}, 80, base_seed=seed,
                        samples=64, one_in=13)
            for seed in SEEDS]


STUDIES = {study.__name__: study for study in (
    five_runs, other_cells, arms, variants, overlong, group_sizes, oracle_share,
    name_pools, cispo, kl_penalties, filter_and_pairs, matched_base)}


def trainer(runs):
    """What makes the results of these runs."""
    return train_exercise if isinstance(runs[0], ExerciseRun) else train_run


def write(name, runs, results):
    """The file of a study: what it is, then one run per line."""
    check_unchanged()       # an edit while the study ran would be stamped as its code
    about = {'study': name, 'about': inspect.cleandoc(STUDIES[name].__doc__),
             'seeds': sorted({run.seed for run in runs}), 'machine': this_machine(),
             'code': code_hash(trainer(runs))}
    lines = ',\n'.join(json.dumps(result) for result in results)
    text = json.dumps(about, indent=1).removesuffix('\n}')
    (HERE / f'{name}.json').write_text(f'{text},\n "results": [\n{lines}\n]\n}}\n',
                                       encoding='utf-8', newline='\n')


def processes(text):
    """A number of processes for `sweep`, from the command line."""
    try:
        on_cores(int(text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no number of processes, nor -1 for one per core') from None
    return int(text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # [] is a choice because argparse checks the default of `*`, too
    parser.add_argument('studies', nargs='*', choices=[*STUDIES, []],
                        help='of ' + ', '.join(STUDIES))
    parser.add_argument('--jobs', type=processes, default=-1)
    args = parser.parse_args()
    for name in args.studies or STUDIES:
        start = time.perf_counter()
        runs = STUDIES[name]()
        write(name, runs, sweep(runs, args.jobs, train=trainer(runs)))
        minutes = (time.perf_counter() - start) / 60
        print(f'{name}.json: {len(runs)} runs, {minutes:.1f} minutes')


if __name__ == '__main__':
    main()
