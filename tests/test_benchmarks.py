"""The benchmarks compare ways to do one thing: all of them must do that thing."""

import json
import sys
from pathlib import Path

import pytest
import torch
from tiny import weights

import agentrl as arl

ROOM = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(ROOM))

import loop  # noqa: E402
import machine  # noqa: E402
import trl_grpo  # noqa: E402

TOK = arl.build_tokenizer(arl.make_tasks("all"))
SIZES = {"width": 32, "layers": 2, "heads": 2}


@pytest.fixture
def start(apprentice):
    return apprentice


def odd(info):
    """A reward of 0 or 1 for episodes of any quality."""
    return float(info["n_turns"] % 2)


CFG = arl.RLConfig(reward=odd, prompts_per_step=5)


def after_steps(arm, n=2):
    for _ in range(n):
        arm.step()
    return weights(arm.model)


def test_every_arm_takes_the_step_of_train_rl(start):
    """The textbook's too; one idea left out changes how much is computed, not what."""
    model = arl.Policy(len(TOK), **SIZES)
    model.load_state_dict(start.state_dict())
    arl.train_rl(model, arl.make_tasks("train"), TOK, CFG, 2)
    arms = {"textbook": loop.textbook_arm(start, TOK, CFG, **SIZES)}
    arms |= {
        name: loop.Arm(start, TOK, CFG, new, **SIZES)
        for name, new in loop.LEFT_OUT.items()
    }
    moved = (weights(model) - weights(start)).norm()
    assert moved > 0.01
    for name, arm in arms.items():
        error = (after_steps(arm) - weights(model)).norm()
        assert error < 0.02 * moved, name
    assert torch.equal(weights(arms["ours"].model), weights(model))


def test_times_are_split_into_parts(start):
    arm = loop.Arm(start, TOK, CFG, **SIZES)
    loop.alternate([arm], 2)
    assert len(arm.steps) == 2  # the first round only warms up
    for step in arm.steps:
        parts = step["rollout"] + step["environment"] + step["update"]
        assert step["step"] == pytest.approx(parts)
        assert min(step.values()) > 0
    assert arm.mean("update", 1) == 1e3 * arm.steps[0]["update"]


def test_arms_in_turn_take_the_same_steps(start):
    """Rounding would part them: each round starts where the first arm stands."""
    ours = loop.Arm(start, TOK, CFG, **SIZES)
    textbook = loop.textbook_arm(start, TOK, CFG, **SIZES)
    loop.alternate([ours, textbook], 2)
    assert not torch.equal(weights(ours.model), weights(start))
    assert torch.equal(weights(ours.model), weights(textbook.model))
    pairs = zip(ours.model.parameters(), textbook.model.parameters(), strict=True)
    for one, two in pairs:
        own, other = ours.optimizer.state[one], textbook.optimizer.state[two]
        assert all(torch.equal(own[name], other[name]) for name in own)
    assert textbook.optimizer.param_groups[0]["foreach"] is None
    assert torch.equal(ours.generator.get_state(), textbook.generator.get_state())


def test_a_left_out_idea_computes_more(start):
    """In matrix products, which are counted, not timed."""
    work = {
        name: loop.gflop_of_step(loop.Arm(start, TOK, CFG, new, **SIZES))
        for name, new in loop.LEFT_OUT.items()
    }
    for name in set(work) - {"ours", "no guess"}:  # a guess saves passes, not products
        assert work[name] > work["ours"], name
    textbook = loop.gflop_of_step(loop.textbook_arm(start, TOK, CFG, **SIZES))
    assert textbook > max(work.values())


def test_the_episodes_for_trl_have_the_length_it_says(monkeypatch):
    """A prompt and 13 sampled tokens, whatever words they are."""
    monkeypatch.setattr(trl_grpo.OneCall, "count", 0)
    monkeypatch.setattr(trl_grpo.episodes, "MAX_CALL_TOKENS", trl_grpo.NEW)
    arm = trl_grpo.our_arm(50, 6)
    trajs = arl.sample_groups(
        arm.model, arm.factory, arm.tasks[:8], arm.tok, arm.cfg, arm.generator
    )
    assert {len(t.ids) for t in trajs} == {50}
    assert {t.action_mask.sum().item() for t in trajs} == {trl_grpo.NEW}
    said = {i for t in trajs for i in t.ids[-trl_grpo.NEW : -1].tolist()}
    assert arm.tok.encode("</call>")[0] in said  # and yet the call went on
    groups = arl.groups_of(trajs, trl_grpo.GROUP)
    assert sum(arl.is_informative(group) for group in groups) == 2


def test_results_are_kept_with_date_and_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "RESULTS", tmp_path / "results.json")
    machine.save("one", {"ratio": 0.5})
    machine.save("two", {"ratio": 2})
    machine.save("one", {"ratio": 0.25})
    known = json.loads(machine.RESULTS.read_text("utf-8"))
    assert {name: study["ratio"] for name, study in known.items()} == {
        "one": 0.25,
        "two": 2,
    }
    assert known["one"]["date"] >= "2026"
    assert known["one"]["machine"]["torch"] == torch.__version__


def test_the_page_says_what_was_measured():
    """Every ratio on the page of the benchmarks stands in results.json."""
    page = (ROOM / "README.md").read_text("utf-8")
    known = json.loads((ROOM / "results.json").read_text("utf-8"))
    for name, row in known["loop"]["arms"].items():
        (line,) = (x for x in page.splitlines() if x.startswith(f"| {name} |"))
        if name != "textbook":
            assert f"| {row['ratio']:.3f} | {row['ratio_first']:.3f} |" in line
        assert f"| {row['step']:.0f} | {row['rollout']:.0f} |" in line
    for row in known["scaling"]["table"].values():
        assert f"{row['ratio']:.3f}" in page
    for kind, share in known["profile"]["shares"].items():
        assert f"| {kind} | {share:.2f} |" in page
    assert f"{known['profile']['operations_a_step']:,} operations a step" in page
    assert f"{known['loop']['gflop_last_step_textbook']:.1f})" in page
    for peak in known["memory"]["peak_mb"].values():
        assert f"{peak} MB" in page
    ratios, median = known["processes"]["ratios"], known["processes"]["median"]
    assert f"{min(ratios):.2f} to {max(ratios):.2f} of the time of one" in page
    assert f"(median {median:.2f} of" in page
    short = (ROOM.parent / "README.md").read_text("utf-8")
    assert f"{known['loop']['arms']['ours']['ratio']:.2f} of the textbook" in short
    evaluation = known["scaling"]["table"]["evaluation, 640 episodes"]["ratio"]
    assert f"an evaluation {evaluation:.2f}" in short
    for length in (50, 100):
        row = known["trl"][f"{length} tokens, wall ms a step"]
        for dead in ("6 of 8 groups dead", "no group dead"):
            low, middle, high = row[f"TRL / ours, {dead}"]
            assert f"{middle:.2f} ({low:.2f} to {high:.2f})" in page
