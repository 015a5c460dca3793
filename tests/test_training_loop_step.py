"""The episodes of one step, with and without dynamic sampling."""

import itertools

import pytest
from rollouts import gen
from updates import TRAIN, config, factory

import agentrl as arl


def test_a_step_samples_distinct_tasks_in_one_round(tok, apprentice):
    cfg = config(prompts_per_step=5)
    kept, sampled = arl.sample_step(apprentice, factory(cfg), TRAIN, tok, cfg, gen())
    assert len(kept) == len(sampled) == 20
    assert all(a is b for a, b in zip(kept, sampled, strict=True))
    names = [group[0].info["task"] for group in arl.groups_of(kept, 4)]
    assert len(set(names)) == 5
    everything = config(prompts_per_step=20)
    kept, _ = arl.sample_step(
        apprentice, factory(everything), TRAIN, tok, everything, gen()
    )
    assert {t.info["task"] for t in kept} == {task.name for task in TRAIN}


def test_more_prompts_than_tasks_is_named(tok, apprentice):
    cfg = config(prompts_per_step=4)
    with pytest.raises(ValueError, match="prompts_per_step is 4; .*3"):
        arl.sample_step(apprentice, factory(cfg), TRAIN[:3], tok, cfg, gen())


def steps(tok, model, **fields):
    cfg = config(dynamic_sampling=True, **fields)
    return cfg, *arl.sample_step(model, factory(cfg), TRAIN, tok, cfg, gen())


@pytest.mark.parametrize(
    "fields",
    [
        {"reward": lambda info: 0.0},
        {"reward": lambda info: 0.5},  # a filter on the mean would keep it
        {"reward": lambda info: 0.0, "overlong_buffer": 2},  # shaped, it would differ
        {"reward": lambda info: 0.1},
    ],
)
@pytest.mark.parametrize("rounds", [1, 3])
def test_dynamic_sampling_that_never_fills(tok, apprentice, fields, rounds):
    cfg, kept, sampled = steps(tok, apprentice, max_sample_rounds=rounds, **fields)
    assert kept == [] and len(sampled) == rounds * 3 * 4


def test_dynamic_sampling_keeps_groups_whose_rewards_differ(tok, apprentice):
    cfg, kept, sampled = steps(tok, apprentice, max_sample_rounds=9)
    groups = arl.groups_of(sampled, 4)
    good = [g for g in groups if len({t.reward for t in g}) > 1]
    assert [t for g in good for t in g][:12] == kept and len(kept) == 12
    assert len(sampled) % 12 == 0
    rounds = arl.groups_of(groups, 3)
    for names in ([g[0].info["task"] for g in some] for some in rounds):
        assert len(set(names)) == 3  # distinct within a round


def test_dynamic_sampling_stops_when_it_has_enough(tok, apprentice):
    ticks = itertools.count()
    cfg, kept, sampled = steps(tok, apprentice, reward=lambda info: next(ticks))
    assert len(kept) == len(sampled) == 12


def test_dynamic_sampling_leaves_out_what_is_too_much(tok, apprentice):
    """One group in the first round, three in the second: the last one is not used."""
    ticks, first = itertools.count(), []

    def reward(info):
        first.append(info["task"])
        n = next(ticks)
        return n if n >= 12 or info["task"] == first[0] else 0

    cfg, kept, sampled = steps(tok, apprentice, reward=reward)
    assert len(sampled) == 24 and len(kept) == 12
    assert {t.info["task"] for t in kept[:4]} == {first[0]}
    assert [id(t) for t in kept[4:]] == [id(t) for t in sampled[12:20]]


def test_dynamic_sampling_trains_on_what_it_has(tok, apprentice):
    """Only minmax tasks pay, and differently each time."""
    ticks = itertools.count()

    def reward(info):
        return next(ticks) if info["task"].startswith("minmax") else 0

    cfg, kept, sampled = steps(tok, apprentice, reward=reward, max_sample_rounds=2)
    assert len(sampled) == 24 and 0 < len(kept) < 12
    assert {t.info["task"].split("/")[0] for t in kept} == {"minmax"}


def test_rounds_are_independent_draws(tok, apprentice):
    """A task may come again in a later round."""
    _, _, sampled = steps(
        tok,
        apprentice,
        reward=lambda info: 0.0,
        max_sample_rounds=9,
        prompts_per_step=15,
    )
    names = [g[0].info["task"] for g in arl.groups_of(sampled, 4)]
    assert len(names) == 135 and len(set(names)) == 20
    assert names[:15] != names[15:30]
