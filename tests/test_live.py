"""agentrl.live: what the forms promise, without a browser (that is test_lab.py)."""

import re
from types import SimpleNamespace
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
import tiny
from forms import (
    bar,
    button,
    curves,
    finish,
    inside,
    lines,
    notices,
    results,
    run,
    same,
    start,
    status,
    text,
)
from ipywidgets import HTML
from matplotlib import pyplot as plt
from waiting import EPISODES, SMALL, Gate

import agentrl as arl
from agentrl import live

PICTURE = live.svg_image


@pytest.fixture
def no_pictures(monkeypatch):
    """Drawing takes longer than training here; most tests look at something else."""
    monkeypatch.setattr(live, "svg_image", lambda fig, alt: alt)


@pytest.fixture
def form(apprentice, train_tasks, tok, no_pictures):
    """A function that makes a small form around the apprentice."""

    def make(explorer=arl.group_size_explorer, **kwargs):
        return explorer(apprentice, train_tasks, tok, **{"steps": 3} | SMALL | kwargs)

    return make


# ---- Settings ----


@pytest.mark.parametrize(
    "explorer, variant",
    [(arl.group_size_explorer, None), (arl.variant_explorer, "default")]
    + [(arl.variant_explorer, variant) for variant in arl.VARIANTS],
)
def test_a_form_trains_what_train_rl_would(form, apprentice, explorer, variant):
    made = run(form(explorer, steps=2, **{"variant": variant} if variant else {}))
    cfg = arl.RLConfig(**SMALL | arl.VARIANTS.get(variant, {}))
    assert made.config == cfg
    history = arl.train_rl(apprentice, made.tasks, made.tok, cfg, 2)
    assert made.history == history and len(history) == 2
    assert tiny.weights(made.model).equal(tiny.weights(apprentice))


def test_the_defaults(apprentice, monkeypatch):
    monkeypatch.setattr(live, "make_rl_base", lambda tok: apprentice)
    explorer = arl.group_size_explorer()
    values = {name: field.value for name, field in explorer.controls.items()}
    assert values == {"group_size": 8, "prompts_per_step": 8, "seed": 0, "steps": 40}
    values = {name: w.value for name, w in arl.variant_explorer().controls.items()}
    assert values == {"variant": "default", "group_size": 8, "seed": 0, "steps": 40}


def test_a_variant_comes_before_other_fields_and_the_form_before_both(form):
    fields = {"variant": "rloo", "minibatches": 4, "lr": 0.5, "seed": 1, "steps": 0}
    explorer = run(form(arl.variant_explorer, **fields))
    assert (explorer.config.minibatches, explorer.config.lr) == (1, 0.5)
    assert explorer.config.adv_mode == "rloo" and explorer.config.seed == 1


def test_the_form_tells_the_fields_of_the_variant(form):
    explorer = form(arl.variant_explorer)
    line = next(inside(explorer, HTML))
    assert text(line.value) == "RLConfig()"
    explorer.controls["variant"].value = "gspo"
    fields = "ratio_level='sequence', clip_low=0.0003, clip_high=0.0004"
    assert text(line.value) == f"RLConfig({fields})"


def test_tasks_for_evaluation_give_pass_rates(form):
    explorer = run(form(eval_tasks=arl.make_tasks("heldout")[:2], steps=1))
    rate = explorer.history[-1]["eval_pass"]
    assert f"pass rate on other tasks {rate:.2f}" in status(explorer)


@pytest.mark.parametrize(
    "kwargs, error, message",
    [
        ({"variant": "ppo"}, ValueError, "variant is 'ppo'; allowed: .*'gspo'"),
        ({"steps": -1}, ValueError, "steps is -1"),
        ({"steps": 2.5}, TypeError, "steps is 2.5"),
        ({"lr": 0}, ValueError, "lr is 0"),
        ({"group_sise": 4}, TypeError, "group_sise"),
    ],
)
def test_what_no_form_can_start_with_is_refused_at_once(form, kwargs, error, message):
    with pytest.raises(error, match=message):
        form(arl.variant_explorer, **kwargs)


def test_each_field_has_a_label_and_takes_what_is_typed(form):
    explorer = form()
    labels = [field.description for field in explorer.controls.values()]
    assert labels == ["Group size", "Prompts per step", "Seed", "Steps"]
    for field in explorer.controls.values():
        field.value = -7
        assert field.value == -7


# ---- While it runs ----


def test_stop_ends_within_the_step(form):
    gate = Gate(EPISODES, hold=2)
    explorer = form(steps=50, reward=gate)
    train, stop = button(explorer, "Train"), button(explorer, "Stop")
    assert stop.disabled and not train.disabled
    start(explorer, gate)
    assert train.disabled and not stop.disabled
    stop.click()
    assert stop.disabled and explorer.running
    finish(explorer, gate)
    assert stop.disabled and not train.disabled
    assert status(explorer).startswith("Stopped after 3 of 50 steps, 18 episodes; last")
    assert bar(explorer) == (3, 50) and len(explorer.history) == 3


def test_stop_while_the_base_is_made(apprentice, monkeypatch, no_pictures):
    gate = Gate(1)

    def make_rl_base(tok):
        gate({"actions": ()})
        return apprentice

    monkeypatch.setattr(live, "make_rl_base", make_rl_base)
    explorer = arl.group_size_explorer()
    start(explorer, gate)
    assert status(explorer).startswith("Preparing")
    explorer.stop()
    finish(explorer, gate)
    assert status(explorer) == "Stopped after 0 of 40 steps."


def test_a_stop_without_a_run_does_not_end_the_next_one(form):
    explorer = form()
    explorer.stop()
    assert len(run(explorer).history) == 3
    explorer.stop()
    assert len(run(explorer).history) == 3
    assert status(explorer).startswith("Finished: 3 of 3 steps, 18 episodes; ")


def test_train_during_a_run_is_ignored(form):
    gate = Gate(EPISODES)
    explorer = form(reward=gate)
    start(explorer, gate)
    button(explorer, "Train").click()  # as code may, also while it is disabled
    explorer.train()
    finish(explorer, gate)
    assert len(explorer.history) == 3 and gate.calls == 18
    assert notices(explorer) == []


def test_a_change_during_a_run_counts_from_the_next(form):
    gate = Gate(EPISODES)
    explorer = form(reward=gate)
    start(explorer, gate)
    explorer.controls["group_size"].value = 1  # would be refused
    explorer.controls["steps"].value = 99
    assert notices(explorer) == ["The change counts from the next run."]
    finish(explorer, gate)
    assert explorer.config.group_size == 3 and len(explorer.history) == 3
    explorer.controls["group_size"].value = 2
    explorer.controls["steps"].value = 1
    run(explorer)
    assert explorer.config.group_size == 2 and len(explorer.history) == 1
    assert notices(explorer) == []


def test_results_are_those_of_the_last_run_that_ended(form):
    gate = Gate(EPISODES, hold=4)  # in the second run
    explorer = form(reward=gate)
    assert results(explorer) == (None, (), None) and not explorer.running
    before = results(run(explorer))
    explorer.controls["seed"].value = 6
    start(explorer, gate)
    explorer.wait(0)
    assert explorer.running and same(results(explorer), before)
    finish(explorer, gate)
    assert explorer.model is not before[0] and explorer.history is not before[1]
    assert explorer.config.seed == 6


# ---- What goes wrong ----


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("group_size", 1, "group_size is 1; allowed: at least 2"),
        ("group_size", 0, "group_size is 0"),
        ("prompts_per_step", 21, "prompts_per_step is 21; allowed: at most the number"),
        ("prompts_per_step", -3, "prompts_per_step is -3"),
        ("seed", -1, "seed is -1"),
        ("steps", -1, "steps is -1"),
    ],
)
def test_settings_that_cannot_run_are_refused_and_the_result_stays(
    form, name, value, message
):
    explorer = run(form(steps=1))
    before, shown = results(explorer), (status(explorer), curves(explorer))
    field = explorer.controls[name]
    good, field.value = field.value, value
    explorer.train()
    assert not explorer.running
    (told,) = lines(explorer, "alert")
    assert told.startswith(f"Not started: {message}")
    assert (status(explorer), curves(explorer)) == shown
    assert same(results(explorer), before)
    field.value = good
    run(explorer)
    assert notices(explorer) == []


def test_a_variant_that_does_not_fit_is_refused(form):
    explorer = form(arl.variant_explorer, max_turns=1)
    explorer.controls["variant"].value = "dapo"
    explorer.train()
    assert lines(explorer, "alert") == [
        "Not started: overlong_buffer is 2; allowed: at most max_turns=1"
    ]


def test_an_error_inside_a_run_is_one_line_and_the_form_goes_on(form):
    calls = []

    def reward(info):
        calls.append(info)
        if len(calls) == 3 * 6 + 8:  # in the second step of the second run
            raise RuntimeError("<b>no</b>\nsecond line")
        return 0.0

    explorer = run(form(reward=reward))
    before = results(explorer)
    run(explorer)
    assert lines(explorer, "alert") == ["RuntimeError: <b>no</b>"]  # no markup
    assert status(explorer).startswith("Failed after 1 of 3 steps, 6 episodes; last")
    assert isinstance(explorer.error, RuntimeError)
    assert same(results(explorer), before)
    assert not button(explorer, "Train").disabled and button(explorer, "Stop").disabled
    assert len(run(explorer).history) == 3
    assert notices(explorer) == [] and explorer.error is None


def test_a_picture_that_cannot_be_drawn_is_told_and_the_form_goes_on(form, monkeypatch):
    def broken(fig, alt):
        raise RuntimeError("no picture")

    explorer = form()
    monkeypatch.setattr(live, "svg_image", broken)
    monkeypatch.setattr("threading.excepthook", lambda args: None)
    run(explorer)
    assert lines(explorer, "alert") == ["RuntimeError: no picture"]
    assert not button(explorer, "Train").disabled
    monkeypatch.setattr(live, "svg_image", lambda fig, alt: alt)
    assert len(run(explorer).history) == 3


# ---- What is seen ----


def test_the_run_before_stays_as_a_faint_line(form):
    explorer = form()
    assert explorer.figure() is None
    run(explorer)
    assert [len(ax.lines) for ax in explorer.figure().axes] == [1, 1, 1]
    first = explorer.history
    explorer.controls["group_size"].value = 2
    run(explorer)
    fig = explorer.figure()
    label = "group_size {}, prompts_per_step 2, seed 5"
    assert fig.get_suptitle() == f"{label.format(2)}\nfaint: {label.format(3)}"
    for ax, name in zip(fig.axes, ("reward", "reads", "zero_adv_frac"), strict=True):
        faint, line = ax.lines
        assert list(faint.get_ydata()) == [record[name] for record in first]
        assert list(line.get_ydata()) == [record[name] for record in explorer.history]
        assert faint.get_alpha() < 1 and faint.get_linewidth() < line.get_linewidth()
        assert ax.get_xlim() == (0, 2)
    ends = [ax.lines[-1] for ax in fig.axes]
    assert len({line.get_color() for line in ends}) == 3
    assert len({line.get_linestyle() for line in ends}) == 3


def test_the_picture_is_an_svg_with_an_alternative_text(form, monkeypatch):
    monkeypatch.setattr(live, "svg_image", PICTURE)
    before = plt.get_fignums()
    explorer = run(form())
    (alt,) = re.findall('alt="([^"]+)"', curves(explorer))
    last = explorer.history[-1]
    assert alt == (
        f"The run: 3 of 3 steps, 18 episodes; last step: reward {last['reward']:.2f}, "
        f"reads an episode {last['reads']:.2f}, "
        f"groups without a signal {last['zero_adv_frac']:.2f}"
    )
    (data,) = re.findall('data:image/svg.xml,([^"]+)', curves(explorer))
    svg = ElementTree.fromstring(unquote(data))
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert plt.get_fignums() == before


@pytest.mark.parametrize("tick, pictures", [(0.0, 2), (0.1, 3), (1.0, 5)])
def test_curves_grow_but_not_more_often_than_one_can_see(
    form, monkeypatch, tick, pictures
):
    """The clock shows `tick` seconds more each time: drawing takes one tick."""
    clock, drawn = [0.0], []

    def monotonic():
        clock[0] += tick
        return clock[0]

    def picture(fig, alt):
        drawn.append(len(fig.axes[0].lines[0].get_ydata()))
        return ""

    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=monotonic))
    monkeypatch.setattr(live, "svg_image", picture)
    run(form(steps=6))
    assert drawn[0] == 0 and drawn[-1] == 6 and drawn == sorted(drawn)
    assert len(drawn) == pictures


def test_where_no_widget_can_be_shown_a_sentence_stands(form):
    data = form()._repr_mimebundle_()
    data = data if isinstance(data, dict) else data[0]
    sentence = data["text/plain"]
    assert "running kernel" in sentence and len(sentence) <= 88
