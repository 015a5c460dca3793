"""Environments, groups, and what the episodes of a step say about behaviour."""

import random

import pytest
import torch
from rollouts import gen
from tiny import Scripted, call, trajectory
from updates import BEHAVIOR, TRAIN, config, factory, turns_used

import agentrl as arl

# ---- environments and groups


def test_the_environment_of_a_config():
    free = arl.make_env(arl.RLConfig(max_edits=None, max_turns=4))
    assert type(free) is arl.BugFixEnv and free.max_turns == 4
    cfg = arl.RLConfig(max_edits=2, max_turns=3, reward=turns_used)
    env = arl.make_env(cfg)
    assert type(env) is arl.EditBudgetEnv
    assert (env.max_turns, env.max_edits, env.reward_fn) == (3, 2, turns_used)
    assert arl.make_env(cfg) is not env
    assert type(arl.make_env(arl.RLConfig())) is arl.EditBudgetEnv


@pytest.mark.parametrize("rename", [True, False])
def test_groups_are_contiguous_and_their_attempts_differ(tok, apprentice, rename):
    cfg = config(rename=rename, group_size=5)
    trajs = arl.sample_groups(apprentice, factory(cfg), TRAIN[:4], tok, cfg, gen())
    assert len(trajs) == 20
    for task, group in zip(TRAIN[:4], arl.groups_of(trajs, 5), strict=True):
        assert [t.info["task"] for t in group] == [task.name] * 5
        assert len({tuple(t.ids.tolist()) for t in group}) > 1
        shown = {tok.words[t.ids[3]] for t in group}  # the name in the issue
        assert shown == {task.fn_name} if not rename else len(shown) > 1


@pytest.mark.parametrize("rename", [True, False])
def test_the_seed_of_the_names_is_drawn_first(tok, apprentice, rename):
    """So that renaming or not leaves the numbers that sample tokens where they are."""
    cfg, generator = config(rename=rename), gen(3)
    trajs = arl.sample_groups(apprentice, factory(cfg), TRAIN[:2], tok, cfg, generator)
    again = gen(3)
    rng = random.Random(torch.randint(2**62, (), generator=again).item())
    tasks = [task for task in TRAIN[:2] for _ in range(4)]
    if rename:
        tasks = [arl.randomize_names(task, rng) for task in tasks]
    envs = [arl.make_env(cfg) for _ in tasks]
    by_hand = arl.rollout_batch(apprentice, envs, tasks, tok, generator=again)
    assert [t.ids.tolist() for t in trajs] == [t.ids.tolist() for t in by_hand]
    assert torch.equal(generator.get_state(), again.get_state())


def test_one_seed_fixes_a_step(tok, apprentice):
    cfg = config()

    def ids(seed):
        args = apprentice, factory(cfg), TRAIN, tok, cfg, gen(seed)
        return [t.ids.tolist() for t in arl.sample_groups(*args)]

    assert ids(0) == ids(0) != ids(1)


def test_each_episode_gets_a_fresh_environment(tok, apprentice):
    cfg, made = config(), []

    def make():
        made.append(arl.make_env(cfg))
        return made[-1]

    arl.sample_groups(apprentice, make, TRAIN[:2], tok, cfg, gen())
    assert len(made) == 8 and all(env.done for env in made)
    with pytest.raises(ValueError, match="env_factory is .*fresh"):
        arl.sample_groups(apprentice, lambda: made[0], TRAIN[:2], tok, cfg, gen())


def test_sampling_accepts_a_group_of_one(tok, apprentice):
    cfg = config(group_size=1)
    trajs = arl.sample_groups(apprentice, factory(cfg), TRAIN[:3], tok, cfg, gen())
    assert [t.info["task"] for t in trajs] == [task.name for task in TRAIN[:3]]


def test_groups_that_no_memory_holds_are_refused_before_they_are_made(tok, apprentice):
    made = []
    with pytest.raises(ValueError, match=r"group_size is \d000000000"):
        cfg = config(group_size=10**9)
        arl.sample_groups(
            apprentice, lambda: made.append(1), TRAIN[:2], tok, cfg, gen()
        )
    assert not made


# ---- behaviour


def test_behavior_by_hand():
    trajs = [
        trajectory(1.0, ["swap_minmax"], actions=[call("read"), call("read")], n=5),
        trajectory(0.0, ["fix_init", "swap_minmax"], submitted=True, n=3),
        trajectory(0.5, [], submitted=False, actions=["<call> read read </call>"] * 4),
        trajectory(0.0, ["fix_range_end"], task="range_end/tally", submitted=False),
    ]
    trajs[0].info["actions"].append(call("test"))
    trajs[2].info["hidden_pass"] = True  # but it did not submit
    stats = arl.behavior_stats(trajs)
    assert stats == {
        "pass_rate": 1 / 4,
        "reward": 1.5 / 4,
        "reads": 2 / 4,
        "tests": 1 / 4,
        "edits": 4 / 4,
        "first_edit_right": 2 / 4,
        "turns": (2 + 3 + 4 + 1) / 4,
        "length": (4 + 2 + 3 + 3) / 4,
    }
    assert set(stats) == BEHAVIOR
    with pytest.raises(ValueError, match=r"len\(trajs\) is 0"):
        arl.behavior_stats([])


def test_behavior_counts_policy_tokens_and_exact_calls(tok):
    script = [
        call("read"),
        "read",
        call("fix_init"),
        "<call> edit x </call>",
        call("test"),
    ]
    cfg = config(max_edits=None)
    trajs = arl.sample_groups(
        Scripted(tok, {"": [*script, call("submit")]}),
        factory(cfg),
        TRAIN[:1],
        tok,
        cfg,
        gen(),
    )
    stats = arl.behavior_stats(trajs)
    assert (stats["reads"], stats["tests"], stats["edits"], stats["turns"]) == (
        1,
        1,
        1,
        6,
    )
    assert stats["length"] == 3 + 6 + 4 + 4 + 3 + 3
    assert stats["first_edit_right"] == stats["pass_rate"] == 0
