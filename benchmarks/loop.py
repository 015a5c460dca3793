"""CPU time of the training loop against the textbook's, in one process, on one thread.

`python benchmarks/loop.py [--steps 20] [--rounds 3]` trains the RL base under the
default config, with the textbook loop (textbook.py) and with `agentrl.train_rl` in
turn, and prints the ratio of their CPU times.
"""
import argparse
import copy
import time

import torch
from textbook import TextbookPolicy, textbook_train

import agentrl as arl


def cpu_time(train, model, tok, steps):
    """Seconds of CPU time of `steps` default steps on a copy of `model`."""
    model, tasks = copy.deepcopy(model), arl.make_tasks('train')
    start = time.process_time()
    train(model, tasks, tok, arl.RLConfig(), steps)
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--steps', type=int, default=20)
    parser.add_argument('--rounds', type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tok = arl.build_tokenizer(arl.make_tasks('all'))
    ours = arl.make_rl_base(tok)
    textbook = TextbookPolicy(len(tok))
    textbook.load_state_dict(ours.state_dict())
    cpu_time(arl.train_rl, ours, tok, 5)        # warm up: the verdicts of the tests
    ratios = []
    for _ in range(args.rounds):
        slow = cpu_time(textbook_train, textbook, tok, args.steps)
        fast = cpu_time(arl.train_rl, ours, tok, args.steps)
        ratios.append(fast / slow)
        print(f'textbook {1e3 * slow / args.steps:6.0f} ms a step   '
              f'ours {1e3 * fast / args.steps:6.0f} ms a step   ratio {ratios[-1]:.2f}')
    print(f'ratio over {args.rounds} rounds: {min(ratios):.2f} to {max(ratios):.2f}')


if __name__ == '__main__':
    main()
