"""Tokenizer, policy, rollouts (textbook and cached), demonstrations, base agents."""

import itertools
import pickle
import random
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import Bigram, Nudged, Scripted, call, small_policy, trajectory, weights
from torch import nn

import agentrl as arl
from agentrl import agent

TASKS = arl.make_tasks("all")
TOK = arl.build_tokenizer(TASKS)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def texts(trajs, tok):
    return [tok.decode(t.ids) for t in trajs]


def same_episodes(left, right):
    for a, b in zip(left, right, strict=True):
        assert a.ids.tolist() == b.ids.tolist()
        assert a.action_mask.tolist() == b.action_mask.tolist()
        assert (a.reward, a.info) == (b.reward, b.info)


class Chatty:
    """Answers every call with as many words as it is told; ends after `max_turns`."""

    def __init__(self, max_turns, sizes=(1,)):
        self.max_turns, self.sizes = max_turns, itertools.cycle(sizes)

    def reset(self, task):
        self.turn, self.said = 0, []
        return task.issue

    def step(self, text):
        self.turn += 1
        self.said.append(text)
        done = self.turn >= self.max_turns
        answer = " ".join(["value", "="] * next(self.sizes))
        return answer, float(done), done, {"actions": self.said, "task": "x"}


# ---- tokenizer


def test_the_vocabulary(tok):
    assert len(tok) == len(tok.words) == len(set(tok.words))
    assert tok.words[:5] == ("<pad>", "<unk>", "<bos>", "<obs>", "</obs>")
    assert list(tok.words[5:]) == sorted(tok.words[5:])
    assert tok.words[tok.pad_id] == "<pad>" and tok.words[tok.unk_id] == "<unk>"
    assert tok.words == arl.build_tokenizer(TASKS[:1]).words
    assert set(arl.FN_NAMES) | set(arl.FIX_OPS) <= set(tok.words)


def test_no_task_has_an_unknown_word_renamed_or_not_edited_or_not(tok):
    for task in TASKS:
        words = set(agent.re.findall(r"\w+", task.source))
        for name in [task.fn_name, *(n for n in arl.FN_NAMES if n not in words)]:
            source = task.source.replace(f"def {task.fn_name}(", f"def {name}(")
            assert tok.unk_id not in tok.encode(f"issue : {name} returns wrong results")
            for ops in [(), *((op,) for op in arl.FIX_OPS)]:
                edited = source
                for op in ops:
                    edited = arl.EDIT_OPS[op](edited, task.public_tests)
                assert tok.unk_id not in tok.encode(arl.compact_source(edited))


def test_no_answer_or_call_has_an_unknown_word(tok):
    answers = [f"{k} of 3 tests pass" for k in range(4)]
    for text in (*arl.CALLS, *answers, "edit applied", "no change", "invalid call"):
        ids = tok.encode(text)
        assert tok.unk_id not in ids
        assert tok.decode(ids) == text
    assert max(len(tok.encode(text)) for text in arl.CALLS) <= arl.MAX_CALL_TOKENS == 6


@given(st.lists(st.integers(0, len(TOK) - 1), max_size=20))
def test_ids_survive_text(ids):
    tok = TOK
    assert tok.encode(tok.decode(ids)) == ids
    assert tok.decode(torch.tensor(ids, dtype=torch.long)) == tok.decode(ids)


def test_an_unknown_word_and_new_tasks(tok):
    assert tok.encode("read zebra") == [tok.encode("read")[0], tok.unk_id]
    assert tok.encode("") == [] and tok.decode([]) == ""
    task = replace(TASKS[0], issue="issue : zebra returns wrong results")
    assert "zebra" in arl.build_tokenizer([task]).words


# ---- policy


def test_the_policy_has_the_form_that_everything_expects(tok):
    model = small_policy(tok)
    logits = model(torch.randint(len(tok), (3, 5), generator=gen()))
    assert logits.shape == (3, 5, len(tok)) and logits.dtype == torch.float32
    full = arl.Policy(len(tok))
    table = 64 * len(tok)  # the embedding is the output matrix too
    block = 4 * 64 * 64 + 64 + 2 * 4 * 64 * 64 + 4 * 64 + 64 + 2 * 2 * 64
    size = sum(p.numel() for p in full.parameters())
    assert size == table + 3 * block + 2 * 64
    assert 155_000 < size < 160_000
    assert not [m for m in full.modules() if isinstance(m, nn.Dropout)]


def test_no_parameter_is_without_effect(tok):
    """A key bias would have a zero gradient, which Adam turns into noise."""
    ids = torch.randint(len(tok), (4, 9), generator=gen())
    model = small_policy(tok).double()
    arl.selected_log_probs(model(ids)[:, :-1], ids[:, 1:]).sum().backward()
    for name, p in model.named_parameters():
        assert p.grad.abs().max() > 1e-9, name


@given(st.integers(1, 7), st.integers(0, len(TOK) - 1))
def test_a_token_sees_only_what_stands_before_it(place, other):
    ids = torch.randint(len(TOK), (1, 8), generator=gen())
    model = small_policy(TOK, layers=1)
    changed = ids.clone()
    changed[0, place] = other
    before, after = model(ids)[0], model(changed)[0]
    torch.testing.assert_close(before[:place], after[:place])
    if other != ids[0, place]:
        assert (before[place:] != after[place:]).any(1).all()


@given(st.data(), st.integers(1, 3), st.integers(1, 9))
def test_the_logits_of_some_places_are_those_of_the_table(data, rows, length):
    n = data.draw(st.integers(1, length))
    places = data.draw(
        st.lists(
            st.lists(st.integers(0, length - 1), min_size=n, max_size=n),
            min_size=rows,
            max_size=rows,
        )
    )
    ids = torch.randint(len(TOK), (rows, length), generator=gen())
    model, places = small_policy(TOK).double(), torch.tensor(places)
    table, some = model(ids), model(ids, places)
    expected = torch.stack([table[i, row] for i, row in enumerate(places)])
    torch.testing.assert_close(some, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(arl.pick(table, places), expected, atol=0, rtol=0)


def test_the_mask_for_some_places_by_hand():
    mask = arl.up_to(torch.tensor([[0, 2], [1, 1]]), 3, torch.float64)
    no = -torch.inf
    assert mask.shape == (2, 1, 2, 3) and mask.dtype == torch.float64
    assert mask[:, 0].tolist() == [[[0, no, no], [0, 0, 0]], [[0, 0, no]] * 2]


def test_position_matters(tok):
    ids = torch.full((1, 6), 7)
    assert len({tuple(row) for row in small_policy(tok)(ids)[0].tolist()}) == 6


def test_a_context_that_is_too_long_is_named(tok):
    model = small_policy(tok, layers=1)
    with pytest.raises(ValueError, match=r"ids.shape is \(1, 5000\); .*at most 4096"):
        model(torch.zeros(1, 5000, dtype=torch.long))
    for reader in (agent.FullContext, agent.CachedContext):
        with pytest.raises(ValueError, match="at most 4096"):
            reader(model, tok, 1).next_logits([[1] * 5000], [0])


# ---- one episode by hand


SCRIPT = {
    "clamp": [call("read"), call("swap_minmax"), call("submit")],
    "": ["read read", call("fix_init"), call("test"), call("submit")],
}


def play(model, tasks, tok, **options):
    envs = [arl.BugFixEnv(options.get("max_turns", 6)) for _ in tasks]
    return arl.rollout_batch(model, envs, tasks, tok, **options)


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
    reader = agent.CachedContext if cached else agent.FullContext
    tasks = TASKS[:20]
    envs = [arl.BugFixEnv() for _ in tasks]
    trajs = agent.rollout_with(reader, apprentice, envs, tasks, tok, generator=gen())
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


# ---- textbook and cached


def both(model, make_envs, tasks, tok, seed=0, **options):
    """The same episodes twice: whole context again, and cached."""
    return [
        agent.rollout_with(
            reader, model, make_envs(), tasks, tok, generator=gen(seed), **options
        )
        for reader in (agent.FullContext, agent.CachedContext)
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_cache_gives_the_same_episodes(tok, apprentice, seed, temperature):
    full, cached = both(
        apprentice,
        lambda: [arl.BugFixEnv() for _ in TASKS],
        TASKS,
        tok,
        seed,
        temperature=temperature,
    )
    same_episodes(full, cached)
    if temperature < 2:  # rows end at different times
        assert len({t.info["n_turns"] for t in full}) > 1


def test_the_cache_gives_the_same_long_episodes(tok):
    """30 turns; answers of different lengths keep the rows out of step."""
    tasks = TASKS[:5]

    def envs():
        return [Chatty(30 - 4 * i, (1, 15, 2 * i + 1)) for i in range(5)]

    full, cached = both(small_policy(tok), envs, tasks, tok, max_turns=30)
    same_episodes(full, cached)
    assert len(full[0].ids) > 500
    lengths = [len(text.split()) for t in full for text in t.info["actions"]]
    assert max(lengths) == arl.MAX_CALL_TOKENS  # random weights: most calls are cut
    assert len(set(lengths)) > 1


def test_repeated_reads_make_long_episodes(tok):
    """The reader of the cache is fed by hand: 30 reads of a source."""
    task, model = TASKS[0], small_policy(tok)
    reads = [tok.encode(f"<call> read </call> <obs> {arl.compact_source(task.source)}")]
    context = tok.encode(task.issue)
    full = agent.FullContext(model, tok, 2)
    with torch.no_grad():
        cached = agent.CachedContext(model, tok, 2)
        for turn in range(30):
            context = context + reads[0]
            contexts = [context, context[:-5] if turn % 2 else context]
            rows = [0, 1] if turn % 2 == 0 else [0]
            torch.testing.assert_close(
                cached.next_logits(contexts, rows),
                full.next_logits(contexts, rows),
                atol=1e-4,
                rtol=1e-4,
            )
    assert len(context) > 700


@given(st.dictionaries(st.integers(0, 99), st.integers(1, 900), min_size=1))
def test_rows_of_similar_length_run_together(lengths):
    runs = arl.runs_of(lengths)
    assert sorted(row for run in runs for row in run) == sorted(lengths)
    for run in runs:
        longest = max(lengths[row] for row in run)
        assert len(run) == 1 or longest * len(run) <= agent._RUN_TOKENS
    # whoever is in a later run is not shorter
    sizes = [[lengths[row] for row in run] for run in runs]
    if len(runs) > 1:
        assert sum(sizes, []) == sorted(lengths.values())


def test_few_tokens_are_one_run_in_their_own_order():
    assert arl.runs_of({5: 3, 2: 1, 9: 2}) == [[5, 2, 9]]
    assert arl.runs_of({0: 600, 1: 5, 2: 600}) == [[1], [0], [2]]


def repeats(tok, word):
    """A policy that writes one word again and again, nearly always."""
    model = small_policy(tok)
    with torch.no_grad():
        model.norm.weight.mul_(0.1)
        vector = model.embed.weight[tok.encode(word)[0]]
        model.norm.bias.copy_(20 * vector / vector.norm())
    return model


@pytest.mark.parametrize("word", ["<call>", "</call>", "read", "<pad>"])
def test_a_guess_changes_nothing(tok, word):
    """Policies that always, never and doubly write the word that is guessed."""
    model = repeats(tok, word)
    full, cached = both(model, lambda: [arl.BugFixEnv() for _ in TASKS], TASKS, tok)
    same_episodes(full, cached)
    first = [text.split()[:1] for t in full for text in t.info["actions"]]
    assert first.count([word]) > 0.5 * len(first)


def test_a_guess_that_fails_in_one_row_is_dropped_in_all(tok):
    """Fed by hand: after a prompt one row goes on with `<call>`, the other does not."""
    model = small_policy(tok)
    prompt = tok.encode("<bos> " + TASKS[0].issue)
    then = [tok.encode("<call> read"), tok.encode("read <call>")]
    full = agent.FullContext(model, tok, 2)
    with torch.no_grad():
        cached = agent.CachedContext(model, tok, 2)
        for n in range(3):
            contexts = [prompt + words[:n] for words in then]
            torch.testing.assert_close(
                cached.next_logits(contexts, [0, 1]),
                full.next_logits(contexts, [0, 1]),
                atol=1e-5,
                rtol=1e-5,
            )


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_shared_contexts_give_the_logits_of_each_row(seed):
    """Five rows over an alphabet of two words: they share, wait and part at random.

    The memory starts with room for 128 tokens and grows on the way.
    """
    rng, words = random.Random(seed), arl.Tokenizer(["a", "b"])
    model = small_policy(words)
    full = agent.FullContext(model, words, 5)
    contexts = [[2] * 120 for _ in range(5)]
    with torch.no_grad():
        cached = agent.CachedContext(model, words, 5)
        for _ in range(10):
            rows = rng.sample(range(5), rng.randint(1, 5))  # in any order
            for row in rows:
                contexts[row] = contexts[row] + rng.choices([5, 6], k=rng.randint(1, 3))
            torch.testing.assert_close(
                cached.next_logits(contexts, rows),
                full.next_logits(contexts, rows),
                atol=1e-5,
                rtol=1e-5,
            )


def test_equal_contexts_are_read_once(tok, monkeypatch):
    """Four rows begin alike, then two and two; a row that waited reads by itself."""
    read = []

    def counting(model, memory, chunk, start, rows, wanted):
        read.append(rows.tolist())
        return chunk_of(model, memory, chunk, start, rows, wanted)

    chunk_of = agent.read_chunk
    monkeypatch.setattr(agent, "read_chunk", counting)
    cached = agent.CachedContext(small_policy(tok), tok, 4)
    start, a, b = [2, 9, 9], [2, 9, 9, 5], [2, 9, 9, 6]
    with torch.no_grad():
        cached.next_logits([start] * 4, [0, 1, 2, 3])
        cached.next_logits([a, b, a, b], [0, 1, 2, 3])
        cached.next_logits([a + [7], b + [7], a, b + [7]], [0, 1, 3])
        # row 2 adds the very token that row 0 adds, but earlier in its context
        logits = cached.next_logits([a + [7, 8], b, a + [8], b], [0, 2])
    assert read == [[0], [0, 1], [0, 1], [0, 2]]
    assert not torch.equal(logits[0], logits[1])


def test_a_batch_of_640(tok, apprentice):
    tasks = (TASKS * 22)[:640]
    full, cached = both(
        apprentice, lambda: [arl.BugFixEnv() for _ in tasks], tasks, tok
    )
    same_episodes(full, cached)


@pytest.mark.parametrize("reader", [agent.FullContext, agent.CachedContext])
def test_an_episode_does_not_depend_on_its_neighbours(tok, apprentice, reader):
    def run(tasks):
        envs = [arl.BugFixEnv() for _ in tasks]
        return agent.rollout_with(
            reader, apprentice, envs, tasks, tok, generator=gen(5)
        )

    many = run(TASKS)
    same_episodes(many[:1], run(TASKS[:1]))  # a batch of one
    same_episodes(many[:7], run(TASKS[:7]))
    others = [*TASKS[:3], *reversed(TASKS[3:])]
    same_episodes(many[:3], run(others)[:3])
    last = [*reversed(TASKS[:-1]), TASKS[-1]]
    same_episodes(many[-1:], run(last)[-1:])


def test_float64_writes_the_same_episodes(tok, apprentice):
    single = play(apprentice, TASKS, tok, generator=gen())
    full, cached = both(
        apprentice.double(), lambda: [arl.BugFixEnv() for _ in TASKS], TASKS, tok
    )
    same_episodes(full, cached)
    same_episodes(single, cached)


def test_only_our_policy_takes_the_fast_path(tok, monkeypatch):
    class Mine(arl.Policy):
        def forward(self, ids):
            return super().forward(ids) * 0

    used = []
    for reader in (agent.FullContext, agent.CachedContext):
        read = reader.next_logits

        def spy(self, *args, _read=read):
            used.append(type(self))
            return _read(self, *args)

        monkeypatch.setattr(reader, "next_logits", spy)
    for model, reader in [
        (small_policy(tok), agent.CachedContext),
        (Mine(len(tok), 16, 1, 2), agent.FullContext),
        (Bigram(len(tok)), agent.FullContext),
        (Nudged(small_policy(tok), tok), agent.FullContext),
    ]:
        used.clear()
        play(model, TASKS[:2], tok, generator=gen())
        assert set(used) == {reader}


# ---- sampling


@given(
    st.lists(st.floats(-8, 8), min_size=2, max_size=7),
    st.floats(0.3, 3),
    st.integers(0, 2**20),
)
def test_sampling_is_by_inverse_cdf(row, temperature, seed):
    """Of many uniforms, each token gets the share that softmax gives it."""
    logits, n = torch.tensor([row], dtype=torch.float64), 512
    uniforms = (torch.arange(n) + 0.5) / n
    ids = arl.sample_tokens(logits.expand(n, -1), uniforms, temperature)
    shares = torch.bincount(ids, minlength=len(row)) / n
    expected = torch.softmax(logits[0] / temperature, -1)
    assert (shares - expected).abs().max() < 2 / n
    assert (ids.diff() >= 0).all()


@given(st.floats(0, 1, exclude_max=True, width=32))
def test_a_token_of_probability_zero_is_never_sampled(uniform):
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf]])
    got = arl.sample_tokens(logits, torch.tensor([uniform]), 1.0).item()
    assert got in (1, 3)


def test_temperature_sharpens_and_flattens(tok):
    model = Bigram(len(tok), scale=2.0)
    cold = play(model, TASKS, tok, temperature=1e-4, generator=gen())
    for t in cold:
        written = t.action_mask.bool()
        best = model.table.argmax(1)[t.ids[:-1]]
        assert (best == t.ids[1:])[written].all()
    warm = play(model, TASKS, tok, temperature=50.0, generator=gen())
    assert len({i for t in warm for i in t.ids.tolist()}) > 100


def test_one_generator_fixes_a_rollout_and_none_is_the_global_one(tok, apprentice):
    same_episodes(
        play(apprentice, TASKS, tok, generator=gen(3)),
        play(apprentice, TASKS, tok, generator=gen(3)),
    )
    state = torch.get_rng_state()
    play(apprentice, TASKS, tok, generator=gen(3))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(3)
    same_episodes(
        play(apprentice, TASKS, tok), play(apprentice, TASKS, tok, generator=gen(3))
    )
    assert not torch.equal(torch.get_rng_state(), state)
    with_4 = play(apprentice, TASKS, tok, generator=gen(4))
    assert texts(with_4, tok) != texts(
        play(apprentice, TASKS, tok, generator=gen(3)), tok
    )


def test_attempts_at_one_task_differ(tok, apprentice):
    trajs = play(apprentice, TASKS[:1] * 16, tok, generator=gen())
    assert len(set(texts(trajs, tok))) > 8


class Dropping(nn.Module):
    """A model that says different things in train and in eval mode."""

    def __init__(self, vocab_size):
        super().__init__()
        self.body, self.drop = Bigram(vocab_size), nn.Dropout(0.5)
        self.frozen = nn.Dropout(0.5).eval()

    def forward(self, ids):
        return self.frozen(self.drop(self.body(ids)))


@pytest.mark.parametrize("training", [True, False])
def test_sampling_is_in_eval_mode_and_leaves_modes_as_they_were(tok, training):
    model = Dropping(len(tok)).train(training)
    model.frozen.eval()
    trajs = play(model, TASKS, tok, generator=gen())
    modes = model.training, model.drop.training, model.frozen.training
    assert modes == (training, training, False)
    same_episodes(trajs, play(model.body, TASKS, tok, generator=gen()))
    with pytest.raises(RuntimeError, match="boom"):
        arl.rollout_batch(model, [Failing()], TASKS[:1], tok)
    assert model.training == model.drop.training == training
    assert all(p.grad is None for p in model.parameters())


class Failing(Chatty):
    def __init__(self):
        super().__init__(3)

    def step(self, text):
        raise RuntimeError("boom")


# ---- errors of rollouts


def test_an_environment_that_is_not_done_is_an_error(tok):
    with pytest.raises(ValueError, match=r"not done.*\[1\]"):
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


def test_a_whole_number_is_a_reward(tok):
    class Counting(Chatty):
        def step(self, text):
            answer, reward, done, info = super().step(text)
            return answer, int(reward), done, info

    (traj,) = arl.rollout_batch(small_policy(tok), [Counting(1)], TASKS[:1], tok)
    assert type(traj.reward) is float and traj.reward == 1.0


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
    monkeypatch.setattr(agent, "demonstrate", lambda kind, task, tok, rng: (kind, task))
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


# ---- the cache of base agents


@pytest.fixture
def built(monkeypatch, tmp_path):
    """A cache of its own and an imitation that costs nothing; notes each run of it."""
    runs = []

    def quick(model, demos, pad_id, generator):
        runs.append((len(demos), generator.initial_seed()))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.rand(p.shape, generator=generator))

    monkeypatch.setattr(agent, "imitate", quick)
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


class Trap:
    """What must never happen: unpickling it leaves a file behind."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def spoil(kind, data, tmp_path):
    trap = Trap(tmp_path / "sprung")
    if kind == "pickle":
        return pickle.dumps(trap)
    if kind in ("torch.save", "npy", "npz"):
        import io

        import numpy as np

        file = io.BytesIO()
        if kind == "torch.save":
            torch.save({"weights": trap}, file)
        elif kind == "npy":
            np.save(file, np.array([trap], dtype=object), allow_pickle=True)
        else:
            np.savez(file, fingerprint=np.array([trap], dtype=object))
        return file.getvalue()
    middle = len(data) // 2
    return {
        "empty": b"",
        "text": b"not a model",
        "cut in half": data[:middle],
        "cut at the end": data[:-1],
        "longer": data + b"\0",
        "one bit in the weights": data[:middle]
        + bytes([data[middle] ^ 1])
        + data[middle + 1 :],
        "one bit at the front": bytes([data[0] ^ 1]) + data[1:],
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "empty",
        "text",
        "cut in half",
        "cut at the end",
        "longer",
        "one bit in the weights",
        "one bit at the front",
        "pickle",
        "torch.save",
        "npy",
        "npz",
    ],
)
def test_a_file_that_is_not_ours_is_built_again(tok, built, tmp_path, kind):
    good = weights(arl.make_base_agent(tok))
    (path,) = cached_files(tmp_path)
    data = path.read_bytes()
    path.write_bytes(spoil(kind, data, tmp_path))
    assert torch.equal(weights(arl.make_base_agent(tok)), good)
    assert len(built) == 2
    assert path.read_bytes() == data  # mended
    assert torch.equal(weights(arl.make_base_agent(tok)), good)
    assert len(built) == 2
    assert not (tmp_path / "sprung").exists()


def test_a_bit_anywhere_in_the_file_is_noticed(tok, built, tmp_path):
    arl.make_base_agent(tok)
    (path,) = cached_files(tmp_path)
    data, rng = path.read_bytes(), random.Random(0)
    name = path.name
    fingerprint = agent._fingerprint(
        small_policy_of_base(tok),
        arl.deal_demonstrations(("random", "blind"), tok, 0),
        0,
    )
    assert fingerprint[:16] in name
    assert agent.read_weights(path, fingerprint) is not None
    for _ in range(40):
        place = rng.randrange(len(data))
        bad = bytearray(data)
        bad[place] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        assert agent.read_weights(path, fingerprint) is None, place


def small_policy_of_base(tok):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return arl.Policy(len(tok))


def test_the_agent_of_another_seed_is_foreign(tok, built, tmp_path):
    zero = weights(arl.make_base_agent(tok, 0))
    (path,) = cached_files(tmp_path)
    one = weights(arl.make_base_agent(tok, 1))
    (other,) = set(cached_files(tmp_path)) - {path}
    path.write_bytes(other.read_bytes())
    assert torch.equal(weights(arl.make_base_agent(tok, 0)), zero)
    assert not torch.equal(zero, one) and len(built) == 3


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "a"))
    assert arl.cache_dir() == tmp_path / "a" and (tmp_path / "a").is_dir()
    monkeypatch.setenv("AGENTRL_CACHE", "")
    monkeypatch.setattr(
        agent.platformdirs, "user_cache_dir", lambda name: str(tmp_path / name)
    )
    assert arl.cache_dir() == tmp_path / "agentrl"


def test_two_processes_at_once_build_one_agent(tmp_path):
    """The second waits for the first: one file, one build, the same weights."""
    script = tmp_path / "build.py"
    script.write_text(
        textwrap.dedent(
            """
            import hashlib, os, pathlib, sys, time, torch
            import agentrl as arl
            from agentrl import agent

            def slow(model, demos, pad_id, generator):
                with open(os.environ["AGENTRL_CACHE"] + ".log", "a") as log:
                    log.write("built\\n")
                time.sleep(2)
                with torch.no_grad():
                    next(model.parameters()).fill_(0.25)

            agent.imitate = slow
            here = pathlib.Path(__file__).parent
            (here / f"ready-{sys.argv[1]}").touch()
            while len(list(here.glob("ready-*"))) < 2:
                time.sleep(0.02)
            model = arl.make_base_agent(arl.build_tokenizer([]))
            flat = torch.cat([p.detach().flatten() for p in model.parameters()])
            print(hashlib.sha256(flat.numpy().tobytes()).hexdigest())
            """
        )
    )
    env = {**agent.os.environ, "AGENTRL_CACHE": str(tmp_path / "cache")}
    running = [
        subprocess.Popen([sys.executable, script, i], env=env, stdout=-1, text=True)
        for i in "ab"
    ]
    printed = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert printed[0] == printed[1] != ""
    assert (tmp_path / "cache.log").read_text() == "built\n"


@pytest.mark.parametrize("seed", [-1, 0.5, "0", None, True])
def test_a_seed_that_is_none_is_named(tok, built, seed):
    with pytest.raises((ValueError, TypeError), match="seed is .*at least 0") as e:
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
    full, cached = both(model, lambda: [arl.BugFixEnv() for _ in TASKS], TASKS, tok)
    same_episodes(full, cached)
    calls = [text for t in full for text in t.info["actions"]]
    assert sum(text in arl.CALLS for text in calls) > 0.9 * len(calls)
