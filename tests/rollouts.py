"""What the tests of episodes and of their speed share: playing, and comparing."""

import itertools

import torch
from torch import nn

import agentrl as arl

TASKS = arl.make_tasks("all")


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def texts(trajs, tok):
    return [tok.decode(t.ids) for t in trajs]


def same_episodes(left, right):
    for a, b in zip(left, right, strict=True):
        assert a.ids.tolist() == b.ids.tolist()
        assert a.action_mask.tolist() == b.action_mask.tolist()
        assert (a.reward, a.info) == (b.reward, b.info)


class Plain(nn.Module):
    """Any model as a stranger: nothing but its forward, so no fast form."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids)


class Chatty:
    """Answers every call with as many words as it is told; ends after `max_turns`."""

    def __init__(self, max_turns, sizes=(1,)):
        self.max_turns, self.sizes = max_turns, itertools.cycle(sizes)

    def reset(self, task):
        self.turn, self.said = 0, []
        return task.issue

    def step(self, text):
        self.turn += 1
        self.said.append(text)
        done = self.turn >= self.max_turns
        answer = " ".join(["value", "="] * next(self.sizes))
        return answer, float(done), done, {"actions": self.said, "task": "x"}


def play(model, tasks, tok, **options):
    envs = [arl.BugFixEnv(options.get("max_turns", 6)) for _ in tasks]
    return arl.rollout_batch(model, envs, tasks, tok, **options)


def both(model, make_envs, tasks, tok, seed=0, **options):
    """The same episodes twice: whole context again, and by the fast form."""
    return [
        arl.rollout_batch(
            policy, make_envs(), tasks, tok, generator=gen(seed), **options
        )
        for policy in (Plain(model), model)
    ]


def gyms(tasks):
    """Makes an environment of the original gym for each task."""
    return lambda: [arl.BugFixEnv() for _ in tasks]
