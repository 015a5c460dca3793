"""Rows that are skipped or cut change nothing; the first minibatch is on policy."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rollouts import TASKS, gen
from tiny import Bigram, small_policy, weights
from torch import nn
from updates import config, hand_batch, textbook, update

import agentrl as arl
from agentrl import speed

TOK = arl.build_tokenizer(TASKS)


# ---- logits of some places


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
    table, some = model(ids), arl.fast_form(model).logits_at(ids, places)
    expected = torch.stack([table[i, row] for i, row in enumerate(places)])
    torch.testing.assert_close(some, expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(arl.pick(table, places), expected, atol=0, rtol=0)


def test_the_mask_for_some_places_by_hand():
    mask = speed._up_to(torch.tensor([[0, 2], [1, 1]]), 3, torch.float64)
    no = -torch.inf
    assert mask.shape == (2, 1, 2, 3) and mask.dtype == torch.float64
    assert mask[:, 0].tolist() == [[[0, no, no], [0, 0, 0]], [[0, 0, no]] * 2]


# ---- policy tokens


@given(st.integers(0, 10**6), st.sampled_from([Bigram, None]))
def test_token_stats_are_those_of_the_whole_table(seed, make):
    """Any mask, any live rows: values and gradients of the plain form, 0 elsewhere."""
    model = (make(len(TOK)) if make else small_policy(TOK, layers=2)).double()
    batch = hand_batch(len(TOK), rows=5, length=6, seed=seed)
    ids, mask = batch["ids"], batch["action_mask"]
    live = batch["submitted"]
    logits = model(ids)[:, :-1] / 0.7
    rows = arl.TokenRows(ids, mask, live, 0.7)
    logp, entropy = arl.read_tokens(model, rows)
    expected = arl.selected_log_probs(logits, ids[:, 1:]) * mask
    close = {"atol": 1e-12, "rtol": 1e-12}
    torch.testing.assert_close(logp, expected, **close)
    torch.testing.assert_close(entropy, arl.entropy_from_logits(logits) * mask, **close)
    assert logp.requires_grad == bool(live.any())
    if live.any():
        weight = live[:, None] * torch.rand(mask.shape, generator=gen()).double()
        grads = [
            torch.autograd.grad((x * weight).sum(), list(model.parameters()))
            for x in (logp, expected)
        ]
        torch.testing.assert_close(*grads, **close)


def test_rows_are_cut_after_their_last_policy_token():
    """Live and dead apart, the shorter first; an empty mask reads one token."""
    mask = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0]])
    live = torch.tensor([True, False, True, False])
    ids, read = torch.arange(20).view(4, 5), []

    class Watched(Bigram):
        def forward(self, ids):
            read.append((ids[:, 0].tolist(), ids.shape[1], torch.is_grad_enabled()))
            return super().forward(ids)

    logp, _ = arl.read_tokens(Watched(20), arl.TokenRows(ids, mask, live, 1.0))
    assert read == [([0, 10], 4, True), ([5, 15], 3, False)]
    assert logp.nonzero().tolist() == mask.nonzero().tolist()


# ---- the first minibatch


@pytest.mark.parametrize("make", [Bigram, None])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("level", ["token", "sequence", "cispo"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_first_minibatch_is_exactly_on_policy(tok, make, temperature, level, dtype):
    """Old log-probs at the sampling temperature: every ratio exactly 1."""
    model = (make(len(tok)) if make else small_policy(tok)).to(dtype)
    cfg = config(minibatches=1, temperature=temperature, ratio_level=level)
    stats = update(model, cfg, hand_batch(len(tok), rows=12))
    assert (stats["ratio_min"], stats["ratio_max"]) == (1.0, 1.0)
    assert stats["approx_kl"] == stats["clip_frac"] == 0.0


class Dropping(Bigram):
    def forward(self, ids):
        return nn.functional.dropout(super().forward(ids), 0.5, self.training)


def test_dropout_does_not_move_the_ratio():
    model = Dropping(9).train()
    stats = update(model, config(minibatches=1), hand_batch(9))
    assert stats["ratio_min"] == stats["ratio_max"] == 1.0
    assert model.training
    assert update(model.eval(), config(), hand_batch(9)) and not model.training


# ---- rows without a gradient


@pytest.mark.parametrize("make", [Bigram, None])
@pytest.mark.parametrize("value", [0.1, 0.0, 1.0])
def test_equal_rewards_leave_the_weights_untouched(tok, make, value):
    model = make(len(tok)) if make else small_policy(tok, layers=1)
    before, batch = weights(model), hand_batch(len(tok))
    batch["rewards"].fill_(value)
    stats = update(model, config(group_size=8), batch)
    assert torch.equal(weights(model), before)
    assert stats["grad_norm"] == stats["clip_frac"] == 0 and stats["entropy"] > 0


@pytest.mark.parametrize("make", [Bigram, None])
def test_a_first_step_without_gradient_counts_for_adam(tok, make):
    """Its bias correction counts steps, so the next step is the second one."""
    cfg, batch = config(lr=0.01, group_size=8), hand_batch(len(tok))
    model = (make(len(tok)) if make else small_policy(tok, layers=1)).double()
    twin = copy.deepcopy(model)
    for policy, run in ((model, update), (twin, textbook)):
        optimizer = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
        for advantages in (torch.zeros(8), arl.compute_advantages(batch, cfg)):
            run(policy, cfg, batch, advantages, optimizer)
    torch.testing.assert_close(weights(model), weights(twin), atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("make", [Bigram, None])
def test_a_step_without_gradient_is_still_a_step_of_adam(tok, make):
    """Its momentum moves the weights, as it would with a gradient of zeros."""
    cfg, batch = config(lr=0.01, group_size=8), hand_batch(len(tok))
    model = (make(len(tok)) if make else small_policy(tok, layers=1)).double()
    twin = copy.deepcopy(model)
    moved = []
    for policy, run in ((model, update), (twin, textbook)):
        optimizer = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
        run(policy, cfg, batch, arl.compute_advantages(batch, cfg), optimizer)
        before = weights(policy)
        run(policy, cfg, batch, torch.zeros(8), optimizer)
        moved.append(weights(policy) - before)
    assert moved[0].abs().max() > 1e-4
    torch.testing.assert_close(*moved, atol=1e-9, rtol=1e-6)


def test_frozen_parameters_stay_out_of_it(tok):
    """Also on a step without a live row, and with an optimizer that decays weights."""
    model = small_policy(tok, layers=1)
    model.embed.requires_grad_(False)
    frozen = model.embed.weight.clone()
    adamw = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    batch = hand_batch(len(tok))
    for advantages in (torch.zeros(8), torch.ones(8), torch.zeros(8)):
        update(model, config(), batch, advantages, adamw)
    assert torch.equal(model.embed.weight, frozen)


def test_all_tokens_masked_is_no_update():
    model = Bigram(9)
    before, batch = weights(model), hand_batch(9)
    batch["action_mask"].zero_()
    for fields in ({}, {"loss_mode": "constant"}, {"ratio_level": "sequence"}):
        stats = update(
            model, config(kl_coef=0.1, **fields), batch, ref_model=Bigram(9, 1)
        )
        assert torch.equal(weights(model), before)
        assert all(math.isfinite(value) for value in stats.values())
