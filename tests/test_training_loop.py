"""Sampling, statistics, advantages, the update and the loop."""

import copy
import io
import itertools
import math
import random
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import Bigram, Scripted, call, small_policy, trajectory, weights
from torch import nn

import agentrl as arl

TOK = arl.build_tokenizer(arl.make_tasks("all"))

INF, NAN = math.inf, math.nan
TRAIN = arl.make_tasks("train")
HELDOUT = arl.make_tasks("heldout")
UPDATE = {"clip_frac", "approx_kl", "ratio_min", "ratio_max", "grad_norm", "entropy"}
BEHAVIOR = {
    "pass_rate",
    "reward",
    "reads",
    "tests",
    "edits",
    "first_edit_right",
    "turns",
    "length",
}


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def turns_used(info):
    """A reward that differs from episode to episode."""
    return info["n_turns"] / 10


def config(**fields):
    """A small setting whose rewards vary."""
    small = {"group_size": 4, "prompts_per_step": 3, "reward": turns_used}
    return arl.RLConfig(**{**small, **fields})


def factory(cfg):
    return partial(arl.make_env, cfg)


# ---- environments and groups


def test_the_environment_of_a_config():
    free = arl.make_env(arl.RLConfig(max_edits=None, max_turns=4))
    assert type(free) is arl.BugFixEnv and free.max_turns == 4
    cfg = arl.RLConfig(max_edits=2, max_turns=3, reward=turns_used)
    env = arl.make_env(cfg)
    assert type(env) is arl.EditBudgetEnv
    assert (env.max_turns, env.max_edits, env.reward_fn) == (3, 2, turns_used)
    assert arl.make_env(cfg) is not env
    assert type(arl.make_env(arl.RLConfig())) is arl.EditBudgetEnv


@pytest.mark.parametrize("rename", [True, False])
def test_groups_are_contiguous_and_their_attempts_differ(tok, apprentice, rename):
    cfg = config(rename=rename, group_size=5)
    trajs = arl.sample_groups(apprentice, factory(cfg), TRAIN[:4], tok, cfg, gen())
    assert len(trajs) == 20
    for task, group in zip(TRAIN[:4], arl.groups_of(trajs, 5), strict=True):
        assert [t.info["task"] for t in group] == [task.name] * 5
        assert len({tuple(t.ids.tolist()) for t in group}) > 1
        shown = {tok.words[t.ids[3]] for t in group}  # the name in the issue
        assert shown == {task.fn_name} if not rename else len(shown) > 1


@pytest.mark.parametrize("rename", [True, False])
def test_the_seed_of_the_names_is_drawn_first(tok, apprentice, rename):
    """So that renaming or not leaves the numbers that sample tokens where they are."""
    cfg, generator = config(rename=rename), gen(3)
    trajs = arl.sample_groups(apprentice, factory(cfg), TRAIN[:2], tok, cfg, generator)
    again = gen(3)
    rng = random.Random(torch.randint(2**62, (), generator=again).item())
    tasks = [task for task in TRAIN[:2] for _ in range(4)]
    if rename:
        tasks = [arl.randomize_names(task, rng) for task in tasks]
    envs = [arl.make_env(cfg) for _ in tasks]
    by_hand = arl.rollout_batch(apprentice, envs, tasks, tok, generator=again)
    assert [t.ids.tolist() for t in trajs] == [t.ids.tolist() for t in by_hand]
    assert torch.equal(generator.get_state(), again.get_state())


def test_one_seed_fixes_a_step(tok, apprentice):
    cfg = config()

    def ids(seed):
        args = apprentice, factory(cfg), TRAIN, tok, cfg, gen(seed)
        return [t.ids.tolist() for t in arl.sample_groups(*args)]

    assert ids(0) == ids(0) != ids(1)


def test_each_episode_gets_a_fresh_environment(tok, apprentice):
    cfg, made = config(), []

    def make():
        made.append(arl.make_env(cfg))
        return made[-1]

    arl.sample_groups(apprentice, make, TRAIN[:2], tok, cfg, gen())
    assert len(made) == 8 and all(env.done for env in made)
    with pytest.raises(ValueError, match="env_factory is .*fresh"):
        arl.sample_groups(apprentice, lambda: made[0], TRAIN[:2], tok, cfg, gen())


def test_sampling_accepts_a_group_of_one(tok, apprentice):
    cfg = config(group_size=1)
    trajs = arl.sample_groups(apprentice, factory(cfg), TRAIN[:3], tok, cfg, gen())
    assert [t.info["task"] for t in trajs] == [task.name for task in TRAIN[:3]]


# ---- behaviour


def test_behavior_by_hand():
    trajs = [
        trajectory(1.0, ["swap_minmax"], actions=[call("read"), call("read")], n=5),
        trajectory(0.0, ["fix_init", "swap_minmax"], submitted=True, n=3),
        trajectory(0.5, [], submitted=False, actions=["<call> read read </call>"] * 4),
        trajectory(0.0, ["fix_range_end"], task="range_end/tally", submitted=False),
    ]
    trajs[0].info["actions"].append(call("test"))
    trajs[2].info["hidden_pass"] = True  # but it did not submit
    stats = arl.behavior_stats(trajs)
    assert stats == {
        "pass_rate": 1 / 4,
        "reward": 1.5 / 4,
        "reads": 2 / 4,
        "tests": 1 / 4,
        "edits": 4 / 4,
        "first_edit_right": 2 / 4,
        "turns": (2 + 3 + 4 + 1) / 4,
        "length": (4 + 2 + 3 + 3) / 4,
    }
    assert set(stats) == BEHAVIOR
    with pytest.raises(ValueError, match=r"len\(trajs\) is 0"):
        arl.behavior_stats([])


def test_behavior_counts_policy_tokens_and_exact_calls(tok):
    script = [
        call("read"),
        "read",
        call("fix_init"),
        "<call> edit x </call>",
        call("test"),
    ]
    cfg = config(max_edits=None)
    trajs = arl.sample_groups(
        Scripted(tok, {"": [*script, call("submit")]}),
        factory(cfg),
        TRAIN[:1],
        tok,
        cfg,
        gen(),
    )
    stats = arl.behavior_stats(trajs)
    assert (stats["reads"], stats["tests"], stats["edits"], stats["turns"]) == (
        1,
        1,
        1,
        6,
    )
    assert stats["length"] == 3 + 6 + 4 + 4 + 3 + 3
    assert stats["first_edit_right"] == stats["pass_rate"] == 0


# ---- advantages


def batch_of(rewards, **more):
    return {"rewards": torch.tensor(rewards), **more}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("grpo", lambda r: arl.group_advantages(r, 4)),
        ("mean", lambda r: arl.group_advantages(r, 4, normalize_std=False)),
        ("rloo", lambda r: arl.rloo_advantages(r, 4)),
    ],
)
def test_the_mode_names_the_estimator(mode, expected):
    batch = batch_of([1.0, 0, 0, 0, 0.5, 0.2, 0.1, 0.9])
    got = arl.compute_advantages(batch, config(adv_mode=mode))
    assert torch.equal(got, expected(batch["rewards"]))


def test_the_overlong_ramp_by_hand():
    """Buffer 2 of 6 turns: 0 up to turn 4, -0.5 on turn 5, -1 on turn 6."""
    turns = torch.tensor([1.0, 4.0, 5.0, 6.0])
    cfg = config(overlong_buffer=2, adv_mode="mean")
    got = arl.compute_advantages(batch_of([1.0] * 4, n_turns=turns), cfg)
    shaped = torch.tensor([1.0, 1.0, 0.5, 0.0])
    torch.testing.assert_close(got, shaped - shaped.mean())


@given(st.integers(1, 9), st.integers(1, 9), st.lists(st.integers(1, 9), min_size=2))
def test_the_overlong_ramp_of_any_buffer(max_turns, buffer, turns):
    max_turns = max(max_turns, buffer)
    turns = torch.tensor(turns, dtype=torch.float64).clamp(max=max_turns)
    cfg = config(
        max_turns=max_turns,
        overlong_buffer=buffer,
        group_size=len(turns),
        adv_mode="mean",
    )
    rewards = torch.ones(len(turns), dtype=torch.float64)
    got = arl.compute_advantages({"rewards": rewards, "n_turns": turns}, cfg)
    late = [max(0.0, t - (max_turns - buffer)) / buffer for t in turns.tolist()]
    shaped = rewards - torch.tensor(late, dtype=torch.float64)
    torch.testing.assert_close(got, shaped - shaped.mean(), atol=1e-12, rtol=0)
    assert rewards.tolist() == [1.0] * len(turns)  # not changed in place


def test_what_advantages_need():
    assert arl.compute_advantages(batch_of([1.0, 0, 0, 0]), config())[0] > 0
    with pytest.raises(ValueError, match="batch is .*'n_turns' in it"):
        arl.compute_advantages(batch_of([1.0, 0, 0, 0]), config(overlong_buffer=2))
    for mode in ("grpo", "mean", "rloo"):
        with pytest.raises(ValueError, match="group_size is 1"):
            arl.compute_advantages(
                batch_of([1.0, 0.0]), config(group_size=1, adv_mode=mode)
            )
        with pytest.raises(ValueError, match=r"episode \[?1\]?"):
            arl.compute_advantages(batch_of([1.0, NAN, 0, 0]), config(adv_mode=mode))


# ---- KL


@pytest.mark.parametrize(
    ("kind", "value", "grad"),
    [
        # log(ref/policy) = l = log 2 - log 4 = -log 2
        ("k1", math.log(2), 1.0),
        ("k2", math.log(2) ** 2 / 2, math.log(2)),
        ("k3", 0.5 - 1 + math.log(2), 1 - 0.5),
    ],
)
def test_kl_of_one_token_by_hand(kind, value, grad):
    logp = torch.tensor([[math.log(0.4)]], requires_grad=True)
    ref = torch.tensor([[math.log(0.2)]], requires_grad=True)
    got = arl.kl_penalty(logp, ref, kind)
    got.sum().backward()
    assert got.item() == pytest.approx(value, rel=1e-5)
    assert logp.grad.item() == pytest.approx(grad, rel=1e-5)
    assert ref.grad is None


logs = st.floats(-15, 0)


@given(logs, logs)
def test_kl_values_and_gradients(new, ref):
    """d k1 = 1 everywhere: as a loss it pulls nowhere in particular."""
    l = ref - new
    expected = {
        "k1": (-l, 1.0),
        "k2": (l * l / 2, -l),
        "k3": (math.exp(l) - 1 - l, 1 - math.exp(l)),
    }
    for kind, (value, grad) in expected.items():
        logp = torch.tensor([[new]], dtype=torch.float64, requires_grad=True)
        got = arl.kl_penalty(logp, torch.tensor([[ref]], dtype=torch.float64), kind)
        got.sum().backward()
        assert got.item() == pytest.approx(value, rel=1e-6, abs=1e-6)
        assert logp.grad.item() == pytest.approx(grad, rel=1e-6, abs=1e-6)
    assert torch.equal(
        arl.kl_penalty(logp, logp.detach()), arl.kl_penalty(logp, logp.detach(), "k3")
    )


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=6))
def test_k1_and_k3_are_unbiased_and_no_k2(values):
    """Weighted by the policy's probabilities they sum to KL(policy, reference)."""
    policy, ref = torch.tensor(values, dtype=torch.float64).view(2, 3).log_softmax(1)
    exact = (policy.exp() * (policy - ref)).sum().item()
    for kind in ("k1", "k3"):
        mean = (policy.exp() * arl.kl_penalty(policy, ref, kind)).sum().item()
        assert mean == pytest.approx(exact, abs=1e-9)
    assert (arl.kl_penalty(policy, ref, "k3") >= 0).all()


def test_k1_and_k2_keep_their_pull_far_away():
    """Only the exponential of k3 needs a limit."""
    for l in (50.0, -50.0):
        logp = torch.tensor([[-60.0]], requires_grad=True)
        ref = torch.tensor([[-60.0 + l]])
        k1, k2 = (arl.kl_penalty(logp, ref, kind) for kind in ("k1", "k2"))
        assert (k1.item(), k2.item()) == (-l, l * l / 2)
        (k1 + k2).sum().backward()
        assert logp.grad.item() == pytest.approx(1 - l)
        assert arl.kl_penalty(logp, ref, "k3").isfinite().all()


def test_k3_does_not_cancel_in_float32():
    logp, ref = torch.zeros(1, 1), torch.full((1, 1), 1e-4)
    assert arl.kl_penalty(logp, ref, "k3").item() == pytest.approx(0.5e-8, rel=0.01)


def test_kl_names_what_it_refuses():
    x = torch.zeros(2, 2)
    for kind in ("k4", "", None):
        with pytest.raises(ValueError, match="kind is .*'k1', 'k2', 'k3'") as e:
            arl.kl_penalty(x, x, kind)
        assert repr(kind) in str(e.value)
    with pytest.raises(ValueError, match=r"ref_logp.shape is \(2, 3\)"):
        arl.kl_penalty(x, torch.zeros(2, 3))


# ---- the loss that a config names


def tensors(seed=0, b=4, t=5, dtype=torch.float32):
    g = gen(seed)
    logp = torch.randn(b, t, generator=g, dtype=dtype)
    old = logp + 0.3 * torch.randn(b, t, generator=g, dtype=dtype)
    a = torch.randn(b, generator=g, dtype=dtype)
    mask = (torch.rand(b, t, generator=g) < 0.7).to(dtype)
    return logp, old, a, mask


MODES = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("norm_const", [None, 17.0])
def test_the_level_names_the_loss(mode, norm_const):
    args = tensors()
    cfg = config(
        loss_mode=mode, norm_const=norm_const, clip_low=0.1, clip_high=0.3, max_turns=5
    )
    used = norm_const or 4 * 5 * arl.MAX_CALL_TOKENS
    for level, (loss, stats) in {
        "token": arl.ppo_policy_loss(*args, 0.1, 0.3, mode, used),
        "sequence": arl.gspo_policy_loss(*args, 0.1, 0.3),
        "cispo": arl.cispo_policy_loss(*args, 0.3, mode, used),
    }.items():
        got = arl.policy_loss(*args, replace(cfg, ratio_level=level))
        assert torch.equal(got[0], loss) and got[1] == stats


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", ["token", "sequence", "cispo"])
def test_a_batch_repeated_twice_has_the_same_loss(mode, level):
    logp, old, a, mask = tensors()
    cfg = config(loss_mode=mode, ratio_level=level)
    once = arl.policy_loss(logp, old, a, mask, cfg)[0]
    twice = arl.policy_loss(
        logp.repeat(2, 1), old.repeat(2, 1), a.repeat(2), mask.repeat(2, 1), cfg
    )[0]
    torch.testing.assert_close(once, twice)


def test_a_config_that_was_changed_is_checked_again(tok, apprentice):
    """`RLConfig` can be written to; no word may pass for another one."""
    batch = batch_of([1.0, 0, 0, 0])
    for name, work in {
        "adv_mode": lambda cfg: arl.compute_advantages(batch, cfg),
        "ratio_level": lambda cfg: arl.policy_loss(*tensors(), cfg),
        "max_turns": lambda cfg: arl.sample_groups(
            apprentice, factory(cfg), TRAIN[:1], tok, cfg, gen()
        ),
        "max_sample_rounds": lambda cfg: arl.sample_step(
            apprentice, factory(cfg), TRAIN, tok, cfg, gen()
        ),
        "epochs": lambda cfg: update(Bigram(9), cfg, hand_batch(9)),
        "lr": lambda cfg: arl.train_rl(apprentice, TRAIN, tok, cfg, 1),
        "reward": lambda cfg: arl.evaluate(apprentice, TRAIN, tok, cfg=cfg),
    }.items():
        cfg = config()
        setattr(cfg, name, "nonsense")
        with pytest.raises((ValueError, TypeError), match=f"^{name} is 'nonsense'"):
            work(cfg)


# ---- the update


def hand_batch(vocab_size, rows=8, length=7, seed=0, dtype=torch.float32):
    """Random ids under a random mask, ragged as padded rows are; rewards, turns."""
    g = gen(seed)
    ids = torch.randint(vocab_size, (rows, length), generator=g)
    mask = (torch.rand(rows, length - 1, generator=g) < 0.6).float()
    mask[-1, 2:] = 0
    mask[0] = 0
    return {
        "ids": ids,
        "action_mask": mask,
        "rewards": torch.rand(rows, generator=g),
        "n_turns": torch.randint(1, 7, (rows,), generator=g).float(),
        "submitted": torch.rand(rows, generator=g) < 0.7,
    }


def update(model, cfg, batch, advantages=None, optimizer=None, **options):
    """One `rl_update` with Adam and a generator of seed 0."""
    if advantages is None:
        advantages = arl.compute_advantages(batch, cfg)
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=cfg.lr)
    options = {"generator": gen(), **options}
    return arl.rl_update(model, optimizer, batch, advantages, cfg, **options)


def textbook_update(model, cfg, batch, advantages, optimizer, ref_model=None):
    """What an update means, without any saving of work."""
    model.eval()
    generator, ids, mask = gen(), batch["ids"], batch["action_mask"].clone()
    if cfg.mask_truncated:
        mask[~batch["submitted"]] = 0

    def log_probs(policy, rows):
        logits = policy(ids[rows])[:, :-1] / cfg.temperature
        return logits, torch.log_softmax(logits, -1).gather(
            2, ids[rows][:, 1:, None]
        ).squeeze(2)

    everything = torch.arange(len(ids))
    with torch.no_grad():
        old = log_probs(model, everything)[1]
        ref = log_probs(ref_model, everything)[1] if ref_model else None
    totals = {}
    for _ in range(cfg.epochs):
        order = torch.randperm(len(ids), generator=generator)
        for rows in order.tensor_split(min(cfg.minibatches, len(ids))):
            logits, logp = log_probs(model, rows)
            loss, stats = arl.policy_loss(
                logp, old[rows], advantages[rows], mask[rows], cfg
            )
            p = torch.softmax(logits, -1)
            n = max(mask[rows].sum(), 1)
            stats["entropy"] = (-(p * p.log()).sum(-1) * mask[rows]).sum().item() / n
            if ref is not None:
                kl = arl.kl_penalty(logp, ref[rows], cfg.kl_kind)
                kl = (kl * mask[rows]).sum() / n
                stats["kl_ref"] = kl.item()
                loss = loss + cfg.kl_coef * kl
            optimizer.zero_grad()
            loss.backward()
            grads = [p.grad for p in model.parameters()]
            norm = torch.stack([g.norm() for g in grads]).norm()
            for g in grads:
                g *= min(1.0, cfg.max_grad_norm / (norm.item() + 1e-6))
            stats["grad_norm"] = norm.item()
            optimizer.step()
            for name, value in stats.items():
                share = len(rows) / len(ids) / cfg.epochs
                totals[name] = totals.get(name, 0) + share * float(value)
    return totals


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
    for policy, run in ((model, update), (twin, textbook_update)):
        optimizer = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
        for _ in range(2):  # twice: the optimizer has a memory
            stats = run(policy, cfg, batch, advantages, optimizer, ref_model=ref)
        results.append(stats)
    # The skipped rows of `constant`, and of any other mode, change nothing.
    torch.testing.assert_close(weights(model), weights(twin), atol=1e-7, rtol=1e-7)
    assert results[0].keys() == results[1].keys()
    assert results[0] == pytest.approx(results[1], rel=1e-6, abs=1e-9)
    assert set(results[0]) == UPDATE | ({"kl_ref"} if ref else set())


@given(st.integers(0, 10**6), st.sampled_from([Bigram, None]))
def test_token_stats_are_those_of_the_whole_table(seed, make):
    """Any mask, any live rows: values and gradients of the plain form, 0 elsewhere."""
    model = (make(len(TOK)) if make else small_policy(TOK, layers=2)).double()
    batch = hand_batch(len(TOK), rows=5, length=6, seed=seed)
    ids, mask = batch["ids"], batch["action_mask"]
    live = batch["submitted"]
    logits = model(ids)[:, :-1] / 0.7
    logp, entropy = arl.token_stats(model, ids, mask, 0.7, live)
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
    runs = [(rows.tolist(), *sizes) for rows, *sizes in arl.live_runs(mask, live)]
    assert runs == [([0, 2], 4, 2), ([1, 3], 3, 1)]
    assert arl.policy_places(mask.bool()).tolist() == [[1, 0], [0, 1], [0, 3], [2, 0]]


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


@given(st.integers(1, 12), st.integers(1, 15), st.integers(1, 3))
def test_the_number_of_steps_and_their_sizes(rows, minibatches, epochs):
    sizes = []

    def loss(logp, *args):
        sizes.append(len(logp))
        return policy_loss(logp, *args)

    policy_loss = arl.training_loop.policy_loss
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
    stats = update(Bigram(9), config(), hand_batch(9, rows=3), torch.ones(3))
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
    for policy, run in ((model, update), (twin, textbook_update)):
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
    for policy, run in ((model, update), (twin, textbook_update)):
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


# ---- the episodes of a step


def test_a_step_samples_distinct_tasks_in_one_round(tok, apprentice):
    cfg = config(prompts_per_step=5)
    kept, sampled = arl.sample_step(apprentice, factory(cfg), TRAIN, tok, cfg, gen())
    assert len(kept) == len(sampled) == 20
    assert all(a is b for a, b in zip(kept, sampled, strict=True))
    names = [group[0].info["task"] for group in arl.groups_of(kept, 4)]
    assert len(set(names)) == 5
    everything = config(prompts_per_step=20)
    kept, _ = arl.sample_step(
        apprentice, factory(everything), TRAIN, tok, everything, gen()
    )
    assert {t.info["task"] for t in kept} == {task.name for task in TRAIN}


def test_more_prompts_than_tasks_is_named(tok, apprentice):
    cfg = config(prompts_per_step=4)
    with pytest.raises(ValueError, match="prompts_per_step is 4; .*3"):
        arl.sample_step(apprentice, factory(cfg), TRAIN[:3], tok, cfg, gen())


def steps(tok, model, **fields):
    cfg = config(dynamic_sampling=True, **fields)
    return cfg, *arl.sample_step(model, factory(cfg), TRAIN, tok, cfg, gen())


@pytest.mark.parametrize(
    "fields",
    [
        {"reward": lambda info: 0.0},
        {"reward": lambda info: 0.5},  # a filter on the mean would keep it
        {"reward": lambda info: 0.0, "overlong_buffer": 2},  # shaped, it would differ
        {"reward": lambda info: 0.1},
    ],
)
@pytest.mark.parametrize("rounds", [1, 3])
def test_dynamic_sampling_that_never_fills(tok, apprentice, fields, rounds):
    cfg, kept, sampled = steps(tok, apprentice, max_sample_rounds=rounds, **fields)
    assert kept == [] and len(sampled) == rounds * 3 * 4


def test_dynamic_sampling_keeps_groups_whose_rewards_differ(tok, apprentice):
    cfg, kept, sampled = steps(tok, apprentice, max_sample_rounds=9)
    groups = arl.groups_of(sampled, 4)
    good = [g for g in groups if len({t.reward for t in g}) > 1]
    assert [t for g in good for t in g][:12] == kept and len(kept) == 12
    assert len(sampled) % 12 == 0
    rounds = arl.groups_of(groups, 3)
    for names in ([g[0].info["task"] for g in some] for some in rounds):
        assert len(set(names)) == 3  # distinct within a round


def test_dynamic_sampling_stops_when_it_has_enough(tok, apprentice):
    ticks = itertools.count()
    cfg, kept, sampled = steps(tok, apprentice, reward=lambda info: next(ticks))
    assert len(kept) == len(sampled) == 12


def test_dynamic_sampling_leaves_out_what_is_too_much(tok, apprentice):
    """One group in the first round, three in the second: the last one is not used."""
    ticks, first = itertools.count(), []

    def reward(info):
        first.append(info["task"])
        n = next(ticks)
        return n if n >= 12 or info["task"] == first[0] else 0

    cfg, kept, sampled = steps(tok, apprentice, reward=reward)
    assert len(sampled) == 24 and len(kept) == 12
    assert {t.info["task"] for t in kept[:4]} == {first[0]}
    assert [id(t) for t in kept[4:]] == [id(t) for t in sampled[12:20]]


def test_dynamic_sampling_trains_on_what_it_has(tok, apprentice):
    """Only minmax tasks pay, and differently each time."""
    ticks = itertools.count()

    def reward(info):
        return next(ticks) if info["task"].startswith("minmax") else 0

    cfg, kept, sampled = steps(tok, apprentice, reward=reward, max_sample_rounds=2)
    assert len(sampled) == 24 and 0 < len(kept) < 12
    assert {t.info["task"].split("/")[0] for t in kept} == {"minmax"}


def test_rounds_are_independent_draws(tok, apprentice):
    """A task may come again in a later round."""
    _, _, sampled = steps(
        tok,
        apprentice,
        reward=lambda info: 0.0,
        max_sample_rounds=9,
        prompts_per_step=15,
    )
    names = [g[0].info["task"] for g in arl.groups_of(sampled, 4)]
    assert len(names) == 135 and len(set(names)) == 20
    assert names[:15] != names[15:30]


# ---- evaluation


def test_evaluation_is_sampling_and_statistics(tok, apprentice):
    cfg = config(max_edits=2, temperature=0.7)
    stats = arl.evaluate(apprentice, TRAIN[:4], tok, 3, 1.3, gen(5), cfg)
    used = replace(cfg, group_size=3, temperature=1.3)
    trajs = arl.sample_groups(apprentice, factory(used), TRAIN[:4], tok, used, gen(5))
    assert stats == arl.behavior_stats(trajs)


def test_evaluation_by_default(tok, apprentice):
    default = arl.evaluate(apprentice, TRAIN, tok)
    assert default == arl.evaluate(
        apprentice, TRAIN, tok, 1, 1.0, gen(0), arl.RLConfig(), factory(arl.RLConfig())
    )
    assert set(default) == BEHAVIOR
    edits = arl.evaluate(apprentice, TRAIN, tok, 8, cfg=arl.RLConfig(max_edits=0))
    assert edits["edits"] == 0


def test_evaluation_leaves_everything_as_it_was(tok, apprentice):
    for training in (True, False):
        apprentice.train(training)
        before, state = weights(apprentice), torch.get_rng_state()
        python_state = random.getstate()
        arl.evaluate(apprentice, TRAIN[:3], tok)
        assert torch.equal(torch.get_rng_state(), state)
        assert random.getstate() == python_state
        assert apprentice.training is training
        assert torch.equal(weights(apprentice), before)
        assert all(p.grad is None for p in apprentice.parameters())


def test_what_evaluation_refuses(tok, apprentice):
    with pytest.raises((ValueError, TypeError), match="n_samples is 0"):
        arl.evaluate(apprentice, TRAIN, tok, 0)
    with pytest.raises(ValueError, match=r"len\(tasks\) is 0"):
        arl.evaluate(apprentice, [], tok)
    with pytest.raises((ValueError, TypeError), match="temperature is 0"):
        arl.evaluate(apprentice, TRAIN, tok, temperature=0)


# ---- the loop


def fresh(tok):
    return small_policy(tok, layers=1)


def train(model, tok, cfg, n=2, **options):
    return arl.train_rl(model, TRAIN, tok, cfg, n, **options)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"rename": False, "max_edits": None},
        {"dynamic_sampling": True, "overlong_buffer": 2},
        {"kl_coef": 0.1, "loss_mode": "seq_mean_token_mean"},
        {"mask_truncated": True, "epochs": 2},
        {"ratio_level": "sequence", "seed": 3, "temperature": 1.5},
    ],
    ids=str,
)
def test_a_step_is_its_public_parts_bit_for_bit(tok, apprentice, fields):
    cfg, model = config(**fields), copy.deepcopy(apprentice)
    history = train(model, tok, cfg, n=3)

    twin, generator = apprentice, gen(cfg.seed)
    adam = torch.optim.Adam(twin.parameters(), lr=cfg.lr)
    ref = copy.deepcopy(twin) if cfg.kl_coef else None
    for step in range(3):
        kept, sampled = arl.sample_step(twin, factory(cfg), TRAIN, tok, cfg, generator)
        groups = arl.groups_of(sampled, cfg.group_size)
        record = {
            "step": step,
            "n_episodes": len(sampled),
            "zero_adv_frac": sum(len({t.reward for t in g}) == 1 for g in groups)
            / len(groups),
            **arl.behavior_stats(sampled),
        }
        if kept:
            batch = arl.collate(kept, tok.pad_id)
            advantages = arl.compute_advantages(batch, cfg)
            record |= arl.rl_update(twin, adam, batch, advantages, cfg, ref, generator)
        assert history[step] == record
    assert torch.equal(weights(model), weights(twin))
    assert not torch.equal(weights(model), weights(small_policy(tok, width=32)))


def test_equal_seeds_give_equal_histories(tok, apprentice_state):
    def run(seed):
        model = small_policy(tok, width=32)
        model.load_state_dict(apprentice_state)
        torch.rand(seed + 1)  # the state outside does not matter
        return train(model, tok, config(seed=seed)), weights(model)

    (first, w), (second, v), (other, _) = run(0), run(0), run(1)
    assert first == second and torch.equal(w, v)
    assert first != other
    for record in first:
        assert not any("time" in name or "sec" in name for name in record)


def test_the_global_seed_is_set(tok):
    """For environments and models of others that use the global generators."""
    train(fresh(tok), tok, config(seed=5), n=0)
    assert torch.equal(torch.rand(3), torch.rand(3, generator=gen(5)))


def test_evaluation_changes_nothing_about_training(tok, apprentice):
    models = [copy.deepcopy(apprentice) for _ in range(3)]
    for model in models:
        model.train()
    plain = train(models[0], tok, config(), n=3)
    some = train(models[1], tok, config(), n=3, eval_tasks=HELDOUT, eval_every=2)
    often = train(
        models[2], tok, config(), n=3, eval_tasks=HELDOUT, eval_every=1, log_every=0
    )
    assert torch.equal(weights(models[0]), weights(models[1]))
    assert torch.equal(weights(models[0]), weights(models[2]))
    for record in some + often:
        record.pop("eval_pass", None)
    assert plain == some == often
    assert all(model.training for model in models)


def test_when_and_how_it_evaluates(tok, apprentice):
    cfg = config(temperature=0.8, reward="public", max_edits=3)
    history = train(apprentice, tok, cfg, n=6, eval_tasks=HELDOUT[:3], eval_every=2)
    assert [r["step"] for r in history if "eval_pass" in r] == [0, 2, 4, 5]
    after = arl.evaluate(apprentice, HELDOUT[:3], tok, 4, 0.8, gen(5), cfg)
    assert history[-1]["eval_pass"] == after["pass_rate"]


def test_the_same_environments_for_training_and_evaluation(tok, apprentice):
    made = []

    def make():
        made.append(arl.BugFixEnv(reward=turns_used))
        return made[-1]

    history = train(
        apprentice, tok, config(), 2, eval_tasks=HELDOUT[:2], env_factory=make
    )
    assert len(made) == 2 * 12 + 2 * 2 * 4
    assert [set(record) & {"eval_pass"} for record in history] == [{"eval_pass"}] * 2


def test_a_callback_hears_every_step_and_changes_nothing(tok, apprentice):
    plain = copy.deepcopy(apprentice)
    expected = train(plain, tok, config(), 3)
    seen = []

    def on_step(history):
        torch.rand(3)  # the loop has its own generator
        seen.append([dict(record) for record in history])

    history = train(apprentice, tok, config(), 3, on_step=on_step)
    assert torch.equal(weights(apprentice), weights(plain)) and history == expected
    assert seen == [expected[:n] for n in (1, 2, 3)]


def test_a_callback_ends_the_training_within_a_step(tok, apprentice):
    short = copy.deepcopy(apprentice)
    expected = train(short, tok, config(), 2)
    history = train(apprentice, tok, config(), 9, on_step=lambda h: len(h) == 2)
    assert history == expected
    assert torch.equal(weights(apprentice), weights(short))


def test_the_history(tok, apprentice):
    history = train(apprentice, tok, config())
    assert len(history) == 2
    for step, record in enumerate(history):
        assert (
            set(record) == {"step", "n_episodes", "zero_adv_frac"} | BEHAVIOR | UPDATE
        )
        assert (record["step"], record["n_episodes"]) == (step, 12)
        assert all(math.isfinite(value) for value in record.values())
    assert arl.train_rl(apprentice, TRAIN, tok, config(), 0) == []


def test_a_step_that_kept_nothing(tok, apprentice):
    """No update, no NaN, and the loop goes on."""
    before = weights(apprentice)
    cfg = config(dynamic_sampling=True, reward=lambda info: 0.5, max_sample_rounds=3)
    history = train(apprentice, tok, cfg, n=3, eval_tasks=HELDOUT[:1])
    assert torch.equal(weights(apprentice), before)
    assert [r["n_episodes"] for r in history] == [3 * 3 * 4] * 3
    for record in history:
        assert not UPDATE & set(record)
        assert record["zero_adv_frac"] == 1 and record["reward"] == 0.5
        assert all(math.isfinite(value) for value in record.values())


def test_zero_advantage_groups_are_counted_on_raw_rewards_of_all_episodes(
    tok, apprentice
):
    cfg = config(reward=lambda info: 0.0, overlong_buffer=6)
    (record,) = train(apprentice, tok, cfg, n=1)
    assert record["zero_adv_frac"] == 1 and record["grad_norm"] > 0

    def reward(info):
        return info["n_turns"] if info["task"].startswith("minmax") else 0

    cfg = config(prompts_per_step=20, reward=reward)
    (record,) = train(apprentice, tok, cfg, n=1)
    assert record["zero_adv_frac"] >= 16 / 20


def test_a_reward_that_is_not_finite_stops_before_any_update(tok, apprentice):
    class Odd(arl.BugFixEnv):
        bad = NAN

        def step(self, text):
            answer, reward, done, info = super().step(text)
            return answer, self.bad if done else reward, done, info

    before = weights(apprentice)
    for dynamic, bad in itertools.product((False, True), (NAN, INF, None)):
        Odd.bad = bad
        with pytest.raises((ValueError, TypeError), match="episode 0.*finite number"):
            train(apprentice, tok, config(dynamic_sampling=dynamic), env_factory=Odd)
    assert torch.equal(weights(apprentice), before)


def test_the_reference_is_the_policy_at_the_call(tok, apprentice):
    models = [copy.deepcopy(apprentice) for _ in range(2)]
    ref = copy.deepcopy(apprentice)
    cfg = config(kl_coef=0.5, minibatches=1)
    history = train(models[0], tok, cfg, n=3)
    assert history[0]["kl_ref"] == pytest.approx(0, abs=1e-6)
    assert history[2]["kl_ref"] > 1e-6
    assert train(models[1], tok, cfg, n=3, ref_model=ref) == history
    assert torch.equal(weights(ref), weights(apprentice))
    assert "kl_ref" not in train(apprentice, tok, config(), n=1)[0]


def test_each_call_has_a_new_optimizer(tok, apprentice):
    """Two calls of one step are not one call of two: the momentum starts again."""
    model, cfg = copy.deepcopy(apprentice), config()
    train(model, tok, cfg, n=1)
    record = train(model, tok, replace(cfg, reward=lambda info: 0.5), n=1)[0]
    before = weights(model)
    train(model, tok, replace(cfg, reward=lambda info: 0.5), n=2)
    assert record["grad_norm"] == 0 and torch.equal(weights(model), before)


def test_any_module_can_be_trained(tok):
    model = Bigram(len(tok))
    before = weights(model)
    cfg = config(reward=lambda info: len(info["actions"][0]))
    history = train(model, tok, cfg)
    assert not torch.equal(weights(model), before) and "grad_norm" in history[0]


def logged(tok, model, n, **options):
    with redirect_stdout(io.StringIO()) as out:
        history = train(model, tok, config(), n, **options)
    return out.getvalue().splitlines(), history


def test_the_log(tok, apprentice):
    lines, history = logged(
        tok, apprentice, 4, log_every=2, eval_tasks=HELDOUT[:2], eval_every=3
    )
    assert [line[:9] for line in lines] == ["step   0 ", "step   2 ", "step   3 "]
    assert ["held-out" in line for line in lines] == [True, False, True]
    assert lines == [arl.log_line(history[i]) for i in (0, 2, 3)]
    assert logged(tok, apprentice, 1)[0] == []


def test_a_log_line_to_the_letter():
    record = {
        "step": 20,
        "reward": 0.84375,
        "reads": 1.0156,
        "edits": 0.98,
        "turns": 3.0,
    }
    start = "step  20 | reward 0.844 | reads 1.02 | edits 0.98 | entropy "
    told = {**record, "entropy": 0.1841, "eval_pass": 0.625}
    assert arl.log_line(told) == start + "0.184 | held-out 0.625"
    assert arl.log_line({**record, "entropy": 0.1841}) == start + "0.184"
    assert arl.log_line(record).startswith(start)  # an update that did not happen


@pytest.mark.parametrize(
    ("fields", "options", "match"),
    [
        ({"group_size": 1}, {}, "group_size is 1; .*at least 2"),
        ({"prompts_per_step": 21}, {}, "prompts_per_step is 21; .*20"),
        ({}, {"steps": -1}, "steps is -1"),
        ({}, {"steps": 1.5}, "steps is 1.5"),
        ({}, {"log_every": -1}, "log_every is -1"),
        ({}, {"eval_every": 0}, "eval_every is 0"),
        ({}, {"eval_tasks": []}, r"eval_tasks is \[\]"),
        ({}, {"on_step": 3}, "on_step is 3; .*function of the history"),
    ],
)
def test_what_the_loop_refuses_before_it_starts(tok, fields, options, match):
    model = fresh(tok)
    state, options = torch.get_rng_state(), {"steps": 1, **options}
    with pytest.raises((ValueError, TypeError), match=match):
        arl.train_rl(model, TRAIN, tok, config(**fields), **options)
    assert torch.equal(torch.get_rng_state(), state)
