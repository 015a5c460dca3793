"""The five runs of sections 9.3 and 9.4 over several seeds, as one small JSON file.

`python evidence/five_runs.py [--seeds 0 1 2 3 4] [--steps 80]` writes five_runs.json
beside this file. Seed s sets the base agent and the training. About 5 minutes on 2
cores.
"""
import argparse
import json
import platform
from pathlib import Path

import joblib
import torch

import agentrl as arl

ORIGINAL = {'rename': False, 'max_edits': None}
RENAMED = {'rename': True, 'max_edits': None}
ONE_EDIT = {'rename': True, 'max_edits': 1}
RUNS = {
    'base agent, not trained': (arl.make_base_agent, ORIGINAL, False),
    'RL base, not trained': (arl.make_rl_base, ONE_EDIT, False),
    'GRPO, original gym': (arl.make_base_agent, ORIGINAL, True),
    'GRPO, renamed': (arl.make_base_agent, RENAMED, True),
    'GRPO, one edit': (arl.make_base_agent, ONE_EDIT, True),
    'GRPO from RL base, one edit': (arl.make_rl_base, ONE_EDIT, True),
    'GRPO from RL base, original gym': (arl.make_rl_base, ORIGINAL, True),
}
SHOWN = ('pass_rate', 'reads', 'edits', 'first_edit_right', 'tests')


def run_one(run, seed, steps):
    """One run as a dict: its settings and its behaviour on both splits."""
    torch.set_num_threads(1)
    make_agent, fields, trained = RUNS[run]
    tok = arl.build_tokenizer(arl.make_tasks('all'))
    model, cfg = make_agent(tok, seed), arl.RLConfig(**fields, seed=seed)
    steps = steps if trained else 0
    arl.train_rl(model, arl.make_tasks('train'), tok, cfg, steps)
    result = {'run': run, 'seed': seed, 'steps': steps, 'settings': fields}
    for split in ('train', 'heldout'):
        tasks = arl.make_tasks(split)
        result[split] = arl.evaluate(model, tasks, tok, 16, cfg=cfg)
        trajs = arl.sample_groups(
            model, lambda: arl.make_env(cfg), tasks, tok,
            arl.RLConfig(**fields, group_size=64), torch.Generator().manual_seed(1))
        share, right, n = arl.read_then_edit(trajs)
        result[split] |= {'reads_first': share, 'right_after_reading': right,
                          'n_readers': n}
    return result


def table(results):
    """The range over seeds of each figure, a run and a split a line."""
    lines = []
    for run in dict.fromkeys(r['run'] for r in results):
        for split in ('train', 'heldout'):
            rows = [r[split] for r in results if r['run'] == run]
            cells = [f'{name} {min(r[name] for r in rows):.2f}-'
                     f'{max(r[name] for r in rows):.2f}'
                     for name in (*SHOWN, 'reads_first', 'right_after_reading')]
            lines.append(f'{run:<32} {split:<8} ' + '  '.join(cells))
    return '\n'.join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2, 3, 4])
    parser.add_argument('--steps', type=int, default=80)
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--runs', nargs='+', default=list(RUNS), choices=list(RUNS))
    parser.add_argument('--out', type=Path, default=Path(__file__).with_suffix('.json'))
    args = parser.parse_args()
    results = joblib.Parallel(n_jobs=args.jobs, verbose=5)(
        joblib.delayed(run_one)(run, seed, args.steps)
        for seed in args.seeds for run in args.runs)
    record = {'seeds': args.seeds, 'steps': args.steps, 'torch': torch.__version__,
              'python': platform.python_version(), 'machine': platform.machine(),
              'cpu_capability': torch.backends.cpu.get_cpu_capability(),
              'results': results}
    args.out.write_text(json.dumps(record, indent=1) + '\n', newline='\n')
    print(table(results), f'\nwritten: {args.out.name}', sep='\n')


if __name__ == '__main__':
    main()
