"""A training that cannot begin, or does not come to its end."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from tiny import small_policy, weights
from updates import HELDOUT, TRAIN, config, train, turns_used

import agentrl as arl


class Counting:
    """Makes environments, and counts them."""

    def __init__(self, cfg):
        self.cfg, self.count = cfg, 0

    def __call__(self):
        self.count += 1
        return arl.make_env(self.cfg)


def counted():
    """A reward that no two episodes share: every row has a gradient."""
    ticks = itertools.count()
    return lambda info: next(ticks)


# ---- refused before any work


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_training_without_gradients_is_refused_by_name(tok, off):
    model, make = small_policy(tok, layers=1), Counting(config())
    before, state = weights(model), torch.get_rng_state()
    with off(), pytest.raises((RuntimeError, ValueError), match=off.__name__):
        train(model, tok, config(), env_factory=make)
    assert make.count == 0 and torch.equal(weights(model), before)
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_may_be_off_and_on_again(tok):
    model = small_policy(tok, layers=1)
    with torch.no_grad(), torch.enable_grad():
        assert len(train(model, tok, config(), 1)) == 1


def test_weights_made_for_inference_are_refused_by_name(tok):
    """Made in inference mode they can never have a gradient."""
    with torch.inference_mode():
        model = small_policy(tok, layers=1)
    make = Counting(config())
    with pytest.raises((RuntimeError, ValueError), match="inference_mode|model is"):
        train(model, tok, config(), env_factory=make)
    assert make.count == 0


@pytest.mark.parametrize("kind", ["frozen", "empty"])
def test_a_model_without_trainable_weights_is_refused_by_name(tok, kind):
    model, make = small_policy(tok, layers=1), Counting(config())
    if kind == "frozen":
        model.requires_grad_(False)
    else:
        model = torch.nn.Identity()
    with pytest.raises(ValueError, match="model is .*requires_grad"):
        train(model, tok, config(), env_factory=make)
    assert make.count == 0


def test_one_trainable_weight_is_enough(tok):
    model = small_policy(tok, layers=1).requires_grad_(False)
    model.norm.weight.requires_grad_(True)
    before, norm = weights(model), model.norm.weight.clone()
    train(model, tok, config(reward=counted()), 1)
    assert not torch.equal(model.norm.weight, norm)
    moved = (weights(model) != before).sum()
    assert moved <= len(norm)


@pytest.mark.parametrize("seed", [2**64, -1])
def test_a_seed_that_torch_cannot_take_is_named(tok, seed):
    with pytest.raises((ValueError, TypeError), match=f"seed is {seed}"):
        train(small_policy(tok, layers=1), tok, config(seed=seed), 1)


def test_the_largest_seed_of_torch_is_a_seed(tok):
    cfg = config(seed=2**64 - 1)
    assert len(train(small_policy(tok, layers=1), tok, cfg, 1)) == 1


def test_a_group_that_no_memory_holds_is_named(tok):
    with pytest.raises(ValueError, match="group_size"):
        train(small_policy(tok, layers=1), tok, config(group_size=10**9), 1)


def test_a_temperature_below_what_floats_hold(tok):
    """Refused by name, or sampled without a NaN."""
    model = small_policy(tok, layers=1)
    try:
        stats = arl.evaluate(model, TRAIN[:2], tok, temperature=1e-40)
    except (ValueError, FloatingPointError) as error:
        assert "temperature" in str(error) and "1e-40" in str(error)
    else:
        assert all(math.isfinite(value) for value in stats.values())


# ---- interrupted


class Stop(Exception):
    """An error of someone else's code."""


ERRORS = [KeyboardInterrupt, Stop, SystemExit]


def in_a_callback(error, tok, model, n):
    def on_step(history):
        if len(history) == n:
            raise error

    return train(model, tok, config(), 5, on_step=on_step)


def in_an_environment(error, tok, model, n):
    """While step `n` samples: so many steps are finished."""
    made = []

    class Env(arl.BugFixEnv):
        def step(self, text):
            if len(made) > n * 12:
                raise error
            return super().step(text)

    def make():
        made.append(Env(reward=turns_used))
        return made[-1]

    return train(model, tok, config(), 5, env_factory=make)


def in_an_update(error, tok, model, n):
    """In the first backward pass of step `n`, which has two."""
    passes = []

    def hook(grad):
        passes.append(1)
        if len(passes) > 2 * n:
            raise error

    model.norm.weight.register_hook(hook)
    return train(model, tok, config(reward=counted()), 5)


def in_an_evaluation(error, tok, model, n):
    """`n` + 1 steps have been made, but the last one is not finished."""

    looks = []

    class Env(arl.BugFixEnv):
        def __init__(self):
            super().__init__(reward=turns_used)

        def reset(self, task):
            if task.split == "heldout" and len(looks) >= n:
                raise error
            return super().reset(task)

    return train(
        model,
        tok,
        config(),
        5,
        env_factory=Env,
        eval_tasks=HELDOUT[:1],
        eval_every=1,
        on_step=lambda history: looks.append(1),
    )


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "interrupted", [in_a_callback, in_an_environment, in_an_update, in_an_evaluation]
)
def test_what_ends_a_training_carries_its_history(
    tok, apprentice_state, interrupted, training, error
):
    model = small_policy(tok, width=32).train(training)
    model.load_state_dict(apprentice_state)
    with pytest.raises(error) as caught:
        interrupted(error, tok, model, 2)
    history = caught.value.history
    assert [record["step"] for record in history] == [0, 1]
    assert all("grad_norm" in record for record in history)
    assert all(module.training is training for module in model.modules())


def test_the_history_so_far_is_that_of_a_shorter_training(tok, apprentice_state):
    histories = []
    for run in (
        lambda model: train(model, tok, config(), 2),
        lambda model: in_a_callback(KeyboardInterrupt, tok, model, 2),
    ):
        model = small_policy(tok, width=32)
        model.load_state_dict(apprentice_state)
        try:
            histories.append(run(model))
        except KeyboardInterrupt as stop:
            histories.append(stop.history)
    assert histories[0] == histories[1]


def test_stopped_before_the_first_step_ends_the_history_is_empty(tok):
    with pytest.raises(Stop) as caught:
        in_an_environment(Stop, tok, small_policy(tok, layers=1), 0)
    assert caught.value.history == []


def test_a_config_cannot_be_changed_behind_the_back_of_a_training():
    """So one that was checked once need not be checked again."""
    cfg = config()
    with pytest.raises((AttributeError, TypeError)):
        cfg.lr = "nonsense"
    with pytest.raises((ValueError, TypeError), match="lr is 'nonsense'"):
        replace(cfg, lr="nonsense")
