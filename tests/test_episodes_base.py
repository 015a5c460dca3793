"""Batches, demonstrations, imitation, base agents."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from rollouts import TASKS, both, gen, gyms, same_episodes
from tiny import call, small_policy, trajectory, weights

import agentrl as arl
from agentrl import episodes

# ---- collate


def test_a_batch_is_a_rectangle(tok):
    trajs = [trajectory(1.0, ["fix_init"], n=5), trajectory(0.5, submitted=False, n=3)]
    batch = arl.collate(trajs, tok.pad_id)
    assert set(batch) == {"ids", "action_mask", "rewards", "n_turns", "submitted"}
    pad = tok.pad_id
    assert batch["ids"].tolist() == [[1, 2, 3, 4, 5], [1, 2, 3, pad, pad]]
    assert batch["action_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert batch["rewards"].tolist() == [1, 0.5]
    assert batch["n_turns"].tolist() == [2, 0]
    assert batch["submitted"].tolist() == [True, False]
    types = {name: x.dtype for name, x in batch.items()}
    assert types == {
        "ids": torch.int64,
        "action_mask": torch.float32,
        "rewards": torch.float32,
        "n_turns": torch.float32,
        "submitted": torch.bool,
    }


def test_a_batch_of_another_environment_needs_no_turns(tok):
    trajs = [replace(trajectory(1.0), info={}), replace(trajectory(0.0), info={})]
    assert set(arl.collate(trajs, tok.pad_id)) == {"ids", "action_mask", "rewards"}


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), -float("inf"), "1"])
@pytest.mark.parametrize("place", [0, 2])
def test_a_reward_that_is_no_finite_number_names_its_episode(tok, bad, place):
    trajs = [trajectory(0.0) for _ in range(3)]
    trajs[place] = replace(trajs[place], reward=bad)
    with pytest.raises((ValueError, TypeError), match=f"episode {place}.*finite") as e:
        arl.collate(trajs, tok.pad_id)
    assert repr(bad) in str(e.value)


def test_a_reward_of_numpy_is_a_reward(tok):
    trajs = [replace(trajectory(0.0), reward=np.float32(0.5)), trajectory(1.0)]
    assert arl.collate(trajs, tok.pad_id)["rewards"].tolist() == [0.5, 1.0]


def test_an_empty_batch_is_named(tok):
    with pytest.raises(ValueError, match=r"len\(trajs\) is 0"):
        arl.collate([], tok.pad_id)


# ---- demonstrations


def test_the_oracle_shows_thirteen_policy_tokens(tok):
    for task in TASKS:
        t = arl.demonstrate("oracle", task, tok, random.Random(0))
        words = ("read", task.fix_op, "test", "submit")
        assert t.info["actions"] == [call(word) for word in words]
        assert t.reward == 1.0 and t.action_mask.sum() == 13


def test_the_blind_player_edits_once_and_submits(tok):
    rng, firsts = random.Random(0), set()
    for _ in range(60):
        t = arl.demonstrate("blind", TASKS[0], tok, rng)
        assert len(t.info["ops"]) == 1 and len(t.info["actions"]) == 2
        firsts |= set(t.info["ops"])
        assert t.info["submitted"]
    assert firsts == set(arl.FIX_OPS)


def test_the_random_player_makes_any_call_until_it_submits(tok):
    rng = random.Random(0)
    shown = [arl.demonstrate("random", TASKS[0], tok, rng).info for _ in range(80)]
    assert {text for info in shown for text in info["actions"]} == set(arl.CALLS)
    for info in shown:
        assert info["submitted"] or info["n_turns"] == 6
        assert call("submit") not in info["actions"][:-1]


@pytest.mark.parametrize(
    ("kinds", "shares"),
    [
        (("random", "blind"), [360, 360]),
        (("random", "blind") * 4 + ("oracle",), [80] * 9),
        (("random",) * 7, [103] * 6 + [102]),
        (("oracle",), [720]),
    ],
)
def test_720_demonstrations_dealt_in_turn(tok, monkeypatch, kinds, shares):
    dealt = []
    monkeypatch.setattr(
        episodes, "demonstrate", lambda kind, task, tok, rng: (kind, task)
    )
    dealt = arl.deal_demonstrations(kinds, tok, 0)
    assert len(dealt) == 720
    for kind in set(kinds):
        expected = [n for k, n in zip(kinds, shares, strict=True) if k == kind]
        mine = [task for k, task in dealt if k == kind]
        assert abs(len(mine) - sum(expected)) <= 7 and {t.split for t in mine} == {
            "train"
        }
        counts = [mine.count(task) for task in arl.make_tasks("train")]
        assert max(counts) - min(counts) <= len(kinds)
    whole = 720 // (20 * len(kinds)) * 20 * len(kinds)
    names = [task.name for _, task in dealt[:whole]]
    assert len({names.count(t.name) for t in arl.make_tasks("train")}) == 1


def test_demonstrations_depend_on_the_seed_alone(tok):
    def ids(seed):
        shown = arl.deal_demonstrations(("random", "blind"), tok, seed, n=60)
        return [t.ids.tolist() for t in shown]

    assert ids(0) == ids(0) != ids(1)


def test_imitation_fits_and_is_repeatable(tok, apprentice, apprentice_state):
    demos = arl.deal_demonstrations(("random", "blind", "oracle"), tok, 0, n=40)
    batch = arl.collate(demos, tok.pad_id)

    def fit(model):
        logp = arl.token_log_probs(model, batch["ids"], batch["action_mask"], 1.0)
        return arl.masked_mean(logp, batch["action_mask"]).item()

    results = []
    for _ in range(2):
        model = small_policy(tok, layers=1)
        before, state = fit(model), torch.get_rng_state()
        arl.imitate(model, demos, tok.pad_id, gen())
        assert torch.equal(torch.get_rng_state(), state)
        results.append(weights(model))
    assert torch.equal(*results)
    assert fit(model) > before + 0.5
    assert fit(apprentice) > -1.5  # it has seen more


# ---- base agents


@pytest.fixture
def built(monkeypatch, tmp_path):
    """A cache of its own and an imitation that costs nothing; notes each run of it."""
    runs = []

    def quick(model, demos, pad_id, generator):
        runs.append((len(demos), generator.initial_seed()))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.rand(p.shape, generator=generator))

    monkeypatch.setattr(episodes, "imitate", quick)
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "new" / "cache"))
    return runs


def cached_files(tmp_path):
    folder = tmp_path / "new" / "cache"
    return [path for path in folder.iterdir() if path.suffix != ".lock"]


def test_a_base_agent_is_built_once(tok, built, tmp_path):
    state = torch.get_rng_state()
    first = arl.make_base_agent(tok)
    again = arl.make_base_agent(tok)
    assert built == [(720, 0)]
    assert torch.equal(weights(first), weights(again))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.requires_grad for p in again.parameters())
    assert len(cached_files(tmp_path)) == 1  # in AGENTRL_CACHE, nothing left beside it
    with torch.no_grad():  # one's weights are not the other's
        next(first.parameters()).zero_()
    assert torch.equal(weights(arl.make_base_agent(tok)), weights(again))


def test_seed_kinds_and_vocabulary_have_files_of_their_own(tok, built, tmp_path):
    models = [
        arl.make_base_agent(tok),
        arl.make_base_agent(tok, seed=1),
        arl.make_base_agent(tok, kinds=("random", "oracle")),
        arl.make_base_agent(tok, kinds=("oracle", "random")),
    ]
    longer = arl.build_tokenizer([replace(TASKS[0], issue="issue : zzz")])
    arl.make_base_agent(longer)
    assert len(built) == 5 == len(cached_files(tmp_path))
    assert len({tuple(weights(m)[:9].tolist()) for m in models}) >= 2


@pytest.mark.parametrize("seed", [-1, 0.5, "0", None, True, 2**64])
def test_a_seed_that_is_none_is_named(tok, built, seed):
    match = "seed is .*(at least 0|below 2)"
    with pytest.raises((ValueError, TypeError), match=match) as e:
        arl.make_base_agent(tok, seed)
    assert repr(seed) in str(e.value) and not built


@pytest.mark.parametrize("kinds", [(), ("wizard",), ("random", "Blind"), "random"])
def test_players_that_do_not_exist_are_named(tok, built, kinds):
    with pytest.raises(ValueError, match="kinds is .*'blind', 'oracle', 'random'") as e:
        arl.make_base_agent(tok, kinds=kinds)
    assert repr(kinds) in str(e.value) and not built


def test_a_real_base_agent_writes_calls_and_reads_both_ways(tok):
    """About 12 seconds the first time, then from the cache of this user."""
    model = arl.make_base_agent(tok)
    full, cached = both(model, gyms(TASKS), TASKS, tok)
    same_episodes(full, cached)
    calls = [text for t in full for text in t.info["actions"]]
    assert sum(text in arl.CALLS for text in calls) > 0.9 * len(calls)
