"""Ablations: arms, figures of a run, paired intervals, tables and drawings."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentrl as arl
from agentrl import ablations


def test_the_default_arm_changes_nothing_and_the_others_one_field():
    assert [len(changes) for changes in arl.ARMS.values()] == [0, 1, 1, 1, 1]
    default = arl.RLConfig()
    for changes in arl.ARMS.values():
        for name, value in changes.items():
            assert getattr(default, name) != value


# ---- Tables and intervals


def result(arm, seed, rewards, held=0.5, episodes=64, clip=(0.1,), length=12.0):
    n = len(rewards)
    history = {
        "reward": rewards,
        "length": [length] * n,
        "clip_frac": [*clip, *[None] * (n - len(clip))],
        "n_episodes": [episodes] * n,
        "zero_adv_frac": [0.5] * n,
    }
    return {
        "arm": arm,
        "seed": seed,
        "history": history,
        "heldout": {"pass_rate": held},
    }


def test_the_figures_of_a_run_by_hand():
    found = arl.summarise(result("a", 0, [0.0] * 10 + [1.0] * 5 + [0.5] * 5))
    assert found == {
        "late reward": 0.75,
        "held-out": 0.5,
        "length": 12.0,
        "clip_frac": pytest.approx(0.1),
        "episodes": 64.0,
    }


def test_figures_stand_in_the_order_of_seeds():
    results = [result(arm, seed, [0.5], held=seed / 10) for arm, seed in
               (("b", 2), ("a", 1), ("b", 0), ("a", 0))]  # fmt: skip
    table = arl.by_arm(results)
    assert [*table] == ["b", "a"]
    assert table["b"]["held-out"] == [0.0, 0.2]
    assert table["a"]["held-out"] == [0.0, 0.1]


def test_episodes_until_a_reward_by_hand():
    rising = result("a", 0, [0, 0.5, 0.7, 0.8, 0.9, 0.9, 0.9, 0.9], episodes=10)
    # The mean of steps 2 to 6 is 0.84; that of steps 1 to 5 is 0.76.
    assert arl.episodes_to(rising) == 70
    assert arl.episodes_to(rising, level=0.76 - 1e-9) == 60
    assert arl.episodes_to(rising, level=0.95) == float("inf")


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12))
def test_an_interval_lies_around_its_mean(values):
    mean, low, high = arl.interval(values)
    assert mean == pytest.approx(np.mean(values))
    assert low < mean < high
    assert not np.isnan([mean, low, high]).any()


def test_an_interval_by_hand():
    # Mean 2, s = 1, three values: 2 plus and minus 4.3027 / sqrt(3).
    assert arl.interval([1, 2, 3]) == pytest.approx((2, -0.48414, 4.48414), abs=1e-5)


def test_an_interval_is_that_of_the_normal_theory_for_many_normal_values():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    _, low, high = arl.interval(values)
    half = 1.96 * values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - half, abs=0.01)
    assert high == pytest.approx(values.mean() + half, abs=0.01)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_a_difference_is_claimed_of_nothing_in_one_study_of_twenty(n):
    """With n seeds, for differences that are all noise: normal, and uniform."""
    rng = np.random.default_rng(n)
    for noise in (rng.normal(size=(n, 4000)), rng.uniform(-1, 1, size=(n, 4000))):
        _, low, high = arl.interval(noise)
        claimed = np.mean((low > 0) | (high < 0))
        assert 0.03 < claimed < (0.07 if n > 3 else 0.1)
    normal = rng.normal(size=(n, 20000))
    _, low, high = arl.interval(normal)
    assert np.mean((low > 0) | (high < 0)) == pytest.approx(0.05, abs=0.006)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0], "at least 2"),
        ([], "at least 2"),
        (1.0, "at least 2"),
        ([1.0, float("nan")], "finite numbers"),
        ([1.0, float("inf")], "finite numbers"),
    ],
)
def test_what_has_no_interval_is_refused(values, words):
    for ask in (arl.interval, arl.paired_difference):
        with pytest.raises(ValueError, match=f"values is .*{words}"):
            ask(values)


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ([0.0] * 4, "equal on every seed"),
        ([0.25] * 4, "+0.250 on every seed: no spread, so no interval"),
        ([0.1 + 0.2, 0.3], "+0.300 on every seed: no spread, so no interval"),
        ([1, 2, 3], "+2.000 [-0.484, +4.484] " + arl.NOT_DISTINGUISHABLE),
        ([1.0, 1.1, 1.2], "+1.100 [+0.852, +1.348] more"),
        ([-1.0, -1.1, -1.2], "-1.100 [-1.348, -0.852] less"),
    ],
)
def test_a_difference_in_words(pairs, told):
    assert arl.paired_difference(pairs) == told


def test_what_the_seeds_cannot_tell_is_said_so(capsys):
    noise = [0.02, -0.02, 0.01, -0.01, 0.03, -0.03]
    results = []
    for seed, e in enumerate(noise):
        results += [
            result("default", seed, [0.5], held=0.4 + seed / 20),
            result("noise", seed, [0.5 + e], held=0.4 + seed / 20 + e),
            result("better", seed, [0.6 + e], held=0.3 + seed / 20 + e),
        ]
    arl.print_differences(results)
    first, *lines = capsys.readouterr().out.splitlines()
    assert "'default'" in first and "95%" in first
    words = {tuple(line.split()[:2]): line for line in lines}
    # Unpaired, the spread of the seeds would hide the loss in held-out pass.
    assert words["better", "held-out"].endswith(" less")
    assert words["better", "late"].endswith(" more")
    for name in ("late", "held-out"):
        assert words["noise", name].endswith(arl.NOT_DISTINGUISHABLE)
    assert words["noise", "length"].endswith(" equal on every seed")


def test_the_table_has_mean_and_range(capsys):
    arl.print_arms([result("a", s, [r], held=r) for s, r in enumerate((0.25, 0.75))])
    head, line = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "mean (range of seeds)"
    assert "0.50 (0.25-0.75)" in line and "64 (64-64)" in line


# ---- Figures


def some_results():
    return [
        result(arm, seed, [0.1 * seed, 0.2, 0.3, 0.4, 0.5, 0.6], episodes=n)
        for arm, n in (("default", 64), ("other", 64), ("dear", 128))
        for seed in (0, 1)
    ]


def test_learning_curves_show_mean_and_range():
    figure = plt.figure()
    arl.draw_curves(some_results(), figure)
    panels = figure.axes
    assert [[line.get_label() for line in panel.lines] for panel in panels] == [
        ["default", "other"],
        ["default", "dear"],
    ]
    assert panels[0].lines[0].get_ydata()[0] == pytest.approx(0.05)
    band = panels[0].collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (0.0, 0.6)
    plt.close(figure)


@pytest.mark.parametrize("arms", [2, 3, 4, 5, 6])
def test_no_panel_of_the_curves_is_empty_and_each_edge_has_its_label(arms):
    figure = plt.figure()
    names = "abcdef"[:arms]
    results = [result(name, s, [0.1, 0.2]) for name in names for s in (0, 1)]
    arl.draw_curves(results, figure)
    figure.canvas.draw()
    assert len(figure.axes) == arms - 1
    assert all(len(panel.lines) == 2 for panel in figure.axes)
    spots = [panel.get_subplotspec() for panel in figure.axes]
    lowest = {}
    for spot, panel in zip(spots, figure.axes, strict=True):
        lowest[spot.colspan.start] = panel
        assert bool(panel.get_ylabel()) == spot.is_first_col()
    for panel in figure.axes:
        ticks = [t for t in panel.get_xticklabels() if t.get_visible() and t.get_text()]
        assert bool(panel.get_xlabel()) == bool(ticks) == (panel in lowest.values())
    plt.close(figure)


def test_the_cost_is_drawn_for_arms_that_cost_something_else():
    figure = plt.figure()
    arl.draw_cost(some_results(), figure)
    left, right = figure.axes
    assert [line.get_label() for line in right.lines] == ["default", "dear"]
    assert list(right.lines[1].get_xdata()) == [5 * 128, 6 * 128]
    assert right.lines[1].get_ydata()[0] == pytest.approx(0.29)
    assert len(left.lines[0].get_ydata()) == 6
    plt.close(figure)


def test_no_two_neighbouring_arms_share_a_line_style():
    styles = [*arl.arm_styles("abcdefg").values()]
    lines = [style["linestyle"] for style in styles]
    assert lines[0] == "-" and "-" not in lines[1:]
    assert len({style["color"] for style in styles}) == 7


def test_a_report_is_one_call(monkeypatch, capsys, tmp_path):
    asked = {}

    def sweep(runs, jobs, recorded):
        asked.update(runs=runs, jobs=jobs, recorded=recorded)
        return [result(run.arm, run.seed, [run.seed / 4] * 6) for run in runs]

    monkeypatch.setattr(ablations, "sweep", sweep)
    for arms, seeds, steps, words in (
        ({"default": {}}, (0, 1), 10, "arms is .*at least two"),
        ({"default": {}, "x": {"lr": 1e-4}}, (0,), 10, "seeds is .*at least two"),
        ({"default": {}, "x": {"lr": 1e-4}}, (0, 1), 9, "steps is 9; .*at least 10"),
    ):
        with pytest.raises(ValueError, match=words):
            arl.report(arms, seeds, steps)
    assert asked == {}
    arl.report({"default": {}, "x": {"lr": 1e-4}}, (0, 1), 10, tmp_path, jobs=2)
    assert (asked["jobs"], asked["recorded"]) == (2, tmp_path)
    assert [run.steps for run in asked["runs"]] == [10] * 4
    printed = capsys.readouterr().out
    assert "mean (range of seeds)" in printed and "same seed" in printed
    assert len(plt.gcf().axes) == 3
    plt.close("all")
