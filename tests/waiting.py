"""Runs that wait for a test, without a clock."""

import threading

PATIENCE = 120  # seconds until a thread that should go on counts as stuck


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
EPISODES = 6  # of a step of SMALL
