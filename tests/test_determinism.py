"""One seed, one machine, one thread: one result, bit for bit."""

import hashlib
import json
import os
import subprocess
import sys
import textwrap

import torch

import agentrl as arl

SCRIPT = textwrap.dedent(
    """
    import hashlib, json, sys
    import torch
    torch.set_num_threads(1)
    import agentrl as arl

    tok = arl.build_tokenizer(arl.make_tasks("all"))
    torch.manual_seed(7)
    model = arl.Policy(len(tok))
    demos = arl.deal_demonstrations(("random", "blind", "oracle"), tok, 0, n=32)
    arl.imitate(model, demos, tok.pad_id, torch.Generator().manual_seed(0))
    torch.rand(int(sys.argv[1]))  # what came before does not matter
    cfg = arl.RLConfig(prompts_per_step=4, seed=3, kl_coef=0.01,
                       reward=lambda info: info["n_turns"] / 10)
    history = arl.train_rl(model, arl.make_tasks("train"), tok, cfg, 5,
                           eval_tasks=arl.make_tasks("heldout"), eval_every=2)
    sha = hashlib.sha256()
    for p in model.parameters():
        sha.update(p.detach().numpy().tobytes())
    print(json.dumps([sha.hexdigest(), history]))
    """
)


def test_two_processes_give_the_same_weights_after_five_steps(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    results = []
    for seed in ("1", "2"):  # of Python's own hashing; nothing may depend on it
        done = subprocess.run(
            [sys.executable, script, seed],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))
    assert results[0] == results[1]
    assert len(results[0][1]) == 5 and "grad_norm" in results[0][1][-1]


def test_tasks_names_and_vocabulary_are_the_same_everywhere(tok):
    """Built from sets and dicts, in an order that no hash decides."""
    code = (
        "import agentrl as arl; "
        "tok = arl.build_tokenizer([]); "
        "print(tok.words, arl.FN_NAMES, arl.make_tasks('all'))"
    )
    ours = f"{tok.words} {arl.FN_NAMES} {arl.make_tasks('all')}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "12"},
    )
    digest = [
        hashlib.sha256(x.strip().encode()).hexdigest() for x in (ours, done.stdout)
    ]
    assert digest[0] == digest[1]


def test_these_tests_run_on_one_thread():
    assert torch.get_num_threads() == 1
