"""agentrl.live: what the forms promise, without a browser (that is test_lab.py)."""

import copy
import html
import re
import threading
from types import SimpleNamespace
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
import tiny
import torch
from matplotlib import pyplot as plt

import agentrl as arl
from agentrl import live

PATIENCE = 120  # seconds until a thread that should go on counts as stuck
PICTURE = live.svg_image


class Gate:
    """A reward that holds the run before the first episode of step `hold` ends."""

    def __init__(self, episodes, hold=0):
        self.held_at = episodes * hold
        self.calls = 0
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, info):
        if self.calls == self.held_at:
            self.reached.set()
            assert self.go.wait(PATIENCE)
        self.calls += 1
        return float(len(info["actions"]) % 2)


def by_turns(info):
    """A reward that differs within most groups."""
    return info["n_turns"] / 10


SMALL = {"group_size": 3, "prompts_per_step": 2, "seed": 5, "reward": by_turns}


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


def run(explorer):
    explorer.train()
    explorer.wait(PATIENCE)
    assert not explorer.running
    return explorer


def start(explorer, gate):
    """Train until the gate holds the run."""
    explorer.train()
    assert gate.reached.wait(PATIENCE)
    assert explorer.running


def finish(explorer, gate):
    gate.go.set()
    explorer.wait(PATIENCE)
    assert not explorer.running


def said(widget):
    """The text of an HTML widget."""
    return html.unescape(re.sub("<[^>]+>", "", widget.value))


def plainly(model, train_tasks, tok, cfg, steps):
    """The history and the weights of `train_rl` on a copy of the model."""
    model = copy.deepcopy(model)
    history = arl.train_rl(model, train_tasks, tok, cfg, steps)
    return history, tiny.weights(model)


# ---- A run is a run of train_rl ----


@pytest.mark.parametrize(
    "explorer, variant",
    [(arl.group_size_explorer, None), (arl.variant_explorer, "default")]
    + [(arl.variant_explorer, variant) for variant in arl.VARIANTS],
)
def test_a_form_trains_bit_for_bit_like_train_rl(
    form, apprentice, train_tasks, tok, explorer, variant
):
    before = tiny.weights(apprentice)
    made = form(explorer, **{"variant": variant} if variant else {})
    run(made)
    cfg = arl.RLConfig(**SMALL | arl.VARIANTS.get(variant, {}))
    history, weights = plainly(apprentice, train_tasks, tok, cfg, 3)
    assert made.config == cfg
    assert made.history == history and len(history) == 3
    assert tiny.weights(made.model).equal(weights)
    assert not weights.equal(before)
    assert tiny.weights(apprentice).equal(before)


def test_every_run_starts_from_the_base_as_it_was_given(form, apprentice):
    explorer = run(form())
    first = tiny.weights(explorer.model)
    with torch.no_grad():
        for parameter in apprentice.parameters():
            parameter.zero_()
    run(explorer)
    assert tiny.weights(explorer.model).equal(first)


def test_the_defaults_are_the_rl_base_made_once_and_the_training_tasks(
    apprentice, train_tasks, tok, monkeypatch
):
    made = []

    def make_rl_base(tok):
        made.append((tok.words, torch.get_num_threads()))
        return apprentice

    monkeypatch.setattr(live, "make_rl_base", make_rl_base)
    explorer = arl.group_size_explorer()
    values = {name: field.value for name, field in explorer.controls.items()}
    assert values == {"group_size": 8, "prompts_per_step": 8, "seed": 0, "steps": 40}
    assert explorer.tasks == train_tasks and explorer.tok.words == tok.words
    assert made == []  # nothing is trained before someone presses
    explorer.controls["steps"].value = 1
    run(run(explorer))
    assert made == [(tok.words, 1)]
    values = {name: w.value for name, w in arl.variant_explorer().controls.items()}
    assert values == {"variant": "default", "group_size": 8, "seed": 0, "steps": 40}


def test_a_variant_comes_before_other_fields_and_the_form_before_both(form):
    explorer = form(arl.variant_explorer, variant="rloo", minibatches=4, lr=0.5, seed=1)
    run(explorer)
    assert (explorer.config.minibatches, explorer.config.lr) == (1, 0.5)
    assert explorer.config.adv_mode == "rloo" and explorer.config.seed == 1


def test_the_form_tells_the_fields_of_the_variant(form):
    explorer = form(arl.variant_explorer)
    line = explorer.children[1]
    assert said(line) == "RLConfig()"
    explorer.controls["variant"].value = "gspo"
    fields = "ratio_level='sequence', clip_low=0.0003, clip_high=0.0004"
    assert said(line) == f"RLConfig({fields})"


def test_tasks_for_evaluation_give_pass_rates(form):
    explorer = run(form(eval_tasks=arl.make_tasks("heldout")[:2]))
    rates = [record.get("eval_pass") for record in explorer.history]
    assert rates[1] is None
    assert f"pass rate on other tasks {rates[2]:.2f}" in said(explorer._status)


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


# ---- While it runs ----


def test_stop_ends_within_the_step_and_keeps_what_came_out(
    form, apprentice, train_tasks, tok
):
    gate = Gate(6, hold=2)
    explorer = form(steps=50, reward=gate)
    assert explorer._stop.disabled and not explorer._train.disabled
    start(explorer, gate)
    assert explorer._train.disabled and not explorer._stop.disabled
    explorer._stop.click()
    assert explorer._stop.disabled and explorer.running
    finish(explorer, gate)
    assert gate.calls == 3 * 6
    assert explorer._stop.disabled and not explorer._train.disabled
    assert said(explorer._status).startswith("Stopped after 3 of 50 steps, 18 episodes")
    assert (explorer._bar.value, explorer._bar.max) == (3, 50)
    cfg = arl.RLConfig(**SMALL | {"reward": Gate(6, hold=-1)})
    history, weights = plainly(apprentice, train_tasks, tok, cfg, 3)
    assert explorer.history == history
    assert tiny.weights(explorer.model).equal(weights)


def test_stop_while_the_base_is_made_trains_nothing(apprentice, tok, monkeypatch):
    gate = Gate(1)

    def make_rl_base(tok):
        gate({"actions": ()})
        return apprentice

    monkeypatch.setattr(live, "make_rl_base", make_rl_base)
    explorer = arl.group_size_explorer()
    start(explorer, gate)
    assert said(explorer._status).startswith("Preparing")
    explorer.stop()
    finish(explorer, gate)
    assert explorer.history == []
    assert tiny.weights(explorer.model).equal(tiny.weights(apprentice))
    assert said(explorer._status) == "Stopped after 0 of 40 steps."


def test_a_stop_without_a_run_does_not_end_the_next_one(form):
    explorer = form()
    explorer.stop()
    assert len(run(explorer).history) == 3
    assert said(explorer._status).startswith("Finished: 3 of 3 steps, 18 episodes; ")


def test_train_during_a_run_is_ignored(form):
    gate = Gate(6)
    explorer = form(reward=gate)
    start(explorer, gate)
    thread = explorer._thread
    explorer._train.click()  # as code may, also while the button is disabled
    explorer.train()
    assert explorer._thread is thread
    finish(explorer, gate)
    assert len(explorer.history) == 3 and gate.calls == 18
    assert said(explorer._notice) == ""


def test_a_change_during_a_run_counts_from_the_next(form):
    gate = Gate(6)
    explorer = form(reward=gate)
    start(explorer, gate)
    explorer.controls["group_size"].value = 1  # would be refused
    explorer.controls["steps"].value = 99
    assert said(explorer._notice) == "The change counts from the next run."
    finish(explorer, gate)
    assert explorer.config.group_size == 3 and len(explorer.history) == 3
    explorer.controls["group_size"].value = 2
    explorer.controls["steps"].value = 1
    run(explorer)
    assert explorer.config.group_size == 2 and len(explorer.history) == 1
    assert said(explorer._notice) == ""


def test_results_are_those_of_the_last_run_that_ended(form):
    gate = Gate(6, hold=4)  # in the second run
    explorer = form(reward=gate)
    assert (explorer.model, explorer.config, explorer.running) == (None, None, False)
    assert len(explorer.history) == 0
    run(explorer)
    model, history, config = explorer.model, explorer.history, explorer.config
    explorer.controls["seed"].value = 6
    start(explorer, gate)
    explorer.wait(0.01)
    assert explorer.running
    assert explorer.model is model and explorer.history is history
    assert explorer.config is config
    finish(explorer, gate)
    assert explorer.model is not model and explorer.history is not history
    assert explorer.config.seed == 6


def test_arithmetic_has_one_thread_in_a_run_and_as_many_as_before_elsewhere(form):
    def in_a_new_thread():
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        return seen

    inside = []

    def reward(info):
        inside.append(torch.get_num_threads())
        return 0.0

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run(form(reward=reward))
        assert set(inside) == {1}
        assert torch.get_num_threads() == 2 and in_a_new_thread() == [2]
    finally:
        torch.set_num_threads(before)


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
    results = explorer.model, explorer.history, explorer.config, explorer._thread
    shown = explorer._status.value, explorer._curves.value
    field = explorer.controls[name]
    good, field.value = field.value, value
    explorer.train()
    assert not explorer.running
    assert said(explorer._notice).startswith(f"Not started: {message}")
    assert 'role="alert"' in explorer._notice.value
    assert (explorer._status.value, explorer._curves.value) == shown
    now = explorer.model, explorer.history, explorer.config, explorer._thread
    assert all(a is b for a, b in zip(now, results, strict=True))
    field.value = good
    run(explorer)
    assert said(explorer._notice) == ""


def test_a_variant_that_does_not_fit_is_refused(form):
    explorer = form(arl.variant_explorer, max_turns=1)
    explorer.controls["variant"].value = "dapo"
    explorer.train()
    assert said(explorer._notice) == (
        "Not started: overlong_buffer is 2; allowed: at most max_turns=1"
    )


def test_an_error_inside_a_run_is_one_line_and_the_form_goes_on(form):
    calls = []

    def reward(info):
        calls.append(info)
        if len(calls) == 3 * 6 + 8:  # in the second step of the second run
            raise RuntimeError("<b>no</b>\nsecond line")
        return 0.0

    explorer = run(form(reward=reward))
    results = explorer.model, explorer.history, explorer.config
    run(explorer)
    told = explorer._notice.value
    assert said(explorer._notice) == "RuntimeError: <b>no</b>"
    assert said(explorer._status).startswith("Failed after 1 of 3 steps, 6 episodes; ")
    assert "&lt;b&gt;" in told and "second line" not in told and 'role="alert"' in told
    assert isinstance(explorer.error, RuntimeError)
    now = explorer.model, explorer.history, explorer.config
    assert all(a is b for a, b in zip(now, results, strict=True))
    assert not explorer._train.disabled and explorer._stop.disabled
    assert len(run(explorer).history) == 3
    assert said(explorer._notice) == ""


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
    lines = [ax.lines[-1] for ax in fig.axes]
    assert len({line.get_color() for line in lines}) == 3
    assert len({line.get_linestyle() for line in lines}) == 3


def test_the_picture_is_an_svg_with_an_alternative_text(form, monkeypatch):
    monkeypatch.setattr(live, "svg_image", PICTURE)
    explorer = run(form())
    (alt,) = re.findall('alt="([^"]+)"', explorer._curves.value)
    last = explorer.history[-1]
    assert alt == (
        f"The run: 3 of 3 steps, 18 episodes; last step: reward {last['reward']:.2f}, "
        f"reads an episode {last['reads']:.2f}, "
        f"groups without a signal {last['zero_adv_frac']:.2f}"
    )
    (data,) = re.findall('data:image/svg.xml,([^"]+)', explorer._curves.value)
    svg = ElementTree.fromstring(unquote(data))
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"


def test_no_figure_of_pyplot_is_left_behind(form, monkeypatch):
    monkeypatch.setattr(live, "svg_image", PICTURE)
    before = plt.get_fignums()
    run(form())
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


def test_each_field_has_a_label_and_takes_what_is_typed(form):
    explorer = form()
    labels = [field.description for field in explorer.controls.values()]
    assert labels == ["Group size", "Prompts per step", "Seed", "Steps"]
    for field in explorer.controls.values():
        field.value = -7
        assert field.value == -7


def test_where_no_widget_can_be_shown_a_sentence_stands(form):
    data = form()._repr_mimebundle_()
    text = data["text/plain"] if isinstance(data, dict) else data[0]["text/plain"]
    assert "running kernel" in text and len(text) <= 88
