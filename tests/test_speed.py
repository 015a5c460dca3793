"""The cached reader gives the episodes of the plain one, and reads less."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rollouts import TASKS, Chatty, both, gyms, same_episodes
from tiny import small_policy

import agentrl as arl
from agentrl import speed

# ---- textbook and cached


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_cache_gives_the_same_episodes(tok, apprentice, seed, temperature):
    full, cached = both(
        apprentice,
        gyms(TASKS),
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


def test_a_batch_of_300(tok, apprentice):
    tasks = TASKS * 10
    full, cached = both(apprentice, gyms(tasks), tasks, tok)
    same_episodes(full, cached)


def test_repeated_reads_make_long_episodes(tok):
    """The reader of the cache is fed by hand: 30 reads of a source."""
    task, model = TASKS[0], small_policy(tok)
    reads = [tok.encode(f"<call> read </call> <obs> {arl.compact_source(task.source)}")]
    context = tok.encode(task.issue)
    full = arl.FullContext(model, tok)
    with torch.no_grad():
        cached = arl.fast_reader(model, tok, 2)
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
        assert len(run) == 1 or longest * len(run) <= speed._RUN_TOKENS
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
    full, cached = both(model, gyms(TASKS), TASKS, tok)
    same_episodes(full, cached)
    first = [text.split()[:1] for t in full for text in t.info["actions"]]
    assert first.count([word]) > 0.5 * len(first)


def test_a_guess_that_fails_in_one_row_is_dropped_in_all(tok):
    """Fed by hand: after a prompt one row goes on with `<call>`, the other does not."""
    model = small_policy(tok)
    prompt = tok.encode("<bos> " + TASKS[0].issue)
    then = [tok.encode("<call> read"), tok.encode("read <call>")]
    full = arl.FullContext(model, tok)
    with torch.no_grad():
        cached = arl.fast_reader(model, tok, 2)
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
    full = arl.FullContext(model, words)
    contexts = [[2] * 120 for _ in range(5)]
    with torch.no_grad():
        cached = arl.fast_reader(model, words, 5)
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


def test_equal_contexts_are_read_once(tok):
    """Four rows begin alike, then two and two; a row that waited reads by itself."""
    read = []

    class Counting(speed.FastPolicy):
        def read_on(self, memory, chunk, start, rows, wanted):
            read.append(rows.tolist())
            return super().read_on(memory, chunk, start, rows, wanted)

    fast = Counting(small_policy(tok))
    cached = speed.CachedContext(fast, tok, 4, torch.device("cpu"))
    start, a, b = [2, 9, 9], [2, 9, 9, 5], [2, 9, 9, 6]
    with torch.no_grad():
        cached.next_logits([start] * 4, [0, 1, 2, 3])
        cached.next_logits([a, b, a, b], [0, 1, 2, 3])
        cached.next_logits([a + [7], b + [7], a, b + [7]], [0, 1, 3])
        # row 2 adds the very token that row 0 adds, but earlier in its context
        logits = cached.next_logits([a + [7, 8], b, a + [8], b], [0, 2])
    assert read == [[0], [0, 1], [0, 1], [0, 2]]
    assert not torch.equal(logits[0], logits[1])
