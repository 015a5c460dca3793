"""Words and network."""

import re
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rollouts import TASKS, gen
from tiny import small_policy
from torch import nn

import agentrl as arl

TOK = arl.build_tokenizer(TASKS)


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
        words = set(re.findall(r"\w+", task.source))
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


def test_position_matters(tok):
    ids = torch.full((1, 6), 7)
    assert len({tuple(row) for row in small_policy(tok)(ids)[0].tolist()}) == 6


def test_a_context_that_is_too_long_is_named(tok):
    model = small_policy(tok, layers=1)
    with pytest.raises(ValueError, match=r"ids.shape is \(1, 5000\); .*at most 4096"):
        model(torch.zeros(1, 5000, dtype=torch.long))
    for reader in (arl.FullContext(model, tok), arl.fast_reader(model, tok, 1)):
        with pytest.raises(ValueError, match="at most 4096"):
            reader.next_logits([[1] * 5000], [0])


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"width": 0}, "width is 0"),
        ({"width": 15, "heads": 3}, "width is 15; .*even"),
        ({"layers": 0}, "layers is 0"),
        ({"layers": 1.0}, "layers is 1.0"),
        ({"heads": 0}, "heads is 0"),
        ({"heads": 5}, "heads is 5; .*16"),
        ({"heads": True}, "heads is True"),
        ({"width": -16}, "width is -16"),
    ],
    ids=str,
)
def test_sizes_that_make_no_network_are_named(sizes, named):
    state = torch.get_rng_state()
    with pytest.raises((ValueError, TypeError), match=named):
        arl.Policy(**{"vocab_size": 9, "width": 16, "layers": 1, "heads": 2, **sizes})
    assert torch.equal(torch.get_rng_state(), state)  # refused before any work


def test_the_smallest_network():
    model = arl.Policy(1, width=2, layers=1, heads=1)
    assert model(torch.zeros(1, 1, dtype=torch.long)).shape == (1, 1, 1)
