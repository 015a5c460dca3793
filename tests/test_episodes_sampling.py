"""Sampling: the right shares, one seed one episode, no traces in the model."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rollouts import TASKS, Chatty, Plain, both, gen, gyms, play, same_episodes, texts
from tiny import Bigram
from torch import nn

import agentrl as arl


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


@pytest.mark.parametrize("cached", [True, False])
def test_an_episode_does_not_depend_on_its_neighbours(tok, apprentice, cached):
    model = apprentice if cached else Plain(apprentice)

    def run(tasks):
        return play(model, tasks, tok, generator=gen(5))

    many = run(TASKS)
    same_episodes(many[:1], run(TASKS[:1]))  # a batch of one
    same_episodes(many[:7], run(TASKS[:7]))
    others = [*TASKS[:3], *reversed(TASKS[3:])]
    same_episodes(many[:3], run(others)[:3])
    last = [*reversed(TASKS[:-1]), TASKS[-1]]
    same_episodes(many[-1:], run(last)[-1:])


def test_float64_writes_the_same_episodes(tok, apprentice):
    single = play(apprentice, TASKS, tok, generator=gen())
    full, cached = both(apprentice.double(), gyms(TASKS), TASKS, tok)
    same_episodes(full, cached)
    same_episodes(single, cached)


class Dropping(nn.Module):
    """A model that says different things in train and in eval mode."""

    def __init__(self, vocab_size):
        super().__init__()
        self.body, self.drop = Bigram(vocab_size), nn.Dropout(0.5)
        self.frozen = nn.Dropout(0.5).eval()

    def forward(self, ids):
        return self.frozen(self.drop(self.body(ids)))


class Failing(Chatty):
    def __init__(self):
        super().__init__(3)

    def step(self, text):
        raise RuntimeError("boom")


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
