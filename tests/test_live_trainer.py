"""agentrl.live.Trainer: runs in a thread, without a widget."""

import copy
import threading

import pytest
import tiny
import torch
from waiting import EPISODES, PATIENCE, SMALL, Gate

import agentrl as arl
from agentrl import live

CONFIG = arl.RLConfig(**SMALL)


@pytest.fixture
def trainer(apprentice, train_tasks, tok):
    """A trainer around the apprentice that keeps what it tells."""
    told = []

    def tell(run):
        told.append((run.state, len(run.history)))

    made = arl.Trainer(apprentice, train_tasks, tok, tell=tell)
    made.told = told
    return made


def finish(trainer):
    trainer.run.wait(PATIENCE)
    assert not trainer.run.running
    return trainer.run


def plainly(model, tasks, tok, cfg, steps):
    """The history and the weights of `train_rl` on a copy of the model."""
    model = copy.deepcopy(model)
    history = arl.train_rl(model, tasks, tok, cfg, steps)
    return history, tiny.weights(model)


def held(reward, **fields):
    return arl.RLConfig(**SMALL | {"reward": reward} | fields)


def test_a_run_is_a_run_of_train_rl_bit_for_bit(trainer, apprentice, train_tasks, tok):
    before = tiny.weights(apprentice)
    trainer.start(CONFIG, 3)
    run = finish(trainer)
    history, weights = plainly(apprentice, train_tasks, tok, CONFIG, 3)
    assert run.history == history and len(history) == 3
    assert tiny.weights(run.model).equal(weights) and not weights.equal(before)
    assert tiny.weights(apprentice).equal(before)
    assert run.config == CONFIG and trainer.last is run


def test_every_run_starts_from_the_base_as_it_was_given(trainer, apprentice):
    trainer.start(CONFIG, 1)
    first = tiny.weights(finish(trainer).model)
    with torch.no_grad():
        for parameter in apprentice.parameters():
            parameter.zero_()
    trainer.start(CONFIG, 1)
    assert tiny.weights(finish(trainer).model).equal(first)


def test_it_tells_of_the_start_of_each_step_and_of_the_end(trainer):
    trainer.start(CONFIG, 2)
    finish(trainer)
    training = [("training", 1), ("training", 2)]
    assert trainer.told == [("preparing", 0), *training, ("finished", 2)]


def test_tasks_for_evaluation_give_pass_rates(apprentice, train_tasks, tok):
    eval_tasks = arl.make_tasks("heldout")[:2]
    trainer = arl.Trainer(apprentice, train_tasks, tok, eval_tasks)
    trainer.start(CONFIG, 3)
    rates = [record.get("eval_pass") for record in finish(trainer).history]
    assert rates[1] is None and None not in (rates[0], rates[2])


def test_a_run_that_is_stopped_keeps_what_came_out(
    trainer, apprentice, train_tasks, tok
):
    gate = Gate(EPISODES, hold=2)
    trainer.start(held(gate), 50)
    assert gate.reached.wait(PATIENCE) and trainer.run.running
    trainer.run.stopping = True
    gate.go.set()
    run = finish(trainer)
    assert (run.state, gate.calls) == ("stopped", 3 * EPISODES)
    cfg = held(Gate(EPISODES, hold=-1))
    history, weights = plainly(apprentice, train_tasks, tok, cfg, 3)
    assert run.history == history and tiny.weights(run.model).equal(weights)
    assert trainer.last is run


def test_a_callback_can_stop_a_run(apprentice, train_tasks, tok):
    def tell(run):
        run.stopping = len(run.history) == 2

    trainer = arl.Trainer(apprentice, train_tasks, tok, tell=tell)
    trainer.start(CONFIG, 50)
    assert len(finish(trainer).history) == 2


def test_a_run_that_is_stopped_while_the_base_is_made_trains_nothing(
    apprentice, train_tasks, tok, monkeypatch
):
    gate = Gate(1)

    def make_rl_base(tok):
        gate({"actions": ()})
        return apprentice

    monkeypatch.setattr(live, "make_rl_base", make_rl_base)
    trainer = arl.Trainer(None, train_tasks, tok)
    trainer.start(CONFIG, 40)
    assert gate.reached.wait(PATIENCE) and trainer.run.state == "preparing"
    trainer.run.stopping = True
    gate.go.set()
    run = finish(trainer)
    assert (run.state, list(run.history)) == ("stopped", [])
    assert tiny.weights(run.model).equal(tiny.weights(apprentice))


def test_the_rl_base_is_made_by_the_first_run_and_once(
    apprentice, train_tasks, tok, monkeypatch
):
    made = []

    def make_rl_base(tok):
        made.append((tok.words, torch.get_num_threads()))
        return apprentice

    monkeypatch.setattr(live, "make_rl_base", make_rl_base)
    trainer = arl.Trainer()
    assert trainer.tasks == train_tasks and trainer.tok.words == tok.words
    assert made == []
    for _ in range(2):
        trainer.start(CONFIG, 1)
        finish(trainer)
    assert made == [(tok.words, 1)]


def test_one_run_at_a_time(trainer):
    gate = Gate(EPISODES)
    trainer.start(held(gate), 1)
    assert gate.reached.wait(PATIENCE)
    run = trainer.run
    with pytest.raises(ValueError, match="run.state is 'training'; allowed: no run"):
        trainer.start(CONFIG, 1)
    assert trainer.run is run
    gate.go.set()
    assert finish(trainer).state == "finished"


@pytest.mark.parametrize(
    "fields, steps, message",
    [
        ({"group_size": 1}, 1, "group_size is 1; allowed: at least 2"),
        ({"prompts_per_step": 21}, 1, "prompts_per_step is 21; allowed: at most"),
        ({}, -1, "steps is -1"),
    ],
)
def test_what_cannot_run_is_refused_before_any_work(trainer, fields, steps, message):
    trainer.start(CONFIG, 1)
    run = finish(trainer)
    with pytest.raises(ValueError, match=message):
        trainer.start(arl.RLConfig(**SMALL | fields), steps)
    assert trainer.run is trainer.last is run and len(trainer.told) == 3


def test_a_run_that_fails_says_why_and_leaves_the_last_result(trainer):
    def reward(info):
        raise RuntimeError("no")

    trainer.start(CONFIG, 1)
    last = finish(trainer)
    trainer.start(held(reward), 3)
    run = finish(trainer)
    assert run.state == "failed" and isinstance(run.error, RuntimeError)
    assert run.model is None and trainer.last is last
    assert trainer.told[-1] == ("failed", 0)
    trainer.start(CONFIG, 1)
    assert finish(trainer).state == "finished"


def test_a_callback_that_fails_ends_the_run(apprentice, train_tasks, tok):
    def tell(run):
        if run.state == "training":
            raise RuntimeError("cannot draw")

    trainer = arl.Trainer(apprentice, train_tasks, tok, tell=tell)
    trainer.start(CONFIG, 3)
    run = finish(trainer)
    assert run.state == "failed" and str(run.error) == "cannot draw"


def test_arithmetic_has_one_thread_in_a_run_and_as_many_as_before_elsewhere(trainer):
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
        trainer.start(held(reward), 1)
        assert finish(trainer).state == "finished"
        assert set(inside) == {1}
        assert torch.get_num_threads() == 2 and in_a_new_thread() == [2]
    finally:
        torch.set_num_threads(before)
