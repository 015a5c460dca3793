"""How time grows with the batch, the model and the episodes; memory; two processes."""
import multiprocessing
import re
import statistics
import sys
import time
from pathlib import Path

import torch
from loop import Arm, alternate, textbook_arm

import agentrl as arl


def _compare(name, ours, textbook, steps):
    """One line of a table: both arms in turn."""
    alternate([ours, textbook], steps)
    row = {'ours_ms': round(ours.mean(), 1), 'textbook_ms': round(textbook.mean(), 1),
           'ratio': round(ours.mean() / textbook.mean(), 3)}
    print(f"{name:34} ours {row['ours_ms']:7.0f} ms   textbook "
          f"{row['textbook_ms']:7.0f} ms   ratio {row['ratio']:.3f}", flush=True)
    return row


def _evaluation(base, tok, samples=64):
    """64 episodes of each held-out task, through both readers in turn."""
    models = [Arm(base, tok).model, textbook_arm(base, tok).model]
    times = [[], []]
    for _ in range(3):
        for model, spent in zip(models, times, strict=True):
            start = time.process_time()
            arl.evaluate(model, arl.make_tasks('heldout'), tok, samples)
            spent.append(1e3 * (time.process_time() - start))
    ours, textbook = (statistics.median(spent) for spent in times)
    print(f"{'evaluation, 640 episodes':34} ours {ours:7.0f} ms   textbook "
          f'{textbook:7.0f} ms   ratio {ours / textbook:.3f}', flush=True)
    return {'ours_ms': round(ours, 1), 'textbook_ms': round(textbook, 1),
            'ratio': round(ours / textbook, 3)}


def study():
    """Prompts a step, model width and turns, against the textbook loop.

    Widths and turns are measured with untrained policies, whose calls are all cut at
    `MAX_CALL_TOKENS`: so every width plays episodes of one length.
    """
    tok, table = arl.build_tokenizer(arl.make_tasks('all')), {}
    base = arl.make_rl_base(tok)
    for prompts in (8, 16):
        cfg = arl.RLConfig(prompts_per_step=prompts)
        name = f'{prompts} prompts a step'
        table[name] = _compare(name, Arm(base, tok, cfg), textbook_arm(base, tok, cfg),
                               8)
    table['evaluation, 640 episodes'] = _evaluation(base, tok)
    for turns, width in ((6, 64), (12, 64), (24, 64), (6, 128), (6, 256)):
        torch.manual_seed(0)
        sizes = {'width': width, 'heads': width // 16}
        start, cfg = arl.Policy(len(tok), **sizes), arl.RLConfig(max_turns=turns)
        name = f'untrained, width {width}, {turns} turns'
        table[name] = _compare(name, Arm(start, tok, cfg, **sizes),
                               textbook_arm(start, tok, cfg, **sizes), 2)
    return {'table': table}


def _train(steps, barrier, results):
    """In a process of its own: a short warm-up, then `steps` timed default steps."""
    torch.set_num_threads(1)
    tok = arl.build_tokenizer(arl.make_tasks('all'))
    arm = Arm(arl.make_rl_base(tok), tok)
    for _ in range(3):
        arm.step()
    barrier.wait()
    start = time.perf_counter()
    for _ in range(steps):
        arm.step()
    results.put(time.perf_counter() - start)


def _at_once(count, steps):
    """Wall time of `count` trainings at once, a process each: the slowest."""
    context = multiprocessing.get_context('spawn')
    barrier, results = context.Barrier(count), context.Queue()
    jobs = [context.Process(target=_train, args=(steps, barrier, results))
            for _ in range(count)]
    for job in jobs:
        job.start()
    times = [results.get() for _ in jobs]
    for job in jobs:
        job.join()
    return max(times)


def processes(steps=40, rounds=5):
    """Two trainings in two processes against one alone, in turn."""
    ratios = []
    for _ in range(rounds):
        alone = _at_once(1, steps)
        ratios.append(round(_at_once(2, steps) / alone, 3))
        print(f'two processes take {ratios[-1]:.2f} of the time of one', flush=True)
    return {'ratios': ratios, 'median': statistics.median(ratios)}


def _peak_mb():
    """Peak memory of this process. `getrusage` would count its parent's on Linux."""
    status = Path('/proc/self/status')
    if status.exists():
        return int(re.search(r'VmHWM:\s+(\d+) kB', status.read_text()).group(1)) / 1e3
    import resource  # not on Windows

    unit = 1e6 if sys.platform == 'darwin' else 1e3     # bytes there, kilobytes else
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _peak(steps, results):
    """In a process of its own: peak memory of a default run, in MB."""
    torch.set_num_threads(1)
    tok = arl.build_tokenizer(arl.make_tasks('all'))
    arl.train_rl(arl.make_rl_base(tok), arl.make_tasks('train'), tok, arl.RLConfig(),
                 steps)
    results.put(_peak_mb())


def memory():
    """Peak memory of default runs of 20 and of 200 steps, each in a fresh process."""
    context, table = multiprocessing.get_context('spawn'), {}
    for steps in (20, 200):
        results = context.Queue()
        job = context.Process(target=_peak, args=(steps, results))
        job.start()
        table[f'{steps} steps'] = round(results.get())
        job.join()
        print(f"{steps:3} steps: {table[f'{steps} steps']} MB at most", flush=True)
    return {'peak_mb': table}
