"""The config of a run: defaults, what it accepts, how it refuses."""

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest

import agentrl as arl

DEFAULTS = {
    "group_size": 8,
    "prompts_per_step": 8,
    "temperature": 1.0,
    "max_turns": 6,
    "rename": True,
    "max_edits": 1,
    "reward": "hidden",
    "adv_mode": "grpo",
    "overlong_buffer": 0,
    "mask_truncated": False,
    "dynamic_sampling": False,
    "max_sample_rounds": 4,
    "ratio_level": "token",
    "clip_low": 0.2,
    "clip_high": 0.2,
    "loss_mode": "token_mean",
    "norm_const": None,
    "kl_coef": 0.0,
    "kl_kind": "k3",
    "lr": 1e-3,
    "epochs": 1,
    "minibatches": 2,
    "max_grad_norm": 1.0,
    "seed": 0,
}


def test_the_defaults():
    cfg = arl.RLConfig()
    assert dataclasses.asdict(cfg) == DEFAULTS
    for name, value in DEFAULTS.items():
        assert type(getattr(cfg, name)) is type(value), name
    assert dataclasses.replace(cfg) == cfg


@pytest.mark.parametrize(
    "fields",
    [
        {"group_size": 1},
        {"max_edits": None},
        {"max_edits": 0},
        {"reward": "public"},
        {"reward": lambda info: 0.0},
        {"overlong_buffer": 6},
        {"norm_const": 100},
        {"clip_low": 0, "clip_high": 0},
        {"kl_coef": 1},
        {"temperature": 2},
        {"minibatches": 1000},
        *({"adv_mode": mode} for mode in ("grpo", "mean", "rloo")),
        *({"ratio_level": level} for level in ("token", "sequence", "cispo")),
        *({"kl_kind": kind} for kind in ("k1", "k2", "k3")),
        *(
            {"loss_mode": mode}
            for mode in (
                "token_mean",
                "seq_mean_token_mean",
                "seq_mean_token_sum",
                "constant",
            )
        ),
    ],
)
def test_what_it_accepts(fields):
    cfg = arl.RLConfig(**fields)
    for name, value in fields.items():
        assert getattr(cfg, name) == value


COUNTS = dict.fromkeys(
    ("group_size", "prompts_per_step", "max_turns", "max_sample_rounds"), 1
) | {"epochs": 1, "minibatches": 1, "overlong_buffer": 0, "seed": 0, "max_edits": 0}
ABOVE_ZERO = ("temperature", "lr", "max_grad_norm", "norm_const")
FROM_ZERO = ("clip_low", "clip_high", "kl_coef")
WORDS = ("adv_mode", "ratio_level", "loss_mode", "kl_kind", "reward")
FLAGS = ("rename", "mask_truncated", "dynamic_sampling")


def refused():
    for name, low in COUNTS.items():
        for bad in (low - 1, low + 0.5, "2", True, [1], math.nan):
            yield name, bad
        if name != "max_edits":
            yield name, None
    for name in ABOVE_ZERO + FROM_ZERO:
        for bad in (-1.0, math.nan, math.inf, "1", True):
            yield name, bad
    for name in ABOVE_ZERO:
        yield name, 0
        yield name, 0.0
    for name in ("temperature", "lr", "max_grad_norm", *FROM_ZERO):
        yield name, None
    for name in WORDS:
        for bad in ("", "other", None, 1, ["grpo"]):
            yield name, bad
    for name in FLAGS:
        for bad in (0, 1, None, "yes"):
            yield name, bad


@pytest.mark.parametrize(("name", "bad"), list(refused()))
def test_a_refused_value_names_the_field_the_value_and_what_is_allowed(name, bad):
    with pytest.raises((ValueError, TypeError), match=f"^{name} is .*allowed: ") as e:
        arl.RLConfig(**{name: bad})
    assert repr(bad) in str(e.value)


def test_every_field_is_checked():
    assert {name for name, _ in refused()} == set(DEFAULTS)


def test_words_that_are_allowed_stand_in_the_message():
    with pytest.raises(ValueError, match="'token', 'sequence', 'cispo'"):
        arl.RLConfig(ratio_level="episode")
    with pytest.raises((ValueError, TypeError), match="'hidden', 'public' or a"):
        arl.RLConfig(reward="secret")


@pytest.mark.parametrize(("name", "bad"), [("lr", -1.0), ("adv_mode", "gae")])
def test_replace_checks_again(name, bad):
    with pytest.raises(ValueError, match=f"^{name} is .*allowed: "):
        dataclasses.replace(arl.RLConfig(), **{name: bad})
    with pytest.raises(ValueError, match="overlong_buffer is 5; .*max_turns=4"):
        dataclasses.replace(arl.RLConfig(overlong_buffer=5), max_turns=4)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_config_cannot_be_written_to(name):
    cfg = arl.RLConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(cfg, name, DEFAULTS[name])
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(cfg, name)


def test_equal_configs_are_interchangeable_and_survive_copies():
    cfg = arl.RLConfig(lr=0.01, max_edits=None)
    assert {cfg: "found"}[arl.RLConfig(lr=0.01, max_edits=None)] == "found"
    assert copy.deepcopy(cfg) == cfg == pickle.loads(pickle.dumps(cfg))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group_size", np.int64(4)),
        ("max_edits", np.int32(0)),
        ("seed", np.uint8(7)),
        ("lr", np.float32(0.5)),
        ("clip_low", np.float64(0.1)),
        ("norm_const", np.int64(9)),
        ("rename", np.bool_(False)),
        ("adv_mode", np.str_("rloo")),
    ],
)
def test_numbers_of_numpy_become_pythons(name, value):
    kept = getattr(arl.RLConfig(**{name: value}), name)
    assert kept == value
    assert type(kept) is type(value.item())


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("group_size", np.int64(0)),
        ("group_size", np.float64(4)),
        ("group_size", np.bool_(True)),
        ("lr", np.float32("nan")),
        ("rename", np.int64(1)),
        ("temperature", 1e-40),
        ("seed", 2**64),
    ],
)
def test_refused_by_numpys_type_or_by_size(name, bad):
    with pytest.raises((ValueError, TypeError), match=f"^{name} is .*allowed: "):
        arl.RLConfig(**{name: bad})


@pytest.mark.parametrize("name", ["group_size", "prompts_per_step"])
def test_more_episodes_in_a_step_than_memory_holds_are_refused(name):
    other = "prompts_per_step x group_size is 8000000000; allowed: at most 1000000 "
    with pytest.raises(ValueError, match=other):
        arl.RLConfig(**{name: 10**9})
    assert getattr(arl.RLConfig(**{name: 125_000}), name) == 125_000


def test_a_buffer_longer_than_the_episode_is_refused():
    with pytest.raises(ValueError, match="overlong_buffer is 7; .*max_turns=6"):
        arl.RLConfig(overlong_buffer=7)


def test_an_unknown_field_is_an_error():
    with pytest.raises(TypeError, match="clip_middle"):
        arl.RLConfig(clip_middle=0.1)
