"""Evaluation and callbacks watch a training and change nothing about it."""

import copy

import torch
from rollouts import gen
from tiny import weights
from updates import HELDOUT, config, train, turns_used

import agentrl as arl


def test_evaluation_changes_nothing_about_training(tok, apprentice):
    models = [copy.deepcopy(apprentice) for _ in range(3)]
    for model in models:
        model.train()
    plain = train(models[0], tok, config(), n=3)
    some = train(models[1], tok, config(), n=3, eval_tasks=HELDOUT, eval_every=2)
    often = train(
        models[2], tok, config(), n=3, eval_tasks=HELDOUT, eval_every=1, log_every=0
    )
    assert torch.equal(weights(models[0]), weights(models[1]))
    assert torch.equal(weights(models[0]), weights(models[2]))
    for record in some + often:
        record.pop("eval_pass", None)
    assert plain == some == often
    assert all(model.training for model in models)


def test_when_and_how_it_evaluates(tok, apprentice):
    cfg = config(temperature=0.8, reward="public", max_edits=3)
    history = train(apprentice, tok, cfg, n=6, eval_tasks=HELDOUT[:3], eval_every=2)
    assert [r["step"] for r in history if "eval_pass" in r] == [0, 2, 4, 5]
    after = arl.evaluate(apprentice, HELDOUT[:3], tok, 4, 0.8, gen(5), cfg)
    assert history[-1]["eval_pass"] == after["pass_rate"]


def test_the_same_environments_for_training_and_evaluation(tok, apprentice):
    made = []

    def make():
        made.append(arl.BugFixEnv(reward=turns_used))
        return made[-1]

    history = train(
        apprentice, tok, config(), 2, eval_tasks=HELDOUT[:2], env_factory=make
    )
    assert len(made) == 2 * 12 + 2 * 2 * 4
    assert [set(record) & {"eval_pass"} for record in history] == [{"eval_pass"}] * 2


def test_a_callback_hears_every_step_and_changes_nothing(tok, apprentice):
    plain = copy.deepcopy(apprentice)
    expected = train(plain, tok, config(), 3)
    seen = []

    def on_step(history):
        torch.rand(3)  # the loop has its own generator
        seen.append([dict(record) for record in history])

    history = train(apprentice, tok, config(), 3, on_step=on_step)
    assert torch.equal(weights(apprentice), weights(plain)) and history == expected
    assert seen == [expected[:n] for n in (1, 2, 3)]


def test_a_callback_ends_the_training_within_a_step(tok, apprentice):
    short = copy.deepcopy(apprentice)
    expected = train(short, tok, config(), 2)
    history = train(apprentice, tok, config(), 9, on_step=lambda h: len(h) == 2)
    assert history == expected
    assert torch.equal(weights(apprentice), weights(short))
