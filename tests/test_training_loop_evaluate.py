"""Evaluation."""

import random
from dataclasses import replace

import pytest
import torch
from rollouts import gen
from tiny import weights
from updates import BEHAVIOR, TRAIN, config, factory

import agentrl as arl


def test_evaluation_is_sampling_and_statistics(tok, apprentice):
    cfg = config(max_edits=2, temperature=0.7)
    stats = arl.evaluate(apprentice, TRAIN[:4], tok, 3, 1.3, gen(5), cfg)
    used = replace(cfg, group_size=3, temperature=1.3)
    trajs = arl.sample_groups(apprentice, factory(used), TRAIN[:4], tok, used, gen(5))
    assert stats == arl.behavior_stats(trajs)


def test_evaluation_by_default(tok, apprentice):
    default = arl.evaluate(apprentice, TRAIN, tok)
    assert default == arl.evaluate(
        apprentice, TRAIN, tok, 1, 1.0, gen(0), arl.RLConfig(), factory(arl.RLConfig())
    )
    assert set(default) == BEHAVIOR
    edits = arl.evaluate(apprentice, TRAIN, tok, 8, cfg=arl.RLConfig(max_edits=0))
    assert edits["edits"] == 0


def test_evaluation_leaves_everything_as_it_was(tok, apprentice):
    for training in (True, False):
        apprentice.train(training)
        before, state = weights(apprentice), torch.get_rng_state()
        python_state = random.getstate()
        arl.evaluate(apprentice, TRAIN[:3], tok)
        assert torch.equal(torch.get_rng_state(), state)
        assert random.getstate() == python_state
        assert apprentice.training is training
        assert torch.equal(weights(apprentice), before)
        assert all(p.grad is None for p in apprentice.parameters())


def test_what_evaluation_refuses(tok, apprentice):
    with pytest.raises((ValueError, TypeError), match="n_samples is 0"):
        arl.evaluate(apprentice, TRAIN, tok, 0)
    with pytest.raises(ValueError, match=r"len\(tasks\) is 0"):
        arl.evaluate(apprentice, [], tok)
    with pytest.raises((ValueError, TypeError), match="temperature is 0"):
        arl.evaluate(apprentice, TRAIN, tok, temperature=0)
