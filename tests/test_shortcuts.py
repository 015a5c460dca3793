"""Renaming, the edit budget, blind sequences, who reads first."""

import random
import re
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import SECRETS, call, trajectory

import agentrl as arl
from agentrl import shortcuts

TASKS = arl.make_tasks("all")


# ---- names


def test_the_thirty_names():
    assert arl.FN_NAMES == sorted(task.fn_name for task in TASKS)
    assert len(set(arl.FN_NAMES)) == 30


@given(st.sampled_from(TASKS), st.integers())
def test_a_renamed_task(task, seed):
    new = arl.randomize_names(task, random.Random(seed))
    assert new.fn_name in arl.FN_NAMES
    assert new.fn_name not in re.findall(r"\w+", task.source)
    assert new.issue == f"issue : {new.fn_name} returns wrong results"
    assert new.source.count(new.fn_name) == 1
    assert new.source == task.source.replace(
        f"def {task.fn_name}(", f"def {new.fn_name}("
    )
    same = ("name", "split", "fix_op", "public_tests", "hidden_tests")
    assert all(getattr(new, field) == getattr(task, field) for field in same)
    again = arl.randomize_names(new, random.Random(seed + 1))  # a copy can be renamed
    assert again.fn_name != new.fn_name and again.name == task.name


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_every_name_but_the_words_of_the_source_comes_up(task):
    rng = random.Random(0)
    drawn = {arl.randomize_names(task, rng).fn_name for _ in range(600)}
    words = set(re.findall(r"\w+", task.source))
    assert drawn == set(arl.FN_NAMES) - words
    assert task.fn_name not in drawn


def test_a_variable_with_the_name_of_a_function_is_excluded():
    """`limit` is a function here and an argument there."""
    with_limit = [t for t in TASKS if "limit" in re.findall(r"\w+", t.source)]
    assert len(with_limit) > 1
    for task in with_limit:
        for seed in range(80):
            assert arl.randomize_names(task, random.Random(seed)).fn_name != "limit"


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_a_renamed_task_has_the_same_bug_and_the_same_repair(task):
    new = arl.randomize_names(task, random.Random(1))
    for ops, passes in (((), 0.0), ((task.fix_op,), 1.0)):
        assert arl.blind_pass_rate(ops, [new]) == passes


def test_the_draw_belongs_to_the_rng():
    names = [arl.randomize_names(TASKS[0], random.Random(s)).fn_name for s in range(9)]
    state = random.getstate()
    again = [arl.randomize_names(TASKS[0], random.Random(s)).fn_name for s in range(9)]
    assert names == again and random.getstate() == state
    assert len(set(names)) > 3


@pytest.mark.parametrize("task", [SECRETS[0], None, "clamp"])
def test_a_task_of_another_kind_is_named(task):
    state = (rng := random.Random(0)).getstate()
    with pytest.raises(TypeError, match="task is .*a Task; .*rename=False"):
        arl.randomize_names(task, rng)
    assert rng.getstate() == state


# ---- the edit budget


def play(env, *words, task=TASKS[0]):
    env.reset(task)
    return [env.step(call(word)) for word in words]


def test_an_edit_past_the_limit_is_refused():
    env = arl.EditBudgetEnv()
    assert (env.max_turns, env.max_edits) == (6, 1)
    first, second, read, last = play(env, "fix_init", "swap_minmax", "read", "submit")
    assert (first[0], first[3]["event"]) == ("no change", "unchanged")  # it counts
    assert (second[0], second[3]["event"]) == ("no change", "refused")
    assert read[0] == arl.compact_source(TASKS[0].source)  # the source stays
    info = last[3]
    assert info["ops"] == ["fix_init"] and env.ops == ["fix_init"]
    assert info["actions"] == [
        call(w) for w in ("fix_init", "swap_minmax", "read", "submit")
    ]
    assert info["n_turns"] == 4 and last[1] == 0.0


def test_the_right_edit_within_the_limit():
    results = play(arl.EditBudgetEnv(), "swap_minmax", "swap_minmax", "submit")
    assert [r[3].get("event") for r in results[:2]] == ["applied", "refused"]
    assert results[-1][1] == 1.0 and results[-1][3]["hidden_pass"]


def test_a_refusal_on_the_last_turn_ends_the_episode():
    seen = []

    def reward(info):
        seen.append(info)
        return 0.5

    env = arl.EditBudgetEnv(max_turns=2, reward=reward)
    _, (answer, value, done, info) = play(env, "swap_minmax", "fix_init")
    assert (answer, value, done) == ("no change", 0.5, True)
    assert seen == [info] and info["submitted"] is False and info["hidden_pass"]
    assert info["ops"] == ["swap_minmax"]
    hidden = play(arl.EditBudgetEnv(max_turns=2), "swap_minmax", "fix_init")
    assert hidden[-1][1:3] == (0.0, True)


def test_a_budget_of_none_and_of_three():
    results = play(arl.EditBudgetEnv(max_edits=0), "swap_minmax", "submit")
    assert results[0][3]["event"] == "refused" and results[1][3]["ops"] == []
    words = ("fix_init", "fix_init", "swap_minmax", "swap_minmax")
    events = [r[3]["event"] for r in play(arl.EditBudgetEnv(max_edits=3), *words)]
    assert events == ["unchanged", "unchanged", "applied", "refused"]


def test_an_unknown_edit_is_invalid_and_not_refused():
    env = arl.EditBudgetEnv(max_edits=1)
    env.reset(TASKS[0])
    for _ in range(2):
        answer, _, _, info = env.step("<call> edit paint </call>")
        assert (answer, info["event"]) == ("invalid call", "invalid")
        env.step(call("fix_init"))
    assert env.ops == ["fix_init"]


def test_the_budget_starts_again_with_each_episode():
    env = arl.EditBudgetEnv()
    for _ in range(2):
        assert play(env, "swap_minmax", "submit")[-1][1] == 1.0


@given(st.lists(st.sampled_from(arl.FIX_OPS), max_size=6), st.integers(0, 6))
def test_it_is_the_free_gym_up_to_the_limit(ops, limit):
    env = arl.EditBudgetEnv(max_turns=9, max_edits=limit)
    free = arl.BugFixEnv(max_turns=9)
    results, expected = play(env, *ops, "submit"), play(free, *ops[:limit], "submit")
    assert env.source == free.source and env.ops == ops[:limit]
    assert results[-1][1] == expected[-1][1]
    refused = [r[3].get("event") == "refused" for r in results[:-1]]
    assert refused == [i >= limit for i in range(len(ops))]


@pytest.mark.parametrize("bad", [-1, 0.5, "1", None, True])
def test_an_impossible_budget_is_named(bad):
    with pytest.raises((ValueError, TypeError), match="max_edits is .*at least 0") as e:
        arl.EditBudgetEnv(max_edits=bad)
    assert repr(bad) in str(e.value)
    with pytest.raises((ValueError, TypeError), match="max_turns is 0"):
        arl.EditBudgetEnv(max_turns=0)
    with pytest.raises((ValueError, TypeError), match="reward is 'x'"):
        arl.EditBudgetEnv(reward="x")


# ---- blind sequences


def test_blind_sequences_by_hand():
    minmax = TASKS[:6]
    assert arl.blind_pass_rate(["swap_minmax"], minmax) == 1.0
    assert arl.blind_pass_rate(("swap_minmax", "swap_minmax"), minmax) == 0.0
    assert arl.blind_pass_rate([], TASKS) == 0.0
    assert arl.blind_pass_rate(["fix_init"] * 7 + ["swap_minmax"], minmax) == 1.0
    assert arl.blind_pass_rate(["swap_minmax"], TASKS[3:9]) == 0.5


def test_four_or_five_edits_add_nothing_in_their_best_order():
    best = ["swap_minmax", "fix_range_end", "fix_comparison"]
    for more in (["fix_init"], ["fix_accumulate"], ["fix_init", "fix_accumulate"]):
        assert arl.blind_pass_rate(best + more, TASKS) <= 0.60


def test_what_blind_sequences_refuse():
    with pytest.raises(ValueError, match="ops is 'paint'; .*'swap_minmax'"):
        arl.blind_pass_rate(["fix_init", "paint"], TASKS)
    with pytest.raises(ValueError, match=r"len\(tasks\) is 0"):
        arl.blind_pass_rate(["fix_init"], [])


# ---- reading before the first edit


def episode(*words, task="minmax/clamp", applied=None):
    ops = [w for w in words if w in arl.FIX_OPS] if applied is None else applied
    return trajectory(0.0, ops, task, actions=[call(w) for w in words])


def test_read_then_edit_by_hand():
    trajs = [
        episode("read", "swap_minmax", "submit"),  # reads first, right
        episode("read", "read", "fix_init", "swap_minmax"),  # reads first, wrong
        episode("swap_minmax", "read", "submit"),  # right, but reads later
        episode("test", "read", "fix_range_end", task="range_end/tally"),  # right
        episode("read", "submit"),  # no edit
        episode("submit"),
    ]
    assert arl.read_then_edit(trajs) == (3 / 6, 2 / 3, 3)


def test_without_readers_nothing_is_divided_by_zero():
    assert arl.read_then_edit([episode("swap_minmax", "submit")]) == (0.0, 0.0, 0)


def test_an_edit_that_was_not_applied_is_no_first_edit():
    """An unknown op and a refusal do not count; the first of `ops` does."""
    t = episode("read", "swap_minmax")
    t.info["actions"].insert(0, "<call> edit paint </call>")
    assert arl.read_then_edit([t]) == (1.0, 1.0, 1)
    refused = episode("fix_init", "read", applied=[])
    assert arl.read_then_edit([refused]) == (0.0, 0.0, 0)


def test_read_then_edit_needs_episodes():
    with pytest.raises(ValueError, match=r"len\(trajs\) is 0"):
        arl.read_then_edit([])


def test_a_task_of_ones_own_brings_its_repair_along():
    """No table of the gym's own tasks is asked."""
    t = episode("read", "fix_init", "submit")
    t.info.update(task="mine/add", fix_op="fix_init")
    assert arl.read_then_edit([t]) == (1.0, 1.0, 1)
    assert list(arl.call_sequences([t])) == ["read, right edit, submit"]


@pytest.mark.parametrize("key", ["actions", "fix_op", "ops"])
def test_an_info_without_the_keys_is_named(key):
    good, poor = episode("read", "submit"), episode("read", "submit")
    del poor.info[key]
    with pytest.raises(ValueError, match=rf"trajs\[1\].info is .*with .*{key}"):
        arl.read_then_edit([good, poor])
    if key != "ops":
        with pytest.raises(ValueError, match=r"trajs\[0\].info is "):
            arl.call_sequences([poor, good])


# ---- the base agent of this chapter


def test_the_rl_base_has_one_oracle_set_in_nine(tok, monkeypatch):
    seen = []

    def make(tok, seed=0, kinds=("random", "blind")):
        seen.append((seed, tuple(kinds)))
        return "model"

    monkeypatch.setattr(shortcuts, "make_base_agent", make)
    kinds = ("random", "blind") * 4 + ("oracle",)
    assert arl.make_rl_base(tok) == arl.make_rl_base(tok, seed=3) == "model"
    assert seen == [(0, kinds), (3, kinds)]


# ---- sequences of calls


def test_sequences_tell_right_edits_from_wrong_ones():
    trajs = [
        episode("read", "swap_minmax", "test", "submit"),
        episode("read", "fix_init", "submit", task="init/times"),
        episode("read", "fix_init", "submit"),
        episode("read", "swap_minmax", "test", "submit"),
    ]
    trajs[2].info["actions"].insert(1, "<call> edit paint")
    assert arl.call_sequences(trajs) == {
        "read, right edit, test, submit": 2,
        "read, right edit, submit": 1,
        "read, invalid call, wrong edit, submit": 1,
    }
    assert arl.call_sequences([]) == {}


# ---- What a policy considers


def test_the_probability_of_a_call_is_the_product_of_its_tokens(tok, apprentice):
    context = tok.encode("<bos> " + TASKS[0].issue)
    probs = arl.call_probabilities(apprentice, tok, [context, context[:2]], 0.7)
    assert probs.shape == (2, len(arl.CALLS))
    for before, row in zip((context, context[:2]), probs, strict=True):
        for text, p in zip(arl.CALLS, row, strict=True):
            ids, expected = list(before), 1.0
            for token in tok.encode(text):
                logits = apprentice(torch.tensor([ids]))[0, -1] / 0.7
                expected *= logits.softmax(0)[token].item()
                ids.append(token)
            assert p.item() == pytest.approx(expected, rel=1e-4)
    assert (probs.sum(1) <= 1 + 1e-5).all() and not probs.requires_grad


def episodes(apprentice, tok, n=3):
    cfg = arl.RLConfig(group_size=n)
    generator = torch.Generator().manual_seed(0)
    return arl.sample_groups(
        apprentice, lambda: arl.make_env(cfg), TASKS[:2], tok, cfg, generator
    )


def test_the_calls_of_an_episode_are_what_its_environment_heard(tok, apprentice):
    for traj in episodes(apprentice, tok):
        calls = arl.calls_of(traj)
        assert [tok.decode(written) for _, written in calls] == traj.info["actions"]
        ids = traj.ids.tolist()
        for before, written in calls:
            assert ids[: len(before) + len(written)] == before + written
        before, written = calls[-1]
        assert len(before) + len(written) == len(ids)  # nothing follows the last call


def test_a_transcript_has_a_row_a_call_and_escapes_what_was_written(tok, apprentice):
    for traj in episodes(apprentice, tok):
        table = ElementTree.fromstring(
            arl.transcript(apprentice, tok, traj).replace("<br>", "<br/>")
        )
        rows = table.findall("tr")[1:]
        texts = ["".join(row[1].itertext()) for row in rows]
        plain = [a.replace("<call> ", "").replace(" </call>", "") for a in
                 traj.info["actions"]]  # fmt: skip
        assert texts == plain


@pytest.mark.parametrize(
    ("contexts", "temperature", "match"),
    [
        ([], 1.0, r"contexts is \[\]; allowed: .*at least one"),
        ([[1], []], 1.0, r"contexts is \[\[1\], \[\]\]; .*at least one id each"),
        ([[1]], 0.0, "temperature is 0.0; .*above 0"),
    ],
)
def test_what_call_probabilities_refuses(tok, apprentice, contexts, temperature, match):
    with pytest.raises(ValueError, match=match):
        arl.call_probabilities(apprentice, tok, contexts, temperature)
