"""One episode by hand; what a rollout refuses."""

import numpy as np
import pytest
import torch
from rollouts import TASKS, Chatty, Plain, gen, play
from tiny import Bigram, Scripted, call, small_policy

import agentrl as arl

# ---- one episode by hand


SCRIPT = {
    "clamp": [call("read"), call("swap_minmax"), call("submit")],
    "": ["read read", call("fix_init"), call("test"), call("submit")],
}


def test_an_episode_token_by_token(tok):
    (traj,) = play(Scripted(tok, SCRIPT), TASKS[:1], tok)
    source = arl.compact_source(TASKS[0].source)
    pieces = [
        ("<bos> issue : clamp returns wrong results", 0),
        ("<call> read </call>", 1),
        (f"<obs> {source} </obs>", 0),
        ("<call> edit swap_minmax </call>", 1),
        ("<obs> edit applied </obs>", 0),
        ("<call> submit </call>", 1),
    ]
    ids = [i for text, _ in pieces for i in tok.encode(text)]
    mask = [float(m) for text, m in pieces for _ in text.split()]
    assert traj.ids.tolist() == ids and traj.ids.dtype == torch.int64
    assert traj.action_mask.tolist() == mask[1:]
    assert traj.action_mask.dtype == torch.float32
    assert type(traj.reward) is float and traj.reward == 1.0
    assert traj.info["ops"] == ["swap_minmax"] and traj.info["submitted"]


def test_calls_are_cut_and_episodes_keep_the_order_of_their_tasks(tok):
    tasks = [TASKS[4], TASKS[0], TASKS[20]]
    trajs = play(Scripted(tok, SCRIPT), tasks, tok)
    assert [t.info["task"] for t in trajs] == [t.name for t in tasks]
    assert trajs[0].info["actions"] == [
        "read read read read read read",
        *map(call, ("fix_init", "test", "submit")),
    ]
    assert [t.info["n_turns"] for t in trajs] == [4, 3, 4]
    assert [t.action_mask.sum().item() for t in trajs] == [6 + 4 + 3 + 3, 10, 16]
    assert [tok.decode(t.ids[-3:]) for t in trajs] == ["<call> submit </call>"] * 3


@pytest.mark.parametrize("cached", [True, False])
def test_the_mask_marks_what_was_sampled_to_the_closing_token(tok, apprentice, cached):
    """Over real episodes: 1 on every word of a call, `</call>` too; 0 on the rest."""
    model = apprentice if cached else Plain(apprentice)
    trajs = play(model, TASKS[:20], tok, generator=gen())
    for t in trajs:
        written = t.ids[1:][t.action_mask.bool()].tolist()
        assert tok.decode(written) == " ".join(t.info["actions"])
        assert t.action_mask[-1] == 1  # nothing follows the last call
        assert set(t.action_mask.tolist()) == {0.0, 1.0}
        assert len(t.action_mask) == len(t.ids) - 1
        inside = False
        for word, m in zip(
            tok.decode(t.ids[1:]).split(), t.action_mask.tolist(), strict=True
        ):
            inside = inside or (word == "<obs>" and m == 0)
            assert not (inside and m)
            inside = inside and word != "</obs>"
    assert any(len(text.split()) == 6 for t in trajs for text in t.info["actions"])
    assert len({t.info["submitted"] for t in trajs}) == 2


def test_the_ids_are_those_that_were_sampled(tok):
    """Specials that a policy writes stay what they are: no detour over text."""
    odd = "<unk> <pad> <obs> <bos> </call>"
    (traj,) = play(Scripted(tok, {"": [odd]}), TASKS[:1], tok, max_turns=1)
    assert traj.ids[7:].tolist() == tok.encode(odd)
    assert traj.info["actions"] == [odd] and traj.action_mask[6:].all()


# ---- what a rollout refuses


def test_an_environment_that_is_not_done_is_an_error(tok):
    with pytest.raises(ValueError, match="done of episode 1 after max_turns"):
        arl.rollout_batch(
            small_policy(tok), [Chatty(3), Chatty(4)], TASKS[:2], tok, max_turns=3
        )


def test_an_environment_may_end_before_max_turns(tok):
    envs = [Chatty(2), Chatty(5)]
    trajs = arl.rollout_batch(small_policy(tok), envs, TASKS[:2], tok, max_turns=9)
    assert [len(t.info["actions"]) for t in trajs] == [2, 5]
    assert all(type(t.reward) is float for t in trajs)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"max_turns": 0}, "max_turns"),
        ({"max_turns": 2.5}, "max_turns"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": None}, "temperature"),
    ],
)
def test_what_rollouts_refuse(tok, options, name):
    env = Chatty(1)
    with pytest.raises((ValueError, TypeError), match=f"{name} is ") as e:
        arl.rollout_batch(small_policy(tok), [env], TASKS[:1], tok, **options)
    assert repr(options[name]) in str(e.value)
    assert not hasattr(env, "turn")  # refused before any work


def test_one_environment_for_each_task(tok):
    for envs, tasks in (([Chatty(1)], TASKS[:2]), ([], []), ([Chatty(1)], [])):
        with pytest.raises(ValueError, match="envs"):
            arl.rollout_batch(small_policy(tok), envs, tasks, tok)


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), "1"])
def test_a_reward_of_another_environment_is_checked_too(tok, bad):
    class Odd(Chatty):
        def step(self, text):
            answer, _, done, info = super().step(text)
            return answer, bad, done, info

    with pytest.raises((ValueError, TypeError), match="episode 1.*finite number") as e:
        arl.rollout_batch(small_policy(tok), [Chatty(1), Odd(1)], TASKS[:2], tok)
    assert repr(bad) in str(e.value)


def paying(kind):
    """An environment of one turn whose reward is of this kind."""

    class Paying(Chatty):
        def step(self, text):
            answer, reward, done, info = super().step(text)
            return answer, kind(reward), done, info

    return Paying(1)


@pytest.mark.parametrize("kind", [int, bool, np.float32, np.float64, np.int64])
def test_any_finite_number_is_a_reward(tok, kind):
    (traj,) = arl.rollout_batch(small_policy(tok), [paying(kind)], TASKS[:1], tok)
    assert type(traj.reward) is float and traj.reward == 1.0


def test_a_number_of_numpy_that_is_not_finite_is_no_reward(tok):
    env = paying(lambda reward: np.float32("nan"))
    with pytest.raises(ValueError, match="reward of episode 0.*finite number"):
        arl.rollout_batch(small_policy(tok), [env], TASKS[:1], tok)


@pytest.mark.parametrize("make", [small_policy, lambda tok: Bigram(len(tok), scale=9)])
@pytest.mark.parametrize("temperature", [1e-40, 1e-38])
def test_no_token_is_drawn_from_what_is_no_number(tok, make, temperature):
    """Logits over a temperature so low overflow: refused, or the likeliest word."""
    env = Chatty(1)
    try:
        (t,) = arl.rollout_batch(
            make(tok), [env], TASKS[:1], tok, temperature=temperature, generator=gen()
        )
    except (FloatingPointError, ValueError) as error:
        assert "temperature" in str(error) and env.said == []
    else:
        cold = play(make(tok), TASKS[:1], tok, temperature=1e-6, generator=gen())
        assert t.ids[: 7 + 6].tolist() == cold[0].ids[: 7 + 6].tolist()


def test_a_tokenizer_in_which_no_call_ends_is_named(tok):
    words = arl.Tokenizer([word for word in tok.words if word != "</call>"])
    env = Chatty(1)
    with pytest.raises(ValueError, match="tok is .*</call>"):
        arl.rollout_batch(small_policy(words), [env], TASKS[:1], words)
    assert not hasattr(env, "turn")


def test_more_episodes_than_memory_holds_are_refused(tok):
    class Many(list):
        def __len__(self):
            return 10**9

    with pytest.raises(ValueError, match="1000000000"):
        arl.rollout_batch(small_policy(tok), Many(), Many(), tok)
