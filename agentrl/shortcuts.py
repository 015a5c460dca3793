# Generated from notebooks/9_4_shortcuts.ipynb by book/tangle.py; edit the notebook.
"""9.4 Shortcut features in environment design."""

# %% [imports]
import html
import re
from collections import Counter
from dataclasses import dataclass, replace

from agentrl.agent import CALLS, call_probabilities
from agentrl.checks import require, require_choice, require_count
from agentrl.episodes import make_base_agent
from agentrl.figures import html_bar, html_table
from agentrl.gym import EDIT_OPS, BugFixEnv, Task, make_tasks, parse_call


# %% [names]
FN_NAMES = sorted(task.fn_name for task in make_tasks('all'))


def randomize_names(task: Task, rng) -> Task:
    """A copy of `task` under another of the 30 names, drawn by `rng` (section 9.4).

    Issue, source and `fn_name` change; `name` stays. Words of the source are no
    candidates, which rules out the present name and its variables.
    """
    require(isinstance(task, Task), 'task', task,
            'a Task; sample tasks of another kind with rename=False', TypeError)
    words = set(re.findall(r'\w+', task.source))
    name = rng.choice([name for name in FN_NAMES if name not in words])
    issue, source = (re.sub(rf'\b{task.fn_name}\b', name, text)
                     for text in (task.issue, task.source))
    return replace(task, fn_name=name, issue=issue, source=source)


# %% [blind]
def blind_pass_rate(ops, tasks):
    """Share of `tasks` that one fixed sequence of edits repairs (section 9.4)."""
    require(len(tasks) > 0, 'len(tasks)', 0, 'at least 1')
    for op in ops:
        require_choice('ops', op, EDIT_OPS)
    passed = 0
    for task in tasks:
        env = BugFixEnv(max_turns=len(ops) + 1)
        env.reset(task)
        for op in ops:
            env.step(f'<call> edit {op} </call>')
        passed += env.step('<call> submit </call>')[1]
    return passed / len(tasks)


# %% [budget]
@dataclass(eq=False)
class EditBudgetEnv(BugFixEnv):
    """A gym that refuses edits past `max_edits`: the turn is spent (section 9.4)."""
    max_edits: int = 1

    def __post_init__(self):
        require_count('max_edits', self.max_edits, low=0)
        super().__post_init__()


# %% [read-then-edit]
def read_then_edit(trajs) -> tuple[float, float, int]:
    """Does reading pay? `(share, right, n)` over episodes (section 9.4).

    `share` of episodes that read before their first edit; the share `right` of those
    whose first edit is right (0.0 without any); their number `n`.
    """
    require(len(trajs) > 0, 'len(trajs)', 0, 'at least 1')
    infos = _infos(trajs, 'actions', 'fix_op', 'ops')
    readers = [info for info in infos if info['ops'] and _reads_first(info)]
    right = sum(info['ops'][0] == info['fix_op'] for info in readers)
    return len(readers) / len(trajs), right / max(len(readers), 1), len(readers)


# %% [final-infos]
def _infos(trajs, *keys):
    """The final infos, which need these keys."""
    for i, traj in enumerate(trajs):
        require(all(key in traj.info for key in keys), f'trajs[{i}].info',
                sorted(traj.info), f'an EpisodeInfo with {", ".join(keys)}')
    return [traj.info for traj in trajs]


def _reads_first(info):
    """A read stands before the first applied edit."""
    first = info['actions'].index(f"<call> edit {info['ops'][0]} </call>")
    return '<call> read </call>' in info['actions'][:first]


# %% [rl-base]
def make_rl_base(tok, seed=0):
    """The base agent with one oracle set in nine: it sometimes reads (section 9.4)."""
    return make_base_agent(tok, seed, kinds=('random', 'blind') * 4 + ('oracle',))


# %% [calls-of]
def calls_of(traj):
    """The calls of an episode: `[(ids before, ids of the call)]` (section 9.4)."""
    ids, mask = traj.ids.tolist(), [0.0, *traj.action_mask.tolist(), 0.0]
    starts = [i for i in range(len(ids)) if mask[i] and not mask[i - 1]]
    ends = [i for i in range(1, len(ids) + 1) if mask[i - 1] and not mask[i]]
    return [(ids[:a], ids[a:b]) for a, b in zip(starts, ends, strict=True)]


# %% [transcript]
def transcript(model, tok, traj):
    """An episode as an HTML table: calls, what else was likely, answers (9.4)."""
    calls, ids, rows = calls_of(traj), traj.ids.tolist(), []
    probs = call_probabilities(model, tok, [before for before, _ in calls])
    ends = [len(before) for before, _ in calls[1:]] + [len(ids)]
    for turn, ((before, call), p, end) in enumerate(
            zip(calls, probs, ends, strict=True), 1):
        words = tok.decode(call).replace('<call> ', '').replace(' </call>', '')
        likely = [(float(p[i]), CALLS[i][7:-8]) for i in p.argsort(descending=True)[:3]]
        considered = '<br>'.join(f'{x:.2f} {html_bar(x, width=4)} {call}'
                                 for x, call in likely if x >= 0.01)
        answer = tok.decode(ids[len(before) + len(call):end])
        rows.append((str(turn), html.escape(words), considered,
                     html.escape(answer.replace('<obs> ', '').replace(' </obs>', ''))))
    return html_table(['turn', 'call', 'probability of the likeliest calls', 'answer'],
                      rows, html.escape(tok.decode(calls[0][0]).removeprefix('<bos> ')))


# %% [sequences]
def call_sequences(trajs) -> Counter:
    """How often each sequence of calls was made: a `Counter` of texts (section 9.4).

    An edit is told as right or wrong: 'read, right edit, test, submit'.
    """
    infos = _infos(trajs, 'actions', 'fix_op')
    return Counter(', '.join(_kind_of(action, info['fix_op'])
                             for action in info['actions']) for info in infos)


def _kind_of(action, fix_op):
    """What a call is: 'read', 'right edit', 'invalid call', ..."""
    call = parse_call(action)
    if call is None:
        return 'invalid call'
    if call[0] != 'edit':
        return call[0]
    return 'right edit' if call[1] == fix_op else 'wrong edit'


__all__ = [
    "FN_NAMES",
    "randomize_names",
    "blind_pass_rate",
    "EditBudgetEnv",
    "read_then_edit",
    "make_rl_base",
    "calls_of",
    "transcript",
    "call_sequences",
]
