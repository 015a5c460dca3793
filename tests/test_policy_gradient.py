"""Log-probabilities, entropy, masked means, aggregation: values and gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import Bigram

import agentrl as arl

INF, NAN = math.inf, math.nan
MODES = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant")


@st.composite
def batches(draw, dtype=torch.float64):
    """Values `[B, T]` and any 0/1 mask, empty rows included."""
    b, t = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    values = st.lists(st.floats(-9, 9), min_size=b * t, max_size=b * t)
    bits = st.lists(st.integers(0, 1), min_size=b * t, max_size=b * t)
    x = torch.tensor(draw(values), dtype=dtype).view(b, t)
    return x, torch.tensor(draw(bits)).view(b, t).float()


def by_hand(x, mask, mode, norm_const):
    """The aggregations once more, one number at a time."""
    rows = [
        [v for v, m in zip(row, bits, strict=True) if m]
        for row, bits in zip(x.tolist(), mask.tolist(), strict=True)
    ]
    rows = [row for row in rows if row]
    if mode == "constant":
        return sum(map(sum, rows)) / norm_const
    if not rows:
        return 0.0
    if mode == "token_mean":
        return sum(map(sum, rows)) / sum(map(len, rows))
    if mode == "seq_mean_token_mean":
        return sum(sum(row) / len(row) for row in rows) / len(rows)
    return sum(map(sum, rows)) / len(rows)


# ---- log-probabilities


def test_log_probs_by_hand():
    logits = torch.tensor([[[0.0, math.log(3)], [2.0, 2.0]]])
    got = arl.selected_log_probs(logits, torch.tensor([[1, 0]]))
    assert got.shape == (1, 2)
    torch.testing.assert_close(got, torch.tensor([[0.75, 0.5]]).log())


def test_log_probs_gradient_by_hand():
    logits = torch.tensor([[[0.0, math.log(3)]]], requires_grad=True)
    arl.selected_log_probs(logits, torch.tensor([[0]])).sum().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[[0.75, -0.75]]]))


def test_log_probs_survive_large_logits():
    logits = torch.tensor([[[1e4, 0.0], [-1e4, -1e4]]])
    got = arl.selected_log_probs(logits, torch.tensor([[1, 0]]))
    torch.testing.assert_close(got, torch.tensor([[-1e4, -math.log(2)]]))


def test_log_probs_in_float32_are_those_of_float64():
    logits = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0)) * 20
    ids = torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(1))
    single = arl.selected_log_probs(logits, ids)
    double = arl.selected_log_probs(logits.double(), ids)
    assert single.dtype == torch.float32 and double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (3,)])
def test_ids_that_do_not_fit_the_logits_are_named(shape):
    with pytest.raises(ValueError, match=r"ids.shape is .*allowed: \(1, 2\)"):
        arl.selected_log_probs(
            torch.zeros(1, 2, 5), torch.zeros(shape, dtype=torch.long)
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_ids_of_another_type_are_named(dtype):
    with pytest.raises(ValueError, match=r"ids.dtype is .*allowed: torch.int64"):
        arl.selected_log_probs(torch.zeros(1, 2, 5), torch.zeros(1, 2, dtype=dtype))


@pytest.mark.parametrize("id", [-1, 5])
def test_ids_outside_of_the_vocabulary_are_named(id):
    with pytest.raises(ValueError, match=rf"ids: .* is .*{id}.*allowed: 0 to 4"):
        arl.selected_log_probs(torch.zeros(1, 2, 5), torch.tensor([[1, id]]))


def test_labels_are_the_next_tokens():
    """Of a bigram table, ids 1 2 3 4 move only W[1,2], W[2,3], W[3,4]."""
    model, ids = Bigram(6), torch.tensor([[1, 2, 3, 4]])
    arl.selected_log_probs(model(ids)[:, :-1], ids[:, 1:]).sum().backward()
    rows = model.table.grad.abs().sum(1)
    assert rows.nonzero().flatten().tolist() == [1, 2, 3]
    up = (model.table.grad > 0).nonzero().tolist()
    assert up == [[1, 2], [2, 3], [3, 4]]


# ---- entropy


def test_entropy_by_hand():
    logits = torch.tensor([[[0.0, 0, 0, 0], [50.0, 0, 0, 0], [0, 0, -INF, -INF]]])
    expected = torch.tensor([[math.log(4), 0.0, math.log(2)]])
    torch.testing.assert_close(arl.entropy_from_logits(logits), expected)


@given(st.lists(st.floats(-60, 60), min_size=2, max_size=6))
def test_entropy_lies_between_zero_and_the_log_of_the_vocabulary(row):
    logits = torch.tensor([[row]], dtype=torch.float64)
    entropy = arl.entropy_from_logits(logits).item()
    assert -1e-12 <= entropy <= math.log(len(row)) + 1e-12
    shifted = arl.entropy_from_logits(logits + 7).item()
    assert shifted == pytest.approx(entropy, abs=1e-9)


def test_entropy_over_padding_does_not_count():
    logits = torch.tensor([[[0.0, 0.0], [900.0, 0.0]]])  # uniform, certain
    entropy = arl.entropy_from_logits(logits)
    assert arl.masked_mean(entropy, torch.tensor([[0.0, 1.0]])) == 0


# ---- masked means


def test_masked_mean_by_hand():
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    mask = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert arl.masked_mean(x, mask) == 2
    assert arl.masked_mean(x, mask, dim=1).tolist() == [2, 0]
    assert arl.masked_mean(x, mask, dim=0).tolist() == [1, 0, 3]


@pytest.mark.parametrize("dim", [None, 0, 1])
@given(batches())
def test_an_empty_mask_gives_zero_with_zero_gradient(dim, batch):
    x = batch[0].requires_grad_()
    mean = arl.masked_mean(x, torch.zeros_like(x), dim)
    mean.sum().backward()
    assert not mean.any() and not x.grad.any()


@pytest.mark.parametrize("poison", [INF, -INF, NAN, 1e38])
@pytest.mark.parametrize("dim", [None, 0, 1])
@given(batches(torch.float32))
def test_values_at_mask_zero_never_matter(dim, poison, batch):
    x, mask = batch
    clean = x.clone().requires_grad_()
    bad = x.masked_fill(mask == 0, poison).requires_grad_()
    means = arl.masked_mean(clean, mask, dim), arl.masked_mean(bad, mask, dim)
    torch.testing.assert_close(*means, rtol=0, atol=0)
    for mean in means:
        mean.sum().backward()
    torch.testing.assert_close(clean.grad, bad.grad, rtol=0, atol=0)
    assert not bad.grad[mask == 0].any()


def test_a_mask_of_another_shape_is_named():
    with pytest.raises(ValueError, match=r"mask.shape is \(2,\); allowed: \(2, 2\)"):
        arl.masked_mean(torch.ones(2, 2), torch.ones(2))


def test_a_boolean_mask_will_do():
    x, mask = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([True, False, True])
    assert arl.masked_mean(x, mask) == arl.masked_mean(x, mask.float()) == 3.5


# ---- aggregation

# Two rows, three policy tokens and one; a third row without any.
X = [[1.0, 2.0, 3.0], [10.0, 99.0, 99.0], [99.0, 99.0, 99.0]]
MASK = [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("mode", "loss", "weights"),
    [
        ("token_mean", 4.0, [1 / 4, 1 / 4]),  # 1 / tokens in the batch
        ("seq_mean_token_mean", 6.0, [1 / 6, 1 / 2]),  # 1 / (rows x length)
        ("seq_mean_token_sum", 8.0, [1 / 2, 1 / 2]),  # 1 / rows
        ("constant", 2.0, [1 / 8, 1 / 8]),  # 1 / norm_const
    ],
)
def test_the_weight_of_one_token_by_hand(mode, loss, weights):
    x, mask = torch.tensor(X, requires_grad=True), torch.tensor(MASK)
    got = arl.aggregate_loss(x, mask, mode, norm_const=8)
    assert got.item() == pytest.approx(loss)
    got.backward()
    expected = mask * torch.tensor([[weights[0]], [weights[1]], [0.0]])
    torch.testing.assert_close(x.grad, expected)


@pytest.mark.parametrize("mode", MODES)
@given(batches())
def test_aggregation_is_what_the_definition_says(mode, batch):
    x, mask = batch
    got = arl.aggregate_loss(x, mask, mode, norm_const=7.5)
    assert got.item() == pytest.approx(by_hand(x, mask, mode, 7.5), abs=1e-9)


@pytest.mark.parametrize("mode", MODES)
@given(batches(torch.float32), st.sampled_from([INF, -INF, NAN, 7.0]))
def test_masked_positions_never_enter_a_loss(mode, batch, poison):
    x, mask = batch
    bad = x.masked_fill(mask == 0, poison).requires_grad_()
    loss = arl.aggregate_loss(bad, mask, mode, norm_const=4)
    torch.testing.assert_close(
        loss, arl.aggregate_loss(x, mask, mode, norm_const=4), rtol=0, atol=0
    )
    loss.backward()
    assert bad.grad.isfinite().all() and not bad.grad[mask == 0].any()


@pytest.mark.parametrize("mode", MODES)
def test_all_tokens_masked_is_zero_with_zero_gradient(mode):
    x = torch.ones(2, 3, requires_grad=True)
    loss = arl.aggregate_loss(x, torch.zeros(2, 3), mode, norm_const=4)
    loss.backward()
    assert loss == 0 and not x.grad.any()


@pytest.mark.parametrize("mode", ["seq_mean_token_mean", "seq_mean_token_sum"])
@given(batches())
def test_a_row_without_policy_tokens_is_dropped_from_sequence_means(mode, batch):
    x, mask = batch
    more = torch.cat([x, torch.ones(2, x.shape[1]).to(x)])
    more_mask = torch.cat([mask, torch.zeros(2, x.shape[1])])
    torch.testing.assert_close(
        arl.aggregate_loss(more, more_mask, mode), arl.aggregate_loss(x, mask, mode)
    )


@pytest.mark.parametrize("mode", MODES[:3])
@given(batches())
def test_a_batch_repeated_twice_has_the_same_mean(mode, batch):
    x, mask = batch
    torch.testing.assert_close(
        arl.aggregate_loss(x.repeat(2, 1), mask.repeat(2, 1), mode),
        arl.aggregate_loss(x, mask, mode),
    )


def test_constant_needs_its_constant():
    for bad in (None, 0, -1.0, NAN, INF, "8", True):
        with pytest.raises(
            (ValueError, TypeError), match="norm_const is .*above 0"
        ) as e:
            arl.aggregate_loss(torch.ones(1, 1), torch.ones(1, 1), "constant", bad)
        assert repr(bad) in str(e.value)


@pytest.mark.parametrize("mode", ["mean", "", None, 1])
def test_an_unknown_mode_is_named(mode):
    with pytest.raises(
        ValueError, match="mode is .*'token_mean', 'seq_mean_token_mean'"
    ):
        arl.aggregate_loss(torch.ones(1, 1), torch.ones(1, 1), mode)
