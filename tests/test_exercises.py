"""The exercises: how they are built, what a verdict is, and what they train."""

import copy
import json
import math
import random
import re

import numpy as np
import pytest
import tiny
import torch
from answers import NUMBERS, cell_of, source, tags
from house import read_notebook, toc_notebooks

import agentrl as arl

EXERCISES = [name for name in toc_notebooks() if name.startswith("exercises_")]
SOLVED = ["98_exercises", *EXERCISES]


# ---- How an exercise is built ----


def test_there_are_seven():
    assert EXERCISES == [f"exercises_{n}" for n in range(1, 8)]


@pytest.mark.parametrize("name", SOLVED)
def test_the_solution_is_the_end_and_lies_under_a_collapsed_heading(name):
    cells = read_notebook(name)["cells"]
    solved = ["solution" in tags(cell) for cell in cells]
    first = solved.index(True)
    assert all(solved[first:])
    assert source(cells[first]) == "## Solution"
    assert cells[first]["metadata"]["jp-MarkdownHeadingCollapsed"] is True
    # A second heading would end what the first one hides.
    later = [source(c) for c in cells[first + 1 :] if c["cell_type"] == "markdown"]
    assert not any(re.search(r"^#", text, re.MULTILINE) for text in later)


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_has_its_parts_in_order(name):
    cells = read_notebook(name)["cells"]
    ids = [cell["id"] for cell in cells]
    parts = ["title", "need", "imports", "scaffold", "check", "try", "hint", "solution"]
    places = [ids.index(part) for part in parts]
    assert places == sorted(places)
    assert "hide-input" in tags(cells[ids.index("check")])
    hint = source(cells[ids.index("hint")])
    assert hint.count("<details>") == hint.count("</details>") > 0
    headings = [source(cell).splitlines()[0] for cell in cells if cell["id"] in parts]
    assert headings[0].startswith(f"# Exercise {name[-1]}: ")
    assert "## What you need" in headings


def verdict(cell):
    (output,) = (o for o in cell["outputs"] if "data" in o and "text/html" in o["data"]
                 and "verdict" in "".join(o["data"]["text/html"]))  # fmt: skip
    return "".join(output["data"]["text/plain"]).partition(":")[0]


@pytest.mark.parametrize("name", EXERCISES)
def test_the_scaffold_is_not_an_answer_yet_and_the_solution_is_right(name):
    assert verdict(cell_of(name, "try")) == "not yet"
    solved = [
        cell
        for cell in read_notebook(name)["cells"]
        if "solution" in tags(cell) and "answer_check(" in source(cell)
    ]
    assert [verdict(cell) for cell in solved] == ["right"]


def small_check():
    names = {}
    exec("from agentrl import answer_checker, expect, expect_answer", names)
    exec(source(cell_of("98_exercises", "zero-check")), names)
    return names["answer_check"]


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        (..., "not yet", "number"),
        (-0.75, "wrong", "positive"),
        (1, "wrong", "reward"),
        (0.75 / 0.4330, "wrong", "standard deviation"),
        (0.75 / 0.4629, "wrong", "standard deviation"),
        (6 / 7, "wrong", "leave-one-out"),
        (0.5, "wrong", "minus the mean"),
        (0.25, "wrong", "mean of the group"),
        ("many", "wrong", "a number, please"),
        (0.75, "right", "mean"),
    ],
)
def test_the_small_exercise_knows_its_mistakes(answer, kind, why):
    told = small_check()(answer)
    assert (told.kind, why in told.why) == (kind, True), told


@pytest.mark.parametrize("number", NUMBERS)
def test_the_small_exercise_takes_any_number(number):
    assert small_check()(NUMBERS[number](0.75)).kind == "right"


# ---- Verdicts ----


def test_a_verdict_shows_its_kind_and_escapes_its_reason():
    told = arl.Verdict("not yet", "`a < b` is missing")
    assert repr(told) == "not yet: `a < b` is missing"
    html = told._repr_html_()
    assert 'class="verdict verdict-not-yet"' in html
    assert "<b>Not yet.</b> <code>a &lt; b</code> is missing" in html
    with pytest.raises(ValueError, match="kind is 'good'"):
        arl.Verdict("good", "")


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        (3, "right", "three"),
        (4, "wrong", "not 4"),
        (None, "not yet", "a number"),
        (..., "not yet", "a number"),
        ((3, ...), "not yet", "a number"),
        ("x", "wrong", "it stopped with TypeError: "),
    ],
)
def test_a_check_becomes_a_verdict(answer, kind, why):
    @arl.answer_checker
    def check(number):
        arl.expect_answer(number, "a number is missing")
        arl.expect(number + 0 == 3, f"not {number}")
        return "three"

    told = check(answer)
    assert told.kind == kind and why in told.why


def test_a_check_sees_numbers_of_python_in_tables_too():
    seen = []

    @arl.answer_checker
    def check(*answer):
        seen.extend(answer)
        return "seen"

    rows = torch.zeros(2, 3)
    check(np.int64(3), {"a": torch.tensor(0.5)}, [np.array(2), (np.True_,)], rows, len)
    assert seen == [3, {"a": 0.5}, [2, (True,)], rows, len]
    assert [type(x) for x in (seen[0], seen[1]["a"], seen[2][0], seen[2][1][0])] == [
        int, float, int, bool,
    ]  # fmt: skip
    assert seen[3] is rows


# ---- An exercise alone in a folder ----


@pytest.mark.parametrize("name", EXERCISES)
def test_a_notebook_alone_says_where_its_study_is(name, tmp_path, monkeypatch):
    """What is read from elsewhere goes through `read_study`, which says so."""
    code = [source(c) for c in read_notebook(name)["cells"] if c["cell_type"] == "code"]
    readers = [text for text in code if "evidence" in text or "open(" in text]
    monkeypatch.chdir(tmp_path)
    for text in readers:
        with pytest.raises(FileNotFoundError, match="folder `evidence` of its reposit"):
            exec(text, {"arl": arl})
    assert readers or name[-1] in "17"


# ---- What the exercises train ----


def test_an_imitator_names_what_is_wrong(tok):
    for one_in in (2, 8):
        with pytest.raises(ValueError, match=f"one_in is {one_in}"):
            arl.imitator(tok, one_in=one_in)
    with pytest.raises(ValueError, match="demonstrations is 8"):
        arl.imitator(tok, demonstrations=8)


def test_an_imitator_of_more_sees_more_and_leaves_the_random_state(tok, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "agentrl.exercises.imitate",
        lambda model, demos, pad_id, generator: seen.append(demos),
    )
    before = torch.get_rng_state()
    first, second = (arl.imitator(tok, 3, 17, 60) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert [len(demos) for demos in seen] == [60, 60]
    assert arl.weights_hash(first) == arl.weights_hash(second)


def test_names_come_from_the_pool_and_all_of_them_come():
    task, pool = arl.make_tasks("heldout")[3], arl.name_pool("train")
    rng = random.Random(1)
    drawn = [arl.rename_within(task, pool, rng) for _ in range(600)]
    words = set(re.findall(r"\w+", task.source))
    assert {renamed.fn_name for renamed in drawn} == set(pool) - words
    assert all(renamed.name == task.name for renamed in drawn)
    assert all(f"def {renamed.fn_name}(" in renamed.source for renamed in drawn)


@pytest.mark.parametrize("names", [[], ["print"], ["present", "and words"]])
def test_a_pool_without_a_candidate_is_refused(names):
    task = arl.make_tasks("heldout")[3]
    words = re.findall(r"\w+", task.source)
    names = [task.fn_name, *words] if "present" in names else names
    with pytest.raises(ValueError, match="names is .*; allowed: some of"):
        arl.rename_within(task, names, random.Random(1))


def test_a_single_candidate_is_a_pool():
    task = arl.make_tasks("heldout")[3]
    drawn = arl.rename_within(task, [task.fn_name, "clamp"], random.Random(1))
    assert drawn.fn_name == "clamp"


def test_a_name_is_drawn_until_it_is_in_the_pool():
    """The stream is used as by so many calls of `randomize_names`."""
    task, pool = arl.make_tasks("heldout")[3], arl.name_pool("heldout")
    rng, plain = random.Random(2), random.Random(2)
    for _ in range(20):
        drawn = arl.rename_within(task, pool, rng)
        tried = arl.randomize_names(task, plain)
        while tried.fn_name not in pool:
            tried = arl.randomize_names(task, plain)
        assert drawn == tried
    assert rng.getstate() == plain.getstate()


def test_an_environment_draws_a_name_at_each_reset():
    make = arl.pool_env("train", 5)
    names = []
    for _ in range(40):
        env = make()
        issue = env.reset(arl.make_tasks("heldout")[0])
        assert issue.split()[2] == env.task.fn_name
        names.append(env.task.fn_name)
    assert set(names) <= set(arl.name_pool("train")) and len(set(names)) > 10
    assert env.max_edits == 1
    assert arl.pool_env(None, 0) is None


def test_a_copy_of_a_pool_draws_the_same_names_and_leaves_the_first_alone():
    def drawn(make):
        env, names = make(), []
        for _ in range(5):
            env.reset(arl.make_tasks("heldout")[0])
            names.append(env.task.fn_name)
        return names

    make = arl.pool_env("train", 5)
    copied = copy.deepcopy(make)
    assert drawn(copied) == drawn(make) == drawn(arl.pool_env("train", 5))


def test_evaluation_leaves_the_names_of_training_alone(apprentice, train_tasks, tok):
    def trained(**evaluation):
        model, make = copy.deepcopy(apprentice), arl.pool_env("train", 5)
        cfg = arl.RLConfig(rename=False, group_size=2, prompts_per_step=2)
        arl.train_rl(model, train_tasks, tok, cfg, 2, env_factory=make, **evaluation)
        return tiny.weights(model)

    heldout = arl.make_tasks("heldout")[:2]
    assert trained().equal(trained(eval_tasks=heldout, eval_every=1))


def test_a_run_of_an_exercise_refuses_two_ways_to_rename():
    with pytest.raises(ValueError, match="rename"):
        arl.ExerciseRun("a", 0, {}, names="train")
    with pytest.raises(ValueError, match="names is 'test'"):
        arl.ExerciseRun("a", 0, {"rename": False}, names="test")


def test_the_exact_divergence_of_two_known_policies():
    class Fixed(torch.nn.Module):
        def __init__(self, probabilities):
            super().__init__()
            self.logits = torch.tensor(probabilities).log()

        def forward(self, ids):
            return self.logits.expand(*ids.shape, len(self.logits))

    info = {"n_turns": 1, "submitted": True}
    trajs = [
        arl.Trajectory(torch.tensor([0, 1, 1]), torch.tensor([0.0, 1.0]), 0.0, info)
    ]
    even, skewed = Fixed([0.5, 0.5]), Fixed([0.9, 0.1])
    found = arl.exact_kl(even, skewed, trajs, 0)
    assert found == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1))
    assert arl.exact_kl(even, copy.deepcopy(even), trajs, 0) == 0


def test_a_run_of_an_exercise_can_be_made_again():
    fields = {"rename": False, "group_size": 2, "prompts_per_step": 2}
    run = arl.ExerciseRun("a", 1, fields, steps=1, samples=1, names="train")
    first, second = (json.dumps(arl.train_exercise(run)) for _ in range(2))
    assert first == second
    result = json.loads(first)
    assert set(result["under"]) == {
        f"{tasks}, {names}"
        for tasks in ("train", "heldout")
        for names in ("train", "heldout")
    }
    assert result["kl"] > 0 and len(result["history"]["reward"]) == 1
