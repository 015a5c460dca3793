"""Tasks and environments of one's own, statistics of one's own, factories."""

import math
import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from tiny import SECRETS, Bigram, GuessEnv, guess_tokenizer, small_policy, weights
from updates import BEHAVIOR, HELDOUT, TRAIN, UPDATE, config, train, turns_used

import agentrl as arl

# ---- tasks


ADD = """\
def add(n):
    t = 0
    for i in range(1, n):
        t += i
    return t
"""


def own_task(name="mine/add"):
    issue = "issue : add returns wrong results"
    tests = [((3,), 6), ((4,), 10)], [((5,), 15)]
    return arl.Task(name, "train", "add", issue, ADD, "fix_range_end", *tests)


def test_a_task_of_ones_own_is_evaluated_and_trained(tok, apprentice):
    tasks = [own_task(), own_task("mine/again")]
    words = arl.build_tokenizer(tasks)
    stats = arl.evaluate(small_policy(words), tasks, words, 4, cfg=config())
    assert set(stats) == BEHAVIOR
    cfg = config(prompts_per_step=2)
    model = small_policy(words)
    history = arl.train_rl(model, tasks, words, cfg, 2, eval_tasks=tasks[:1])
    assert len(history) == 2 and set(history[0]) >= BEHAVIOR | UPDATE | {"eval_pass"}


def test_the_right_edit_is_that_of_the_task_itself(tok):
    """Also under a name that the gym has: no table of names decides."""
    task = replace(TRAIN[0], fix_op="fix_init")
    env = arl.BugFixEnv()
    env.reset(task)
    env.step("<call> edit fix_init </call>")
    info = env.step("<call> submit </call>")[3]
    traj = arl.Trajectory(torch.arange(4), torch.ones(3), 0.0, info)
    assert arl.behavior_stats([traj])["first_edit_right"] == 1


# ---- environments of another kind


def test_an_environment_of_another_kind_trains():
    tok = guess_tokenizer()
    torch.manual_seed(0)
    model = arl.Policy(len(tok), width=16, layers=1, heads=2)
    cfg = arl.RLConfig(rename=False, max_turns=4, lr=0.01, prompts_per_step=6)
    before = weights(model)
    history = arl.train_rl(
        model, SECRETS, tok, cfg, 2, env_factory=GuessEnv, eval_tasks=SECRETS[:2]
    )
    assert not torch.equal(weights(model), before)
    for record in history:
        assert {"reward", "turns", "length", "pass_rate"} <= set(record)
        assert not {"reads", "tests", "edits", "first_edit_right"} & set(record)
        assert all(math.isfinite(value) for value in record.values())
        assert 1 <= record["turns"] <= 4
        assert record["turns"] <= record["length"] <= 4 * arl.MAX_CALL_TOKENS
    assert 0 <= history[-1]["eval_pass"] <= 1
    assert arl.log_line(history[-1]).startswith("step   1 | reward ")
    stats = arl.evaluate(model, SECRETS, tok, 2, cfg=cfg, env_factory=GuessEnv)
    assert set(stats) == {"reward", "turns", "length", "pass_rate"}


def test_turns_are_counted_from_the_calls_where_no_info_says():
    """Two calls of the policy, parted by what the environment said."""
    mask = torch.tensor([1.0, 1, 0, 0, 1, 1, 1])
    traj = arl.Trajectory(torch.arange(8), mask, 1.0, {})
    later = replace(traj, action_mask=torch.tensor([0.0, 0, 1, 1, 0, 0, 0]))
    assert arl.behavior_stats([traj])["turns"] == 2
    assert arl.behavior_stats([traj])["length"] == 5
    assert arl.behavior_stats([traj, later])["turns"] == 1.5


def test_a_statistic_that_one_episode_lacks_is_left_out():
    mask = torch.ones(3)
    full = arl.Trajectory(torch.arange(4), mask, 1.0, {"ops": ["fix_init"]})
    bare = arl.Trajectory(torch.arange(4), mask, 0.0, {})
    assert arl.behavior_stats([full])["edits"] == 1
    for trajs in ([full, bare], [bare, full]):
        stats = arl.behavior_stats(trajs)
        assert "edits" not in stats and stats["reward"] == 0.5


def test_names_are_given_to_tasks_of_the_gym_only():
    tok, made = guess_tokenizer(), []
    with pytest.raises(ValueError, match="rename is True; .*False"):
        arl.train_rl(
            Bigram(len(tok)),
            SECRETS,
            tok,
            config(max_turns=4),
            1,
            env_factory=lambda: made.append(1) or GuessEnv(),
        )
    assert not made


# ---- statistics of one's own


def test_own_statistics_take_the_place_of_ours(tok, apprentice):
    def stats(trajs):
        return {"longest": max(len(t.ids) for t in trajs), "reward": 0.25}

    found = arl.evaluate(apprentice, TRAIN[:3], tok, 2, cfg=config(), stats=stats)
    assert set(found) == {"longest", "reward"} and found["longest"] > 7
    (record,) = train(apprentice, tok, config(), 1, stats=stats)
    expected = {"step", "n_episodes", "zero_adv_frac", "longest", "reward"} | UPDATE
    assert set(record) == expected and record["reward"] == 0.25
    assert arl.log_line(record).startswith("step   0 | reward 0.250 | entropy ")


def test_own_statistics_leave_the_training_as_it_was(tok, apprentice):
    other = small_policy(tok, width=32)
    other.load_state_dict(apprentice.state_dict())
    train(apprentice, tok, config(), 2)
    train(other, tok, config(), 2, stats=lambda trajs: {}, eval_tasks=HELDOUT[:1])
    assert torch.equal(weights(apprentice), weights(other))


# ---- a factory with a random stream of its own


class Moody:
    """Environments whose rules are drawn from a stream of the factory's own."""

    def __init__(self, kind=arl.BugFixEnv):
        self.kind, self.rng = kind, random.Random(0)

    def __call__(self):
        return self.kind(self.rng.randint(2, 6), reward=turns_used)

    def make(self):
        return self()


def drawn(rng):
    return arl.BugFixEnv(rng.randint(2, 6), reward=turns_used)


def of_python():
    random.seed(3)
    return lambda: drawn(random)


def of_torch():
    """`train_rl` sets this seed, for environments like these."""
    return lambda: arl.BugFixEnv(int(torch.randint(2, 7, ())), reward=turns_used)


FACTORIES = {
    "an object": Moody,
    "a method": lambda: Moody().make,
    "a partial": lambda: partial(drawn, random.Random(0)),
    "the stream of Python": of_python,
    "the stream of torch": of_torch,
    "a pool of names": lambda: arl.pool_env("train", 0),
}


@pytest.mark.parametrize("kind", FACTORIES)
def test_evaluation_draws_from_no_stream_of_the_training(tok, apprentice, kind):
    cfg, results = config(max_edits=None, rename=False), []
    state = apprentice.state_dict()
    for watched in ({}, {"eval_tasks": HELDOUT[:2], "eval_every": 1}):
        model = small_policy(tok, width=32)
        model.load_state_dict(state)
        history = train(model, tok, cfg, 3, env_factory=FACTORIES[kind](), **watched)
        looks = [record.pop("eval_pass", None) for record in history]
        assert (None in looks) is not bool(watched)
        results.append((history, weights(model).tolist()))
    assert results[0] == results[1]
    assert len({record["length"] for record in results[0][0]}) > 1


def test_every_look_at_the_held_out_tasks_meets_the_same_rules(tok, apprentice):
    """Each evaluation begins with the factory as it was at the call."""
    seen = []

    class Watched(arl.BugFixEnv):
        def reset(self, task):
            if task.split == "heldout":
                seen.append(self.max_turns)
            return super().reset(task)

    looks = {"eval_tasks": HELDOUT[:2], "eval_every": 1}
    train(apprentice, tok, config(), 3, env_factory=Moody(Watched), **looks)
    assert len(seen) == 3 * 8
    assert seen[:8] == seen[8:16] == seen[16:] and len(set(seen)) > 1


def test_a_factory_that_cannot_be_copied_is_named_before_any_work(tok, apprentice):
    made = []

    class Single:
        def __call__(self):
            made.append(1)
            return arl.BugFixEnv()

        def __deepcopy__(self, memo):
            raise TypeError("there is but one")

    with pytest.raises(TypeError, match="env_factory is .*copy"):
        train(apprentice, tok, config(), env_factory=Single(), eval_tasks=HELDOUT[:1])
    assert not made
    assert len(train(apprentice, tok, config(), 1, env_factory=Single())) == 1
