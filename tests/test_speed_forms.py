"""Which models have a fast form: what reads like a Policy, never what does not."""

import copy

import pytest
import torch
from rollouts import TASKS, Plain, gen, play, same_episodes
from tiny import Bigram, Nudged, small_policy, weights
from torch import nn
from updates import config, hand_batch, update

import agentrl as arl
from agentrl import agent, episodes, speed

SIZES = {"width": 16, "layers": 2, "heads": 2}


class Renamed(arl.Policy):
    """A subclass that changes nothing about reading."""

    def describe(self):
        return "a policy"


class Sharper(arl.Policy):
    """A subclass that reads in its own way."""

    def forward(self, ids):
        return 3 * super().forward(ids)


class Wrapped(nn.Module):
    """A policy inside of another module, which says what its fast form is."""

    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    def forward(self, ids):
        return self.policy(ids)

    def fast_form(self):
        return arl.fast_form(self.policy)


class Halved(nn.Module):
    """A part that passes on half of what another part says."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, *args):
        return self.part(*args) / 2


class ShyAttention(agent.Attention):
    def forward(self, x):
        return super().forward(x) / 2


class ShyBlock(agent.Block):
    def forward(self, x):
        return super().forward(x) / 2


class ShyEmbedding(agent.TiedEmbedding):
    def forward(self, ids, position):
        return super().forward(ids, position) / 2


def same_weights(kind, tok, **more):
    """A model of another class with the weights of the small policy."""
    model = kind(len(tok), **SIZES, **more)
    model.load_state_dict(small_policy(tok).state_dict())
    return model


def readers_used(monkeypatch):
    """A list that notes the kind of reader of every pass."""
    used = []
    for reader in (episodes.FullContext, speed.CachedContext):
        read = reader.next_logits

        def spy(self, *args, _read=read):
            used.append(type(self))
            return _read(self, *args)

        monkeypatch.setattr(reader, "next_logits", spy)
    return used


@pytest.mark.parametrize(
    ("make", "fast"),
    [
        (small_policy, True),
        (lambda tok: same_weights(Renamed, tok), True),
        (lambda tok: Wrapped(small_policy(tok)), True),
        (lambda tok: same_weights(Sharper, tok), False),
        (lambda tok: Wrapped(same_weights(Sharper, tok)), False),
        (lambda tok: Plain(small_policy(tok)), False),
        (lambda tok: Bigram(len(tok)), False),
        (lambda tok: Nudged(small_policy(tok), tok), False),
    ],
    ids="policy renamed wrapped sharper wrapped-sharper plain bigram nudged".split(),
)
def test_who_takes_the_fast_path(tok, monkeypatch, make, fast):
    model, used = make(tok), readers_used(monkeypatch)
    trajs = play(model, TASKS[:3], tok, generator=gen())
    assert set(used) == {speed.CachedContext if fast else episodes.FullContext}
    assert (arl.fast_form(model) is not None) is fast
    same_episodes(trajs, play(Plain(model), TASKS[:3], tok, generator=gen()))


@pytest.mark.parametrize(
    "make",
    [lambda tok: same_weights(Renamed, tok), lambda tok: Wrapped(small_policy(tok))],
    ids=["renamed", "wrapped"],
)
def test_another_name_or_a_wrapper_changes_no_bit_of_an_update(tok, make):
    batch, cfg = hand_batch(len(tok)), config(lr=0.01)
    plain, other = small_policy(tok), make(tok)
    assert update(plain, cfg, batch) == update(other, cfg, batch)
    assert torch.equal(weights(plain), weights(other))


def broken_in(place):
    """A change to a policy of which its class knows nothing."""

    def halve(module, args, output):
        return output / 2

    def method(model):
        forward = model.forward
        model.forward = lambda ids: 3 * forward(ids)

    def replaced(model):
        top = model.blocks[-1]
        top.attention = Halved(top.attention)

    def of_class(part, kind):
        part.__class__ = kind

    return {
        "a hook": lambda model: model.register_forward_hook(
            lambda module, args, output: 3 * output
        ),
        "a hook of a block": lambda model: model.blocks[0].register_forward_hook(halve),
        "a hook of attention": lambda model: model.blocks[
            1
        ].attention.register_forward_hook(halve),
        "a hook of the embedding": lambda model: model.embed.register_forward_hook(
            halve
        ),
        "a method": method,
        "attention in a wrapper": replaced,
        "a block": lambda model: of_class(model.blocks[0], ShyBlock),
        "attention": lambda model: of_class(model.blocks[1].attention, ShyAttention),
        "the embedding": lambda model: of_class(model.embed, ShyEmbedding),
        "a layer": lambda model: setattr(
            model.blocks[0], "up", Halved(model.blocks[0].up)
        ),
        "the last norm": lambda model: setattr(model, "norm", Halved(model.norm)),
    }[place]


@pytest.mark.parametrize(
    "place",
    [
        "a hook",
        "a hook of a block",
        "a hook of attention",
        "a hook of the embedding",
        "a method",
        "attention in a wrapper",
        "a block",
        "attention",
        "the embedding",
        "a layer",
        "the last norm",
    ],
)
def test_what_was_changed_by_hand_is_read_as_it_is(tok, place):
    """By its own forward, or by a fast form that knows of the change: never without."""
    model = small_policy(tok)
    before = copy.deepcopy(model)
    broken_in(place)(model)
    prompts = [tok.encode("<bos> " + task.issue) for task in TASKS[:3]]
    ids, rows = torch.tensor(prompts), [0, 1, 2]
    with torch.no_grad():
        expected = model(ids)
        assert (expected - before(ids)).abs().max() > 0.01
        reader = arl.fast_reader(model, tok, 3) or arl.FullContext(model, tok)
        torch.testing.assert_close(
            reader.next_logits(prompts, rows), expected[:, -1], atol=1e-5, rtol=1e-5
        )
        mask = torch.ones(3, ids.shape[1] - 1)
        logp = arl.token_log_probs(model, ids, mask, 1.0)
    torch.testing.assert_close(
        logp, arl.selected_log_probs(expected[:, :-1], ids[:, 1:]), atol=1e-5, rtol=1e-5
    )


def test_a_model_that_says_it_has_no_fast_form(tok):
    model = Wrapped(small_policy(tok))
    model.fast_form = lambda: None
    same_episodes(
        play(model, TASKS[:2], tok, generator=gen()),
        play(model.policy, TASKS[:2], tok, generator=gen()),
    )
