"""The gym: calls, the environment, what an own environment must have."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import SECRETS, GuessEnv, call, passes

import agentrl as arl

TASKS = arl.make_tasks("all")
OPS = ["swap_minmax", "fix_range_end", "fix_comparison", "fix_init", "fix_accumulate"]


# ---- calls


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("<call> read </call>", ("read",)),
        ("<call> test </call>", ("test",)),
        ("<call> submit </call>", ("submit",)),
        *((f"<call> edit {op} </call>", ("edit", op)) for op in OPS),
        ("<call> edit anything </call>", ("edit", "anything")),
        ("<call> edit read </call>", ("edit", "read")),
        ("<call> edit </call>", None),
        ("<call> edit fix_init fix_init </call>", None),
        ("<call> read fix_init </call>", None),
        ("<call> read", None),
        ("read </call>", None),
        ("<call> </call>", None),
        ("<call> reading </call>", None),
        ("<call> read </call> ", None),
        ("<call> read </call>\n", None),
        ("<call>  read </call>", None),
        ("<call> read </call> <call> read </call>", None),
        ("", None),
    ],
)
def test_calls_are_parsed_to_the_letter(text, parsed):
    assert arl.parse_call(text) == parsed


@given(st.text(max_size=30))
def test_any_other_text_is_no_call(text):
    assert arl.parse_call(text) is None
    assert arl.parse_call(f"<call> {text} </call>") in {
        None,
        *((word,) for word in ("read", "test", "submit")),
        ("edit", text.removeprefix("edit ")),
    }


def test_messages():
    assert arl.MESSAGES["unchanged"] == "no change"
    assert arl.MESSAGES["applied"] == "edit applied"
    assert arl.MESSAGES["invalid"] == "invalid call"


# ---- any environment


@pytest.mark.parametrize("make", [arl.BugFixEnv, arl.EditBudgetEnv, GuessEnv])
def test_an_environment_is_known_by_its_methods(make):
    assert isinstance(make(), arl.Env)


@pytest.mark.parametrize("thing", [None, arl.BugFixEnv.step, TASKS[0], "env"])
def test_what_cannot_be_stepped_is_no_environment(thing):
    assert not isinstance(thing, arl.Env)


def test_the_infos_of_the_gym_have_the_keys_that_are_documented():
    env, keys = arl.BugFixEnv(), set(arl.EpisodeInfo.__annotations__)
    env.reset(TASKS[0])
    seen = set(env.step(call("read"))[3]) | set(env.step(call("submit"))[3])
    assert seen == keys and not arl.EpisodeInfo.__required_keys__


def test_a_game_of_another_kind():
    """The one that the tests of the trainer play."""
    env = GuessEnv(max_turns=3)
    assert env.reset(SECRETS[3]) == "guess a digit"
    assert env.step("<call> 2 </call>") == ("up", 0.0, False, {})
    assert env.step("no digit")[:3] == ("what", 0.0, False)
    info = {"task": "secret/4", "guesses": [2, None, 4]}
    assert env.step("4") == ("right", 1.0, True, info)
    env.reset(SECRETS[0])
    assert [env.step("6")[:3] for _ in range(3)][1:] == [
        ("down", 0.0, False),
        ("down", 0.0, True),
    ]


def test_a_task_of_ones_own_is_played_like_the_others():
    source = "def add(a, b):\n    total = 0\n    for i in (a, b):\n        total = i\n"
    source += "    return total\n"
    tests = [((1, 2), 3), ((4, 5), 9)]
    task = arl.Task(
        "mine/add",
        "train",
        "add",
        "issue : add",
        source,
        "fix_accumulate",
        tests,
        tests,
    )
    env = arl.BugFixEnv()
    env.reset(task)
    assert env.step(call("test"))[0] == "0 of 2 tests pass"
    env.step(call("fix_accumulate"))
    _, reward, done, info = env.step(call("submit"))
    assert (reward, done, info["task"]) == (1.0, True, "mine/add")
    assert info["fix_op"] == "fix_accumulate"


# ---- the environment


def clamp(env, *words):
    """Play calls on the first task; returns what the last one gave."""
    env.reset(TASKS[0])
    for word in words:
        result = env.step(call(word))
    return result


def test_an_episode_by_hand():
    env = arl.BugFixEnv()
    assert env.reset(TASKS[0]) == "issue : clamp returns wrong results"
    assert (env.turn, env.max_turns, env.done, env.ops) == (0, 6, False, [])
    read = env.step("<call> read </call>")
    assert read == (arl.compact_source(TASKS[0].source), 0.0, False, read[3])
    assert read[3] == {"turn": 1, "event": "read"}
    answer, reward, done, info = env.step("<call> test </call>")
    passed = sum(passes(TASKS[0])[:3])
    assert (answer, reward, done) == (f"{passed} of 3 tests pass", 0.0, False)
    answer, *_, info = env.step("<call> edit swap_minmax </call>")
    assert (answer, info) == ("edit applied", {"turn": 3, "event": "applied"})
    assert "max ( lower" in env.step("<call> read </call>")[0]
    assert env.step("<call> test </call>")[0] == "3 of 3 tests pass"
    answer, reward, done, info = env.step("<call> submit </call>")
    assert (reward, done, env.done, env.turn) == (1.0, True, True, 6)
    assert info == {
        "task": "minmax/clamp",
        "submitted": True,
        "hidden_pass": True,
        "public_pass": True,
        "fix_op": "swap_minmax",
        "ops": ["swap_minmax"],
        "actions": [
            call(w) for w in ("read", "test", "swap_minmax", "read", "test", "submit")
        ],
        "n_turns": 6,
    }
    assert info == env.final_info(True)


def test_every_call_costs_a_turn_malformed_ones_too():
    env = arl.BugFixEnv(max_turns=4)
    env.reset(TASKS[0])
    texts = [
        "",
        "<call> edit paint </call>",
        "<call> read",
        "<call> edit fix_init </call>",
    ]
    results = [env.step(text) for text in texts]
    assert [r[0] for r in results] == ["invalid call"] * 3 + ["no change"]
    assert [r[3].get("event") for r in results[:3]] == ["invalid"] * 3
    info = results[-1][3]
    assert info["actions"] == texts and info["n_turns"] == 4
    assert info["ops"] == ["fix_init"]  # applied, though the text stayed as it was
    assert info["submitted"] is False and results[-1][1:3] == (0.0, True)


def test_a_repair_without_submit_earns_nothing():
    for env in (arl.BugFixEnv(max_turns=1), arl.BugFixEnv(1, "public")):
        _, reward, done, info = clamp(env, "swap_minmax")
        assert (reward, done, info["submitted"], info["hidden_pass"]) == (
            0.0,
            True,
            False,
            True,
        )


def test_submit_on_the_last_turn_counts():
    _, reward, done, info = clamp(arl.BugFixEnv(max_turns=2), "swap_minmax", "submit")
    assert (reward, done, info["submitted"], info["n_turns"]) == (1.0, True, True, 2)


def test_hidden_and_public_rewards_differ():
    task = replace(TASKS[0], hidden_tests=(((0, 2, 5), 99),))
    rewards = {}
    for kind in ("hidden", "public"):
        env = arl.BugFixEnv(reward=kind)
        env.reset(task)
        env.step(call("swap_minmax"))
        rewards[kind] = env.step(call("submit"))[1]
    assert rewards == {"hidden": 0.0, "public": 1.0}


@pytest.mark.parametrize(
    "words", [("submit",), ("read", "read"), ("fix_init", "submit")]
)
def test_a_reward_function_gets_the_final_info_once(words):
    seen = []

    def reward(info):
        seen.append(info)
        return 3

    env = arl.BugFixEnv(max_turns=2, reward=reward)
    assert env.reward_fn is reward
    _, value, done, info = clamp(env, *words)
    assert done and len(seen) == 1 and seen[0] == info
    assert type(value) is float and value == 3.0
    assert info["submitted"] == (words[-1] == "submit")


@pytest.mark.parametrize(
    "value",
    [1, True, 0.5, np.float32(1), np.float64(0.5), np.int64(1), Fraction(1, 2)],
    ids=repr,
)
def test_any_real_number_is_a_reward(value):
    _, reward, *_ = clamp(arl.BugFixEnv(reward=lambda info: value), "submit")
    assert type(reward) is float and reward == value


NOT_REAL = [float("nan"), float("inf"), -float("inf"), None, "1", [], 1j]
NOT_REAL += [np.float32("nan"), np.float64("inf")]


@pytest.mark.parametrize("bad", NOT_REAL, ids=repr)
def test_a_reward_that_is_no_finite_number_is_an_error(bad):
    env = arl.BugFixEnv(reward=lambda info: bad)
    env.reset(TASKS[0])
    with pytest.raises(
        (ValueError, TypeError), match="minmax/clamp.*finite number"
    ) as e:
        env.step(call("submit"))
    assert repr(bad) in str(e.value)


@pytest.mark.parametrize("reward", ["secret", None, 1.0, "Hidden", [], {}])
def test_an_unknown_reward_is_named(reward):
    with pytest.raises(
        (ValueError, TypeError), match="reward.*'hidden', 'public'"
    ) as e:
        arl.BugFixEnv(reward=reward)
    assert repr(reward) in str(e.value)


@pytest.mark.parametrize("turns", [0, -1, 2.0, "6", None, True])
def test_an_impossible_number_of_turns_is_named(turns):
    with pytest.raises((ValueError, TypeError), match="max_turns.*at least 1") as e:
        arl.BugFixEnv(max_turns=turns)
    assert repr(turns) in str(e.value)


def test_no_step_before_reset_or_after_the_end():
    env = arl.BugFixEnv()
    for _ in range(2):
        with pytest.raises(ValueError, match="reset"):
            env.step(call("read"))
        env.reset(TASKS[0])
        env.step(call("submit"))
    env.reset(TASKS[0])
    assert (env.turn, env.done, env.ops, env.actions) == (0, False, [], [])


def test_an_info_is_a_copy():
    env = arl.BugFixEnv()
    env.reset(TASKS[0])
    before = env.final_info(False)
    env.step(call("fix_init"))
    assert before["ops"] == [] and before["actions"] == []


words = st.lists(st.sampled_from([*OPS, "read", "test", "submit"]), max_size=12)


@given(words, st.integers(1, 8), st.sampled_from(TASKS))
def test_the_rules_hold_for_any_play(played, max_turns, task):
    env = arl.BugFixEnv(max_turns)
    env.reset(task)
    done, source, texts = False, task.source, []
    for word in played:
        if done:
            break
        texts.append(call(word))
        answer, reward, done, info = env.step(texts[-1])
        if word in OPS:
            before, source = source, arl.EDIT_OPS[word](source, task.public_tests)
            assert answer == ("no change" if source == before else "edit applied")
        assert done == (word == "submit" or len(texts) == max_turns)
        assert reward == 0.0 or done
        assert env.turn == len(texts)
    if done:
        assert info["actions"] == texts
        assert info["ops"] == [w for w in played[: len(texts)] if w in OPS]
        assert info["submitted"] == (texts[-1] == call("submit"))
        verdicts = passes(replace(task, source=source))
        assert (info["public_pass"], info["hidden_pass"]) == (
            all(verdicts[:3]),
            all(verdicts[3:]),
        )
        assert reward == float(info["submitted"] and info["hidden_pass"])


def test_two_environments_are_equal_only_if_they_are_one():
    """They are kept in sets, and told apart in lists."""
    one, other = arl.BugFixEnv(), arl.BugFixEnv()
    assert one != other and len({one, other}) == 2
    assert repr(arl.BugFixEnv(3)) == "BugFixEnv(max_turns=3, reward='hidden')"
