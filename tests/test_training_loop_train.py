"""train_rl: the public parts composed, one seed one history, a log."""

import copy
import io
import itertools
import math
from contextlib import redirect_stdout
from dataclasses import replace

import pytest
import torch
from rollouts import gen
from tiny import Bigram, small_policy, weights
from updates import (
    BEHAVIOR,
    HELDOUT,
    INF,
    NAN,
    TRAIN,
    UPDATE,
    config,
    factory,
    train,
)

import agentrl as arl


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"rename": False, "max_edits": None},
        {"dynamic_sampling": True, "overlong_buffer": 2},
        {"kl_coef": 0.1, "loss_mode": "seq_mean_token_mean"},
        {"mask_truncated": True, "epochs": 2},
        {"ratio_level": "sequence", "seed": 3, "temperature": 1.5},
    ],
    ids=str,
)
def test_a_step_is_its_public_parts_bit_for_bit(tok, apprentice, fields):
    cfg, model = config(**fields), copy.deepcopy(apprentice)
    history = train(model, tok, cfg, n=3)

    twin, generator = apprentice, gen(cfg.seed)
    adam = torch.optim.Adam(twin.parameters(), lr=cfg.lr)
    ref = copy.deepcopy(twin) if cfg.kl_coef else None
    for step in range(3):
        kept, sampled = arl.sample_step(twin, factory(cfg), TRAIN, tok, cfg, generator)
        groups = arl.groups_of(sampled, cfg.group_size)
        record = {
            "step": step,
            "n_episodes": len(sampled),
            "zero_adv_frac": sum(len({t.reward for t in g}) == 1 for g in groups)
            / len(groups),
            **arl.behavior_stats(sampled),
        }
        if kept:
            batch = arl.collate(kept, tok.pad_id)
            advantages = arl.compute_advantages(batch, cfg)
            record |= arl.rl_update(twin, adam, batch, advantages, cfg, ref, generator)
        assert history[step] == record
    assert torch.equal(weights(model), weights(twin))
    assert not torch.equal(weights(model), weights(small_policy(tok, width=32)))


def test_equal_seeds_give_equal_histories(tok, apprentice_state):
    def run(seed):
        model = small_policy(tok, width=32)
        model.load_state_dict(apprentice_state)
        torch.rand(seed + 1)  # the state outside does not matter
        return train(model, tok, config(seed=seed)), weights(model)

    (first, w), (second, v), (other, _) = run(0), run(0), run(1)
    assert first == second and torch.equal(w, v)
    assert first != other
    for record in first:
        assert not any("time" in name or "sec" in name for name in record)


def test_the_global_seed_is_set(tok):
    """For environments and models of others that use the global generators."""
    train(small_policy(tok, layers=1), tok, config(seed=5), n=0)
    assert torch.equal(torch.rand(3), torch.rand(3, generator=gen(5)))


def test_the_history(tok, apprentice):
    history = train(apprentice, tok, config())
    assert len(history) == 2
    for step, record in enumerate(history):
        assert (
            set(record) == {"step", "n_episodes", "zero_adv_frac"} | BEHAVIOR | UPDATE
        )
        assert (record["step"], record["n_episodes"]) == (step, 12)
        assert all(math.isfinite(value) for value in record.values())
    assert arl.train_rl(apprentice, TRAIN, tok, config(), 0) == []


def test_a_step_that_kept_nothing(tok, apprentice):
    """No update, no NaN, and the loop goes on."""
    before = weights(apprentice)
    cfg = config(dynamic_sampling=True, reward=lambda info: 0.5, max_sample_rounds=3)
    history = train(apprentice, tok, cfg, n=3, eval_tasks=HELDOUT[:1])
    assert torch.equal(weights(apprentice), before)
    assert [r["n_episodes"] for r in history] == [3 * 3 * 4] * 3
    for record in history:
        assert not UPDATE & set(record)
        assert record["zero_adv_frac"] == 1 and record["reward"] == 0.5
        assert all(math.isfinite(value) for value in record.values())


def test_zero_advantage_groups_are_counted_on_raw_rewards_of_all_episodes(
    tok, apprentice
):
    cfg = config(reward=lambda info: 0.0, overlong_buffer=6)
    (record,) = train(apprentice, tok, cfg, n=1)
    assert record["zero_adv_frac"] == 1 and record["grad_norm"] > 0

    def reward(info):
        return info["n_turns"] if info["task"].startswith("minmax") else 0

    cfg = config(prompts_per_step=20, reward=reward)
    (record,) = train(apprentice, tok, cfg, n=1)
    assert record["zero_adv_frac"] >= 16 / 20


def test_a_reward_that_is_not_finite_stops_before_any_update(tok, apprentice):
    class Odd(arl.BugFixEnv):
        bad = NAN

        def step(self, text):
            answer, reward, done, info = super().step(text)
            return answer, self.bad if done else reward, done, info

    before = weights(apprentice)
    for dynamic, bad in itertools.product((False, True), (NAN, INF, None)):
        Odd.bad = bad
        with pytest.raises((ValueError, TypeError), match="episode 0.*finite number"):
            train(apprentice, tok, config(dynamic_sampling=dynamic), env_factory=Odd)
    assert torch.equal(weights(apprentice), before)


def test_the_reference_is_the_policy_at_the_call(tok, apprentice):
    models = [copy.deepcopy(apprentice) for _ in range(2)]
    ref = copy.deepcopy(apprentice)
    cfg = config(kl_coef=0.5, minibatches=1)
    history = train(models[0], tok, cfg, n=3)
    assert history[0]["kl_ref"] == pytest.approx(0, abs=1e-6)
    assert history[2]["kl_ref"] > 1e-6
    assert train(models[1], tok, cfg, n=3, ref_model=ref) == history
    assert torch.equal(weights(ref), weights(apprentice))
    assert "kl_ref" not in train(apprentice, tok, config(), n=1)[0]


def test_each_call_has_a_new_optimizer(tok, apprentice):
    """Two calls of one step are not one call of two: the momentum starts again."""
    model, cfg = copy.deepcopy(apprentice), config()
    train(model, tok, cfg, n=1)
    record = train(model, tok, replace(cfg, reward=lambda info: 0.5), n=1)[0]
    before = weights(model)
    train(model, tok, replace(cfg, reward=lambda info: 0.5), n=2)
    assert record["grad_norm"] == 0 and torch.equal(weights(model), before)


def test_any_module_can_be_trained(tok):
    model = Bigram(len(tok))
    before = weights(model)
    cfg = config(reward=lambda info: len(info["actions"][0]))
    history = train(model, tok, cfg)
    assert not torch.equal(weights(model), before) and "grad_norm" in history[0]


def logged(tok, model, n, **options):
    with redirect_stdout(io.StringIO()) as out:
        history = train(model, tok, config(), n, **options)
    return out.getvalue().splitlines(), history


def test_the_log(tok, apprentice):
    lines, history = logged(
        tok, apprentice, 4, log_every=2, eval_tasks=HELDOUT[:2], eval_every=3
    )
    assert [line[:9] for line in lines] == ["step   0 ", "step   2 ", "step   3 "]
    assert ["held-out" in line for line in lines] == [True, False, True]
    assert lines == [arl.log_line(history[i]) for i in (0, 2, 3)]
    assert logged(tok, apprentice, 1)[0] == []


def test_a_log_line_to_the_letter():
    record = {
        "step": 20,
        "reward": 0.84375,
        "reads": 1.0156,
        "edits": 0.98,
        "turns": 3.0,
    }
    start = "step  20 | reward 0.844 | reads 1.02 | edits 0.98 | entropy "
    told = {**record, "entropy": 0.1841, "eval_pass": 0.625}
    assert arl.log_line(told) == start + "0.184 | held-out 0.625"
    assert arl.log_line({**record, "entropy": 0.1841}) == start + "0.184"
    assert arl.log_line(record).startswith(start)  # an update that did not happen


@pytest.mark.parametrize(
    ("fields", "options", "match"),
    [
        ({"group_size": 1}, {}, "group_size is 1; .*at least 2"),
        ({"prompts_per_step": 21}, {}, "prompts_per_step is 21; .*20"),
        ({}, {"steps": -1}, "steps is -1"),
        ({}, {"steps": 1.5}, "steps is 1.5"),
        ({}, {"log_every": -1}, "log_every is -1"),
        ({}, {"eval_every": 0}, "eval_every is 0"),
        ({}, {"eval_tasks": []}, r"eval_tasks is \[\]"),
        ({}, {"on_step": 3}, "on_step is 3; .*function of the history"),
    ],
)
def test_what_the_loop_refuses_before_it_starts(tok, fields, options, match):
    model = small_policy(tok, layers=1)
    state, options = torch.get_rng_state(), {"steps": 1, **options}
    with pytest.raises((ValueError, TypeError), match=match):
        arl.train_rl(model, TRAIN, tok, config(**fields), **options)
    assert torch.equal(torch.get_rng_state(), state)
