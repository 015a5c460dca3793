"""An update stops before numbers that are not finite reach the weights."""

import pytest
import torch
from tiny import Bigram, small_policy, weights
from updates import INF, NAN, config, hand_batch, update


class Explosive(Bigram):
    """Its gradient is not finite from the `fuse`-th backward pass on."""

    def __init__(self, size, bad, fuse):
        super().__init__(size)
        self.bad, self.fuse = bad, fuse

        def hook(grad):
            self.fuse -= 1
            return torch.full_like(grad, bad) if self.fuse < 0 else grad

        self.table.register_hook(hook)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_gradient_that_is_not_finite_stops_before_its_step(bad):
    batch, cfg = hand_batch(9), config(lr=0.1)
    model = Explosive(9, bad, 0)
    before = weights(model)
    with pytest.raises(FloatingPointError, match="gradient"):
        update(model, cfg, batch)
    assert torch.equal(weights(model), before)
    assert model.training  # the mode came back
    # In the second minibatch: the first one's step stands, no more.
    model, twin = Explosive(9, bad, 1), Explosive(9, bad, 10)
    after_first = []
    adam = torch.optim.Adam(twin.parameters(), lr=0.1)
    adam.register_step_post_hook(lambda *_: after_first.append(weights(twin)))
    update(twin, cfg, batch, optimizer=adam)
    with pytest.raises(FloatingPointError):
        update(model, cfg, batch)
    assert torch.equal(weights(model), after_first[0])


def spoilt(tok, kind):
    """A model with a weight that is no number."""
    model = Bigram(9) if kind == "table" else small_policy(tok, layers=1)
    with torch.no_grad():
        next(model.parameters()).fill_(NAN)
    return model


@pytest.mark.parametrize("kind", ["table", "policy"])
@pytest.mark.parametrize("level", ["token", "sequence", "cispo"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_weights_that_are_no_numbers_are_noticed(tok, kind, level, value):
    """Also where every advantage is 0, so that no gradient would tell."""
    model = spoilt(tok, kind)
    batch = hand_batch(len(tok) if kind == "policy" else 9)
    before, steps = weights(model), []
    adam = torch.optim.Adam(model.parameters())
    adam.register_step_post_hook(lambda *_: steps.append(1))
    cfg = config(ratio_level=level)
    with pytest.raises(FloatingPointError, match="nan"):
        update(model, cfg, batch, torch.full((8,), value), adam)
    assert not steps
    torch.testing.assert_close(weights(model), before, equal_nan=True)
