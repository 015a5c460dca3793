"""The update: the textbook's, its steps, its statistics, its limits."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rollouts import gen
from tiny import Bigram, small_policy, weights
from updates import MODES, NAN, UPDATE, config, hand_batch, textbook, update

import agentrl as arl

SETTINGS = [
    {},
    {"minibatches": 1},
    {"minibatches": 3, "epochs": 3},
    {"minibatches": 50},
    {"temperature": 2.0, "clip_low": 0.01, "clip_high": 0.02, "epochs": 2},
    {"mask_truncated": True, "loss_mode": "constant"},
    {"mask_truncated": True, "loss_mode": "seq_mean_token_mean", "minibatches": 3},
    {"loss_mode": "seq_mean_token_sum", "adv_mode": "rloo", "max_grad_norm": 1e-3},
    {"loss_mode": "constant", "norm_const": 11.0, "epochs": 2},
    {"ratio_level": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
    {"ratio_level": "cispo", "epochs": 2, "loss_mode": "seq_mean_token_mean"},
    {"kl_coef": 0.04, "loss_mode": "seq_mean_token_mean"},
    {"kl_coef": 0.5, "kl_kind": "k1", "epochs": 2},
    {"kl_coef": 0.5, "kl_kind": "k2", "mask_truncated": True, "temperature": 0.5},
    {"overlong_buffer": 2, "adv_mode": "mean"},
]


@pytest.mark.parametrize("fields", SETTINGS, ids=str)
@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("make", [Bigram, None])
def test_the_update_is_the_textbook_one(tok, fields, dead, make):
    """In float64, for our policy and for a table; some groups with equal rewards."""
    cfg = config(lr=0.01, **fields)
    model = (make(len(tok)) if make else small_policy(tok, layers=1)).double()
    batch = hand_batch(len(tok))
    if dead:
        batch["rewards"][:4] = 0.3
        batch["n_turns"][:4] = 2
    advantages = arl.compute_advantages(batch, cfg)
    ref = copy.deepcopy(model) if cfg.kl_coef else None
    if ref:
        with torch.no_grad():
            for p in ref.parameters():
                p.mul_(0.9)
    twin = copy.deepcopy(model)
    results = []
    for policy, run in ((model, update), (twin, textbook)):
        optimizer = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
        for _ in range(2):  # twice: the optimizer has a memory
            stats = run(policy, cfg, batch, advantages, optimizer, ref_model=ref)
        results.append(stats)
    # The skipped rows of `constant`, and of any other mode, change nothing.
    torch.testing.assert_close(weights(model), weights(twin), atol=1e-7, rtol=1e-7)
    assert results[0].keys() == results[1].keys()
    assert results[0] == pytest.approx(results[1], rel=1e-6, abs=1e-9)
    assert set(results[0]) == UPDATE | ({"kl_ref"} if ref else set())


def test_the_labels_are_the_next_tokens():
    """Bigram table, ids 1 2 3 4: only rows 1, 2, 3 move, towards 2, 3, 4."""
    model = Bigram(6)
    before = model.table.detach().clone()
    batch = {
        "ids": torch.tensor([[1, 2, 3, 4]]),
        "action_mask": torch.ones(1, 3),
        "rewards": torch.ones(1),
    }
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    update(model, config(max_grad_norm=100.0), batch, torch.ones(1), sgd)
    moved = model.table.detach() - before
    assert moved.abs().sum(1).nonzero().flatten().tolist() == [1, 2, 3]
    assert (moved > 0).nonzero().tolist() == [[1, 2], [2, 3], [3, 4]]


@pytest.mark.parametrize("kl_coef", [0.0, 0.7])
@pytest.mark.parametrize("kl_kind", ["k1", "k2", "k3"])
def test_observation_tokens_have_no_gradient(kl_coef, kl_kind):
    """Token 5 is written by the environment only, token 6 is what follows it there."""
    model, ref = Bigram(8), Bigram(8, seed=1)
    before = model.table.detach().clone()
    batch = {
        "ids": torch.tensor([[1, 5, 6, 2], [1, 5, 6, 3]]),
        "action_mask": torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]),
        "rewards": torch.tensor([1.0, 0.0]),
    }
    cfg = config(group_size=2, kl_coef=kl_coef, kl_kind=kl_kind)
    update(model, cfg, batch, ref_model=ref)
    moved = (model.table.detach() - before).abs().sum(1).nonzero().flatten()
    assert moved.tolist() == [6]


@given(st.integers(1, 12), st.integers(1, 15), st.integers(1, 3))
def test_the_number_of_steps_and_their_sizes(rows, minibatches, epochs):
    sizes = []

    def loss(logp, *args):
        sizes.append(len(logp))
        return arl.policy_loss(logp, *args)

    model, steps = Bigram(9), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    cfg = config(minibatches=minibatches, epochs=epochs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arl.training_loop, "policy_loss", loss)
        update(model, cfg, hand_batch(9, rows), torch.ones(rows), optimizer)
    each = min(minibatches, rows)
    assert len(steps) == len(sizes) == each * epochs
    for epoch in range(epochs):
        part = sizes[epoch * each : (epoch + 1) * each]
        assert sum(part) == rows and max(part) - min(part) <= 1


def test_statistics_are_weighted_by_rows(monkeypatch):
    """Three rows in two minibatches: two thirds and one third."""
    values = iter([3.0, 6.0])

    def loss(logp, *args):
        return logp.sum(), dict.fromkeys(
            UPDATE - {"entropy", "grad_norm"}, next(values)
        )

    monkeypatch.setattr(arl.training_loop, "policy_loss", loss)
    batch = hand_batch(9, rows=3)
    batch["action_mask"].fill_(1.0)
    stats = update(Bigram(9), config(), batch, torch.ones(3))
    assert stats["clip_frac"] == stats["ratio_max"] == pytest.approx(4.0)


def test_rows_are_shuffled_with_the_generator():
    batch = hand_batch(9, rows=8)
    models = [Bigram(9) for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        update(model, config(lr=0.1), batch, generator=gen(seed))
    assert torch.equal(weights(models[0]), weights(models[1]))
    assert not torch.equal(weights(models[0]), weights(models[2]))
    state, generator = torch.get_rng_state(), gen()
    update(Bigram(9), config(epochs=2), batch, generator=generator)
    assert torch.equal(torch.get_rng_state(), state)
    by_hand = gen()
    for _ in range(2):
        torch.randperm(8, generator=by_hand)
    assert torch.equal(generator.get_state(), by_hand.get_state())


@pytest.mark.parametrize("limit", [1e-3, 1e3])
def test_the_gradient_is_clipped_and_its_norm_told_before(limit):
    model = Bigram(9)
    before, sgd = weights(model), torch.optim.SGD(model.parameters(), lr=1.0)
    cfg = config(minibatches=1, max_grad_norm=limit)
    stats = update(model, cfg, hand_batch(9), optimizer=sgd)
    moved = (weights(model) - before).norm().item()
    assert 1e-3 < stats["grad_norm"] < 1e3
    assert moved == pytest.approx(min(limit, stats["grad_norm"]), rel=1e-2)


def test_the_reference_is_told_apart_from_its_coefficient():
    batch, model = hand_batch(9), Bigram(9)
    ref = copy.deepcopy(model)
    plain, told = copy.deepcopy(model), copy.deepcopy(model)
    assert "kl_ref" not in update(plain, config(), batch)
    assert "kl_ref" in update(told, config(), batch, ref_model=Bigram(9, 1))
    assert torch.equal(weights(plain), weights(told))  # told, not felt
    stats = update(model, config(minibatches=1, kl_coef=0.5), batch, ref_model=ref)
    assert stats["kl_ref"] == 0
    assert torch.equal(weights(ref), weights(Bigram(9)))
    assert all(p.grad is None for p in ref.parameters())


def test_kl_is_a_mean_over_policy_tokens_under_every_mode():
    """With A = 0 the gradient is that of the penalty alone: the same in all modes."""
    grads = []
    for mode in MODES:
        model = Bigram(9)
        cfg = config(minibatches=1, kl_coef=0.3, loss_mode=mode, max_grad_norm=1e9)
        sgd = torch.optim.SGD(model.parameters(), lr=1.0)
        before = weights(model)
        update(model, cfg, hand_batch(9), torch.zeros(8), sgd, ref_model=Bigram(9, 1))
        grads.append(weights(model) - before)
    assert grads[0].abs().max() > 0
    for other in grads[1:]:
        torch.testing.assert_close(other, grads[0])


def test_truncated_rows_leave_means_and_statistics_but_count_as_rows():
    """Row 1 did not submit. Its advantage was computed with the others."""
    model, other = Bigram(9), Bigram(9)
    batch = hand_batch(9, rows=2)
    batch["action_mask"].fill_(1.0)
    batch["submitted"] = torch.tensor([True, False])
    a = torch.tensor([1.0, -1.0])
    alone = {name: x[:1] for name, x in batch.items()}
    rows = {}
    for mode in ("token_mean", "seq_mean_token_mean", "constant"):
        cfg = config(minibatches=1, mask_truncated=True, loss_mode=mode, lr=0.0001)
        sgd = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other)]
        stats = update(model, cfg, batch, a, sgd[0])
        lone = update(other, cfg, alone, a[:1], sgd[1])
        assert stats["entropy"] == pytest.approx(lone["entropy"])
        rows[mode] = stats["grad_norm"] / lone["grad_norm"]
        other.load_state_dict(model.state_dict())
    assert rows["token_mean"] == pytest.approx(1)
    assert rows["seq_mean_token_mean"] == pytest.approx(1)
    assert rows["constant"] == pytest.approx(1 / 2)


def test_what_an_update_refuses(tok):
    model, batch = Bigram(9), hand_batch(9)
    before = weights(model)
    bare = {name: batch[name] for name in ("ids", "action_mask", "rewards")}
    for args, match in [
        ((config(), bare, torch.ones(7)), r"advantages.shape is \(7,\)"),
        ((config(), bare, torch.ones(8, 1)), r"advantages.shape is \(8, 1\)"),
        ((config(), bare, torch.full((8,), NAN)), "advantages is .*finite"),
        ((config(kl_coef=0.1), bare, torch.ones(8)), "ref_model is None; .*kl_coef"),
        ((config(mask_truncated=True), bare, torch.ones(8)), "batch is .*'submitted'"),
    ]:
        with pytest.raises(ValueError, match=match):
            update(model, *args)
    assert torch.equal(weights(model), before)
    assert update(model, config(), bare)  # neither is needed here
