"""How fast, against what: `python benchmarks/bench.py [STUDY ...] [--steps 80]`.

Studies: loop (against the textbook, each idea left out), profile (where time goes),
scaling (prompts, width, length), memory, processes, trl (needs the extra `trl`).
Without a name: all but trl. Each prints its table and goes into results.json with date
and machine.
"""
import argparse

import loop
import machine
import scaling
import torch
import trl_grpo

STUDIES = {'loop': loop.study, 'profile': loop.profile, 'scaling': scaling.study,
           'memory': scaling.memory, 'processes': scaling.processes,
           'trl': trl_grpo.study}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('studies', nargs='*', metavar='STUDY',
                        default=[name for name in STUDIES if name != 'trl'])
    parser.add_argument('--steps', type=int, default=80, help='of the study loop')
    args = parser.parse_args()
    for name in args.studies:
        if name not in STUDIES:
            parser.error(f'{name} is no study; there are {", ".join(STUDIES)}')
    torch.set_num_threads(1)
    for name in args.studies:
        print(f'---- {name}', flush=True)
        options = {'steps': args.steps} if name == 'loop' else {}
        machine.save(name, STUDIES[name](**options))


if __name__ == '__main__':
    main()
