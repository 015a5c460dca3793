"""The exercises: their checks see mistakes, and solutions stay where they belong."""

import copy
import functools
import json
import math
import os
import random
import re

import pytest
import torch
from browsing import Visit, from_disk
from house import HTML, ROOT, book_extension, build_book, read_notebook, toc_notebooks

import agentrl as arl

EXERCISES = [name for name in toc_notebooks() if name.startswith("exercises_")]
SOLVED = ["98_exercises", *EXERCISES]


def tags(cell):
    return cell["metadata"].get("tags", [])


def source(cell):
    return "".join(cell["source"])


def cell_of(name, cell_id):
    (cell,) = (c for c in read_notebook(name)["cells"] if c["id"] == cell_id)
    return cell


@functools.cache
def lesson(number):
    """What a reader has in hand before the solution: the names of the notebook."""
    namespace = {"__name__": f"exercises_{number}"}
    here = os.getcwd()
    os.chdir(ROOT / "notebooks")
    try:
        for cell in read_notebook(f"exercises_{number}")["cells"]:
            if cell["cell_type"] == "code" and "solution" not in tags(cell):
                exec(source(cell), namespace)
    finally:
        os.chdir(here)
    return namespace


def ask(number, *answer):
    return lesson(number)["answer_check"](*answer)


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


# ---- Typical mistakes ----


def masked(table, mask):
    return (table * mask).sum() / mask.sum()


def reinforce(sign=-1.0):
    return lambda logp, a, mask: masked(sign * a[:, None] * logp, mask)


def stopped(ratio, a, low=0.8, high=1.2):
    return ((ratio > high) & (a > 0)) | ((ratio < low) & (a < 0))


def ratios(logp, old, mask):
    return arl.log_ratio(logp, old, mask).exp()


def cispo(change=lambda ratio: ratio.detach().clamp(max=1.2), sign=-1.0):
    def loss(logp, old, a, mask, clip_high=0.2):
        weight = change(ratios(logp, old, mask))
        return masked(sign * weight * a[:, None] * logp, mask)

    return loss


def right_cispo(logp, old, a, mask, clip_high=0.2):
    weight = ratios(logp, old, mask).detach().clamp(max=1 + clip_high)
    return masked(-weight * a[:, None] * logp, mask)


def ppo(logp, old, a, mask, clip_high=0.2):
    return arl.ppo_policy_loss(logp, old, a, mask)[0]


def cosine_of(rows, diagonal=False, size=False):
    unit = rows if size else rows / rows.norm(dim=1, keepdim=True)
    table = unit @ unit.T
    if diagonal:
        return table.mean()
    n = len(rows)
    return (table.sum() - table.trace()) / (n * (n - 1))


def late(result, name="reads", n=10):
    return sum(result["history"][name][-n:]) / n


def log_s(logp, old, mask):
    return arl.masked_mean(arl.log_ratio(logp, old, mask), mask, dim=1)


PULL = {"k1": lambda l: 1.0, "k2": lambda l: -l, "k3": lambda l: 1 - torch.exp(l)}
FAILS = dict.fromkeys(PULL, 1.0)
HELD = {"k1": False, "k2": True, "k3": True}
EMPTY = dict.fromkeys(PULL, ...)

MISTAKES = {
    1: [
        ("no loss", lambda: (lambda *batch: None, stopped), "not yet", "not filled"),
        ("the sign", lambda: (reinforce(+1.0), stopped), "wrong", "other way"),
        (
            "a mean over all places",
            lambda: (lambda logp, a, mask: (-a[:, None] * logp * mask).mean(), stopped),
            "wrong",
            "mean over policy tokens",
        ),
        (
            "a mean over episodes first",
            lambda: (
                lambda logp, a, mask: arl.aggregate_loss(
                    -a[:, None] * logp, mask, "seq_mean_token_mean"
                ),
                stopped,
            ),
            "wrong",
            "direction differs",
        ),
        (
            "probabilities for log-probs",
            lambda: (
                lambda logp, a, mask: masked(-a[:, None] * logp.exp(), mask),
                stopped,
            ),
            "wrong",
            "direction differs",
        ),
        (
            "tokens not multiplied by an advantage",
            lambda: (lambda logp, a, mask: masked(-logp, mask), stopped),
            "wrong",
            "of GRPO",
        ),
        (
            "the clip without the sign",
            lambda: (reinforce(), lambda r, a: (r - 1).abs() > 0.2),
            "wrong",
            "ratio 0.7 and advantage +1 is not stopped",
        ),
        (
            "the clip the wrong way round",
            lambda: (reinforce(), lambda r, a: stopped(r, -a)),
            "wrong",
            "ratio 0.7 and advantage +1",
        ),
        (
            "another range",
            lambda: (reinforce(), lambda r, a: stopped(r, a, 0.9, 1.1)),
            "wrong",
            "ratio 1.15 and advantage +1 is not stopped",
        ),
        (
            "one answer for all",
            lambda: (reinforce(), lambda r, a: True),
            "wrong",
            "one answer for each ratio",
        ),
        (
            "an advantage of 0 stopped",
            lambda: (reinforce(), lambda r, a: stopped(r, a) | (a == 0)),
            "wrong",
            "0 times any ratio",
        ),
    ],
    2: [
        ("nothing", lambda: (lambda result: ..., ...), "not yet", "`learned`"),
        ("no share", lambda: (lambda r: late(r) > 0.5, ...), "not yet", "`rarest`"),
        (
            "the reward",
            lambda: (lambda r: late(r, "reward") > 0.5, 9),
            "wrong",
            "last ten steps only",
        ),
        (
            "reward or reads",
            lambda: (lambda r: late(r) > 0.5 or late(r, "reward") > 0.5, 9),
            "wrong",
            "whatever its reward",
        ),
        (
            "the mean of the whole run",
            lambda: (lambda r: late(r, n=80) > 0.5, 9),
            "wrong",
            "last ten steps only",
        ),
        (
            "the best step",
            lambda: (lambda r: max(r["history"]["reads"]) > 0.5, 9),
            "wrong",
            "look at the end",
        ),
        (
            "the last step",
            lambda: (lambda r: r["history"]["reads"][-1] > 0.5, 9),
            "wrong",
            "single step",
        ),
        (
            "twenty steps",
            lambda: (lambda r: late(r, n=20) > 0.5, 9),
            "wrong",
            "exactly the last ten",
        ),
        (
            "a little reading",
            lambda: (lambda r: late(r) > 0.3, 9),
            "wrong",
            "0.4 reads",
        ),
        (
            "the rarest share of all",
            lambda: (lambda r: late(r) > 0.5, 33),
            "wrong",
            "at one in 33 only",
        ),
        ("a share", lambda: (lambda r: late(r) > 0.5, 1 / 9), "wrong", "9 for one in"),
    ],
    3: [
        ("no function", lambda: (lambda rows: ..., 0.1), "not yet", "`mean_cosine`"),
        ("no number", lambda: (cosine_of, ...), "not yet", "`drop`"),
        (
            "rows with themselves",
            lambda: (functools.partial(cosine_of, diagonal=True), 0.1),
            "wrong",
            "diagonal",
        ),
        (
            "no norm",
            lambda: (functools.partial(cosine_of, size=True), 0.1),
            "wrong",
            "norms",
        ),
        (
            "a sum",
            lambda: (lambda rows: cosine_of(rows) * len(rows) * (len(rows) - 1), 0.1),
            "wrong",
            "that is a sum",
        ),
        ("a table", lambda: (lambda rows: rows @ rows.T, 0.1), "wrong", "one number"),
        (
            "absolute values",
            lambda: (lambda rows: cosine_of(rows).abs(), 0.1),
            "wrong",
            "no absolute value",
        ),
        ("the sign", lambda: (cosine_of, -drop()), "wrong", "other way round"),
        (
            "the other pool",
            lambda: (cosine_of, drop("names of all")),
            "wrong",
            "all thirty",
        ),
        ("training tasks", lambda: (cosine_of, drop(split="train")), "wrong", "tasks"),
    ],
    4: [
        ("nothing", lambda: (lambda *batch: None,), "not yet", "returns None"),
        (
            "a gradient through the ratio",
            lambda: (cispo(lambda ratio: ratio.clamp(max=1.2)),),
            "wrong",
            "through the ratio",
        ),
        (
            "no advantage",
            lambda: (lambda logp, old, a, mask, clip_high=0.2: masked(-logp, mask),),
            "wrong",
            "pushed the same way",
        ),
        (
            "a fixed bound",
            lambda: (lambda *batch: cispo()(*batch[:4]),),
            "wrong",
            "`clip_high` is not used",
        ),
        ("PPO's clip", lambda: (ppo,), "wrong", "PPO's clip"),
        ("no clip", lambda: (cispo(lambda r: r.detach()),), "wrong", "not clipped"),
        (
            "a lower bound",
            lambda: (cispo(lambda r: r.detach().clamp(0.8, 1.2)),),
            "wrong",
            "no lower bound",
        ),
        ("the sign", lambda: (cispo(sign=+1.0),), "wrong", "the sign"),
        (
            "a mean over all places",
            lambda: (
                lambda logp, old, a, mask, clip_high=0.2: (
                    -ratios(logp, old, mask).detach().clamp(max=1.2)
                    * a[:, None]
                    * logp
                    * mask
                ).mean(),
            ),
            "wrong",
            "policy tokens only",
        ),
        (
            "all is constant",
            lambda: (lambda *batch: cispo()(*batch).detach(),),
            "wrong",
            "no gradient",
        ),
        (
            "the loss of each token",
            lambda: (lambda logp, *rest: -logp,),
            "wrong",
            "one number",
        ),
        ("an error", lambda: (lambda logp: logp.sum(),), "wrong", "TypeError"),
    ],
    5: [
        (
            "nothing",
            lambda: ({k: lambda l: ... for k in PULL}, EMPTY, EMPTY),
            "not yet",
            "k1 is missing",
        ),
        ("no table", lambda: (PULL, EMPTY, EMPTY), "not yet", "`fails`"),
        ("two kinds", lambda: (PULL, {"k1": 1.0}, HELD), "wrong", "three keys"),
        ("half a table", lambda: (PULL, FAILS, EMPTY), "not yet", "`held`"),
        (
            "with respect to l",
            lambda: ({**PULL, "k1": lambda l: -1.0}, FAILS, HELD),
            "wrong",
            "k1: that is the derivative with respect to l",
        ),
        (
            "the penalty itself",
            lambda: ({**PULL, "k2": lambda l: l**2 / 2}, FAILS, HELD),
            "wrong",
            "k2: that is the penalty itself",
        ),
        (
            "k3 as k2",
            lambda: ({**PULL, "k3": lambda l: -l}, FAILS, HELD),
            "wrong",
            "k3: at l = ",
        ),
        (
            "too early",
            lambda: (PULL, {**FAILS, "k2": 0.01}, HELD),
            "wrong",
            "k2: at 0.01 the last ten steps have 1.0",
        ),
        (
            "k1 does no harm",
            lambda: (PULL, {**FAILS, "k1": math.inf}, HELD),
            "wrong",
            "k1: whatever the derivative says",
        ),
        (
            "no such coefficient",
            lambda: (PULL, dict.fromkeys(PULL, 0.5), HELD),
            "wrong",
            "0.01, 0.1, 1.0 or",
        ),
        (
            "k1 holds, too",
            lambda: (PULL, FAILS, {**HELD, "k1": True}),
            "wrong",
            "k1: the final policies are",
        ),
    ],
    6: [
        ("nothing", lambda: (lambda *batch: ..., ...), "not yet", "`log_s`"),
        ("no exponent", lambda: (log_s, ...), "not yet", "`exponent`"),
        (
            "the sum",
            lambda: (lambda p, q, m: log_s(p, q, m) * m.sum(1), -0.5),
            "wrong",
            "that is the sum",
        ),
        (
            "over the width",
            lambda: (lambda p, q, m: (arl.log_ratio(p, q, m) * m).mean(1), -0.5),
            "wrong",
            "width of the table",
        ),
        (
            "no mask",
            lambda: (lambda p, q, m: (p - q).mean(1), -0.5),
            "wrong",
            "mask 0 takes part",
        ),
        (
            "the ratio, not its log",
            lambda: (lambda *batch: log_s(*batch).exp(), -0.5),
            "wrong",
            "not its logarithm",
        ),
        (
            "old over new",
            lambda: (lambda *batch: -log_s(*batch), -0.5),
            "wrong",
            "old policy over the new",
        ),
        (
            "the log of the mean ratio",
            lambda: (
                lambda p, q, m: (((p - q).exp() * m).sum(1) / m.sum(1)).log(),
                -0.5,
            ),
            "wrong",
            "log of the mean ratio",
        ),
        ("the variance", lambda: (log_s, -1), "wrong", "variance"),
        ("the sign", lambda: (log_s, 0.5), "wrong", "negative"),
        ("another power", lambda: (log_s, -0.25), "wrong", "not -0.25"),
    ],
    7: [
        ("nothing", lambda: (..., ..., ..., ...), "not yet", "missing"),
        (
            "the gap of all",
            lambda: review(blind=gap(lambda e: True)),
            "wrong",
            "all episodes",
        ),
        (
            "issues that name the file",
            lambda: review(blind=gap(lambda e: not e["opened"])),
            "wrong",
            "name the file",
        ),
        ("the sign", lambda: review(blind=-gap(unnamed)), "wrong", "train minus"),
        (
            "one file exactly",
            lambda: review(opened=gap(lambda e: e["opened"] == 1)),
            "wrong",
            "exactly one",
        ),
        ("percent", lambda: review(blind=100 * gap(unnamed)), "wrong", "percent"),
        ("a pair", lambda: review(blind=(0.5, 100)), "wrong", "`[0]`"),
        ("a share of all", lambda: review(false=false(True)), "wrong", "earned the"),
        ("the other share", lambda: review(false=1 - false()), "wrong", "tests pass"),
        ("size", lambda: review(cause="model too small"), "wrong", "same model"),
        ("luck", lambda: review(cause="bad luck"), "wrong", "no accident"),
    ],
}


def drop(arm="names of train", split="heldout"):
    return lesson(3)["mean_pass"](arm, f"{split}, train") - lesson(3)["mean_pass"](
        arm, f"{split}, heldout"
    )


def unnamed(episode):
    return not episode["opened"] and not episode["issue_names_file"]


def gap(fits):
    shares = []
    for split in ("train", "heldout"):
        fit = [e["passed"] for e in lesson(7)["LOG"] if e["split"] == split and fits(e)]
        shares.append(sum(fit) / len(fit))
    return shares[0] - shares[1]


def false(of_all=False):
    train = [e for e in lesson(7)["LOG"] if e["split"] == "train"]
    rewarded = [e for e in train if e["visible_pass"]]
    wrong = sum(not e["passed"] for e in rewarded)
    return wrong / len(train if of_all else rewarded)


def review(**changes):
    right = {
        "blind": gap(unnamed),
        "opened": gap(lambda e: e["opened"]),
        "false": false(),
        "cause": "memory of repositories",
    }
    return tuple({**right, **changes}.values())


CASES = [
    pytest.param(number, answer, kind, why, id=f"{number}: {what}")
    for number, mistakes in MISTAKES.items()
    for what, answer, kind, why in mistakes
]


@pytest.mark.parametrize(("number", "answer", "kind", "why"), CASES)
def test_a_mistake_is_told_and_named(number, answer, kind, why):
    told = ask(number, *answer())
    assert (told.kind, why in told.why) == (kind, True), told


def test_each_check_is_tried_with_three_mistakes_or_more():
    for number in range(1, 8):
        wrong = [case for case in MISTAKES[number] if case[2] == "wrong"]
        assert len(wrong) >= 3


RIGHT = {
    1: lambda: (reinforce(), stopped),
    3: lambda: (cosine_of, drop()),
    4: lambda: (right_cispo,),
    5: lambda: (PULL, FAILS, HELD),
    6: lambda: (log_s, -0.5),
    7: lambda: review(),
}


@pytest.mark.parametrize("number", RIGHT)
def test_a_right_answer_of_our_own_is_right(number):
    told = ask(number, *RIGHT[number]())
    assert told.kind == "right", told


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (
            1,
            lambda: (
                lambda logp, a, m: -torch.einsum("b,bt,bt->", a, logp, m) / m.sum(),
                lambda r, a: stopped(r, a).tolist(),
            ),
        ),
        (3, lambda: (lambda rows: cosine_of(rows).numpy(), round(drop(), 3))),
        (6, lambda: (lambda *batch: log_s(*batch).double().numpy(), -1 / 2)),
        (7, lambda: (*(round(x, 2) for x in review()[:3]), review()[3])),
    ],
)
def test_a_right_answer_in_another_form_is_right(number, answer):
    told = ask(number, *answer())
    assert told.kind == "right", told


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
    names = {}
    exec("from agentrl import answer_checker, expect, given", names)
    exec(source(cell_of("98_exercises", "zero-check")), names)
    told = names["answer_check"](answer)
    assert (told.kind, why in told.why) == (kind, True), told


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
        arl.given(number, "a number is missing")
        arl.expect(number + 0 == 3, f"not {number}")
        return "three"

    told = check(answer)
    assert told.kind == kind and why in told.why


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
    with pytest.raises(ValueError, match="names"):
        arl.rename_within(task, [task.fn_name, "clamp"], rng)


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


# ---- The built files ----


@pytest.fixture(scope="module", autouse=True)
def built():
    status, printed = build_book()
    assert status == 0, printed


def offered(name):
    path = HTML / "_sources" / "notebooks" / f"{name}.ipynb"
    return path.read_text(encoding="utf-8")


def strings(value):
    """Every text in a piece of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


def as_stored(value):
    return json.dumps(value, ensure_ascii=False)


@pytest.mark.parametrize("name", SOLVED)
def test_the_notebook_to_download_has_no_word_of_the_solution(name):
    cells = read_notebook(name)["cells"]
    kept = [cell for cell in cells if "solution" not in tags(cell)]
    download = json.loads(offered(name))
    assert download["cells"] == kept and 0 < len(kept) < len(cells)
    # And nowhere else in the file: the state of widgets would hold their pictures.
    common, file, tried = as_stored(kept), offered(name), 0
    for text in strings([cell for cell in cells if "solution" in tags(cell)]):
        text = as_stored(text.strip())[1:-1]
        if len(text) > 30 and text not in common:
            assert text not in file
            tried += 1
    assert tried > 0
    assert "## Solution" not in file and "right: " not in file


@pytest.mark.parametrize("name", SOLVED)
def test_the_page_folds_the_solution_and_all_of_it(name):
    page = (HTML / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
    start, end = page.index('<details class="solution">'), page.rindex("</details>")
    assert page.count('<details class="solution">') == 1
    inside = page[start:end]
    solved = [c for c in read_notebook(name)["cells"] if "solution" in tags(c)]
    code = [cell for cell in solved if cell["cell_type"] == "code"]
    assert inside.count("cell_input") >= len(code) > 0
    outside = page[:start] + page[end:]
    assert outside.count("cell_input docutils") == sum(
        c["cell_type"] == "code" and "solution" not in tags(c)
        for c in read_notebook(name)["cells"]
    )


def test_notebooks_without_a_solution_are_left_alone():
    extension = book_extension("book_exercises")
    plain = {"cells": [extension.markdown("a", "text")], "metadata": {"widgets": {}}}
    assert extension.fold(plain) == plain
    assert not extension.has_solution(json.dumps(plain))


@pytest.mark.parametrize("script", [True, False])
def test_a_solution_is_folded_until_it_is_asked_for(chromium, script):
    url = from_disk("notebooks/98_exercises")
    with Visit(chromium, url, java_script_enabled=script) as visit:
        inside = visit.page.locator("details.solution p").first
        assert not inside.is_visible()
        visit.page.locator("details.solution > summary").click()
        assert inside.is_visible()
        assert "0.25" in visit.page.locator("details.solution").inner_text()
