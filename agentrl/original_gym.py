# Generated from notebooks/9_3_original_gym.ipynb by book/tangle.py; edit the notebook.
"""9.3 GRPO on the original gym."""

# %% [imports]
from agentrl.gym import make_tasks
from agentrl.training_loop import evaluate


# %% [compare]
def compare(name, model, cfg, tok, n=16) -> None:
    """Print one row per split: pass, reads, edits, first edit right, tests (9.3).

    Rates and counts are per episode, over `n` episodes per task, sampled as `cfg` says.
    """
    for split in ('train', 'heldout'):
        s = evaluate(model, make_tasks(split), tok, n, cfg.temperature, cfg=cfg)
        print(f"{name:<18} {split:<7} pass {s['pass_rate']:.3f} reads {s['reads']:.2f} "
              f"edits {s['edits']:.2f} first edit right {s['first_edit_right']:.2f} "
              f"tests {s['tests']:.2f}")


__all__ = [
    "compare",
]
