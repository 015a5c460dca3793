"""The same work on TRL's `GRPOTrainer`: `pip install -e .[trl]`, then this study.

A step: 64 episodes in groups of 8, each a prompt and 13 sampled tokens, together 50 or
100 tokens; two optimiser steps; no environment to speak of. TRL trains a GPT-2 of the
size of our policy. Both take their steps in turn in one process, on one thread. Prompts
and rewards are random: what is timed is the work, not what is learned.
"""
import random
import statistics
import tempfile
import time
from functools import partial
from unittest import mock

import torch
from loop import Arm

import agentrl as arl
from agentrl import episodes

NEW, GROUP, PROMPTS = 13, 8, 8


class OpenTokenizer(arl.Tokenizer):
    """Our words, but nothing ends a call: every call has `MAX_CALL_TOKENS` tokens."""

    def decode(self, ids):
        return super().decode(ids).replace('</call>', 'end')


class OneCall:
    """An environment that shows a prompt, takes one call, and pays 0 or 1.

    A group shares its prompt, as TRL's does.
    """

    count, prompt = 0, None

    def __init__(self, words, length, dead_groups):
        group, member = divmod(OneCall.count, GROUP)
        if member == 0:
            OneCall.prompt = ' '.join(random.choices(words, k=length - NEW - 1))
        self.prompt = OneCall.prompt        # with <bos>, length - NEW tokens
        OneCall.count += 1
        self.reward = float(member % 2 if group % PROMPTS >= dead_groups else 0)

    def reset(self, task):
        return self.prompt

    def step(self, text):
        return '', self.reward, True, {}


def our_arm(length, dead_groups):
    """One of our trainings of `length` tokens an episode."""
    words = arl.build_tokenizer(arl.make_tasks('all')).words
    tok = OpenTokenizer(words)
    torch.manual_seed(0)
    cfg = arl.RLConfig(rename=False, max_turns=1)
    factory = partial(OneCall, words[5:], length, dead_groups)
    return Arm(arl.Policy(len(tok)), tok, cfg, factory=factory)


def trl_trainer(length, callback, steps):
    """A `GRPOTrainer` that does the same work on a GPT-2 of the same size."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    words = arl.build_tokenizer(arl.make_tasks('all')).words
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, '<unk>'))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tok = PreTrainedTokenizerFast(tokenizer_object=core, pad_token='<pad>',
                                  unk_token='<unk>', eos_token='</obs>')
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=len(words), n_positions=128, n_embd=64, n_layer=3, n_head=4,
        n_inner=256, activation_function='relu', resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=2, eos_token_id=4, pad_token_id=0))
    prompts = [' '.join(random.choices(words[5:], k=length - NEW))
               for _ in range(PROMPTS * steps)]
    rows = GROUP * PROMPTS // 2
    args = GRPOConfig(
        output_dir=tempfile.mkdtemp(), max_steps=2 * steps, use_cpu=True, bf16=False,
        per_device_train_batch_size=rows, steps_per_generation=2,
        gradient_accumulation_steps=1, gradient_checkpointing=False,
        num_generations=GROUP, max_completion_length=NEW, temperature=1.0, top_p=1.0,
        top_k=0, generation_kwargs={'min_new_tokens': NEW}, beta=0.0, epsilon=0.2,
        loss_type='bnpo', scale_rewards='group', learning_rate=1e-3,
        lr_scheduler_type='constant', weight_decay=0.0, max_grad_norm=1.0,
        report_to='none', save_strategy='no', logging_strategy='no', disable_tqdm=True)
    return GRPOTrainer(
        model=model, processing_class=tok, args=args, callbacks=[callback],
        train_dataset=Dataset.from_dict({'prompt': prompts}),
        reward_funcs=lambda completions, **_: [float(random.random() < 0.5)
                                               for _ in completions])


def in_turn(length, rounds):
    """Seconds a step: TRL, ours with 6 of 8 groups dead, ours with none."""
    from transformers import TrainerCallback

    arms = {'ours, 6 of 8 groups dead': our_arm(length, 6),
            'ours, no group dead': our_arm(length, 0)}
    times = {'TRL': [], **{name: [] for name in arms}}

    class Turns(TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            self.start = time.perf_counter()

        def on_step_end(self, args, state, control, **_):
            if state.global_step % 2:
                return
            times['TRL'].append(time.perf_counter() - self.start)
            for name, arm in arms.items():
                OneCall.count = 0
                start = time.perf_counter()
                arm.step()
                times[name].append(time.perf_counter() - start)
            self.start = time.perf_counter()

    with mock.patch.object(episodes, 'MAX_CALL_TOKENS', NEW):
        trl_trainer(length, Turns(), rounds + 2).train()
    return {name: spent[2:] for name, spent in times.items()}     # 2 to warm up


def study(rounds=10):
    """Wall time of TRL's step over ours, at 50 and 100 tokens an episode."""
    try:
        import trl
    except ImportError:
        raise SystemExit('This study needs TRL: pip install -e .[trl]') from None
    random.seed(0)
    measured = {'trl': trl.__version__, 'rounds': rounds}
    for length in (50, 100):
        times = in_turn(length, rounds)
        row = {name: round(1e3 * statistics.median(spent)) for name, spent in
               times.items()}
        print(f'{length} tokens: ' + ', '.join(f'{k} {v} ms' for k, v in row.items()))
        for name in list(times)[1:]:
            ratios = sorted(a / b for a, b in zip(times['TRL'], times[name],
                                                  strict=True))
            row[f'TRL / {name}'] = [round(ratios[0], 2),
                                    round(statistics.median(ratios), 2),
                                    round(ratios[-1], 2)]
            print(f'    TRL / {name}: {ratios[0]:.2f} to {ratios[-1]:.2f}, '
                  f'median {statistics.median(ratios):.2f}')
        measured[f'{length} tokens, wall ms a step'] = row
    return measured
