"""One seed, one machine, one thread: one result, bit for bit."""

import hashlib
import json
import os
import subprocess
import sys
import textwrap

import agentrl as arl

SCRIPT = textwrap.dedent(
    """
    import hashlib, json, sys
    import torch
    torch.set_num_threads(1)
    import agentrl as arl

    train, heldout = arl.make_tasks("train"), arl.make_tasks("heldout")[:3]
    tok = arl.build_tokenizer(arl.make_tasks("all"))
    torch.manual_seed(7)
    model = arl.Policy(len(tok), width=16, layers=2, heads=2)
    demos = arl.deal_demonstrations(("random", "blind", "oracle"), tok, 0, n=32)
    arl.imitate(model, demos, tok.pad_id, torch.Generator().manual_seed(0))
    torch.rand(int(sys.argv[1]))  # what came before does not matter
    cfg = arl.RLConfig(prompts_per_step=2, group_size=4, seed=3, kl_coef=0.01,
                       reward=lambda info: len(info["actions"][0]) / 100)
    history = arl.train_rl(model, train, tok, cfg, 3, eval_tasks=heldout, eval_every=2)
    sha = hashlib.sha256()
    for p in model.parameters():
        sha.update(p.detach().numpy().tobytes())
    names = tok.words, arl.FN_NAMES, arl.make_tasks("all")
    print(json.dumps([sha.hexdigest(), history, hashlib.sha256(
        repr(names).encode()).hexdigest()]))
    """
)


def test_two_processes_give_the_same_weights_after_three_steps(tmp_path):
    """At once, and with other seeds of Python's own hashing: nothing depends on it.

    Nor do tasks, names and vocabulary, which are built from sets and dicts.
    """
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    running = [
        subprocess.Popen(
            [sys.executable, script, seed],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for seed in ("1", "2")
    ]
    results = [json.loads(process.communicate()[0]) for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert results[0] == results[1]
    weights, history, names = results[0]
    assert len(history) == 3 and "grad_norm" in history[-1]
    assert any(record["grad_norm"] > 0 for record in history)
    words = arl.build_tokenizer(arl.make_tasks("all")).words
    ours = repr((words, arl.FN_NAMES, arl.make_tasks("all")))
    assert names == hashlib.sha256(ours.encode()).hexdigest()
