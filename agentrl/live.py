# Generated from notebooks/99_6_live.ipynb by book/tangle.py; edit the notebook.
"""Train it yourself."""

# %% [imports]
import copy
import html
import threading
import time
from dataclasses import dataclass, replace
from functools import partial

import ipywidgets as widgets
import torch
from torch import nn

from agentrl.agent import build_tokenizer
from agentrl.checks import require, require_choice, require_count
from agentrl.figures import LINES, PALETTE, svg_image
from agentrl.grpo import RLConfig
from agentrl.gym import make_tasks
from agentrl.shortcuts import make_rl_base
from agentrl.training_loop import check_run, train_rl
from agentrl.variants import VARIANTS


# %% [run]
@dataclass
class _Run:
    """A run: what was asked for, how far it is, what came out (live)."""
    config: RLConfig | None = None
    steps: int = 0
    label: str = ''             # the settings that were chosen by hand
    state: str = 'none'         # preparing, training; finished, stopped, failed
    history: list | tuple = ()
    model: nn.Module | None = None
    error: Exception | None = None
    stopping: bool = False
    thread: threading.Thread | None = None

    @property
    def running(self):
        """Whether it is under way."""
        return self.state in ('preparing', 'training')

    def wait(self, timeout=None):
        """Wait for the end of its thread, `timeout` seconds at most."""
        if self.thread:
            self.thread.join(timeout)


# %% [worker]
def _train_copy(run, trainer):
    """What a run does: `train_rl` on a copy of the base (live)."""
    def on_step(history):
        run.history = tuple(history)
        trainer.tell(run)
        return run.stopping

    if trainer.base is None:
        trainer.base = make_rl_base(trainer.tok)
    run.state, model = 'training', copy.deepcopy(trainer.base)
    history = train_rl(model, trainer.tasks, trainer.tok, run.config,
                       0 if run.stopping else run.steps,
                       eval_tasks=trainer.eval_tasks, on_step=on_step)
    run.model, run.history = model, history
    trainer.last = run
    run.state = 'finished' if len(history) == run.steps else 'stopped'


# %% [work]
def _work(run, trainer):
    """What surrounds a run in its thread (live)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainer.tell(run)
        _train_copy(run, trainer)
    except Exception as error:
        run.error, run.state = error, 'failed'
    finally:
        torch.set_num_threads(threads)
    trainer.tell(run)


# %% [trainer]
class Trainer:
    """Trains copies of a model in a thread, one run at a time (live).

    `run` is the newest run, `last` the newest that did not fail: `config`, `steps`,
    `state`, `history`, `model`, `error`, `wait(timeout)`, and `stopping`: set it, and
    the run ends after the step under way. `tell(run)`, if given, is called in the
    thread when a run starts, after each step, and when it ends.
    """

    def __init__(self, model=None, tasks=None, tok=None, eval_tasks=None, tell=None):
        self.base = copy.deepcopy(model)
        self.tasks = make_tasks('train') if tasks is None else tasks
        self.tok = build_tokenizer(make_tasks('all')) if tok is None else tok
        self.eval_tasks, self.tell = eval_tasks, tell or (lambda run: None)
        self.run = self.last = _Run()

    def start(self, cfg, steps, label=''):
        """Start a run; `ValueError` where it cannot, or while one is under way."""
        require(not self.run.running, 'run.state', self.run.state, 'no run under way')
        cfg = check_run(cfg, self.tasks, steps, eval_tasks=self.eval_tasks)
        self.run.wait()     # its thread may still be telling of its end
        self.run = run = _Run(cfg, steps, label, 'preparing')
        run.thread = threading.Thread(target=_work, args=(run, self), daemon=True)
        run.thread.start()


# %% [told]
_CURVES = {'reward': 'reward', 'reads': 'reads an episode',
           'zero_adv_frac': 'groups without a signal'}


def _told(run):
    """How far a run is, and its last numbers, in words (live)."""
    text = f'{len(run.history)} of {run.steps} steps'
    if not run.history:
        return text
    last, episodes = run.history[-1], sum(step['n_episodes'] for step in run.history)
    text += f', {episodes} episodes; last step: '
    names = _CURVES | {'eval_pass': 'pass rate on other tasks'}
    return text + ', '.join(f'{names[key]} {last[key]:.2f}'
                            for key in names if key in last)


# %% [panel]
def _draw_panel(ax, key, title, line, color, runs):
    """One number over the steps of some runs; the last run is the one in colour."""
    for run, width in zip(runs, (1.8,) if len(runs) == 1 else (1.0, 1.8), strict=True):
        ax.plot([record[key] for record in run.history], line, linewidth=width,
                marker='.' if len(run.history) == 1 else '',
                color=PALETTE[color if run is runs[-1] else 'grey'],
                alpha=1 if run is runs[-1] else 0.5)
    low, high = ax.get_ylim()
    ax.set_title(title, fontsize=10)
    ax.set(xlabel='step', ylim=(min(low, -0.05), max(high, 1.05)),
           xlim=(0, max(2, *(run.steps for run in runs)) - 1))
    ax.spines[['top', 'right']].set_visible(False)
    ax.grid(color='#e2e5ea')
    ax.locator_params(nbins=5)


# %% [figure]
def _run_figure(run, before):
    """The curves of a run, and faintly those of the run before it, if any (live)."""
    from matplotlib.figure import Figure  # half a second that not every reader needs

    runs = [before, run] if before.steps else [run]
    title = f'{run.label}\nfaint: {before.label}' if before.steps else run.label
    fig = Figure(figsize=(8, 2.8), facecolor='white')
    fig.suptitle(title, fontsize=10)
    # fixed margins: finding good ones would take as long as drawing
    place = {'left': 0.06, 'right': 0.98, 'bottom': 0.18, 'top': 0.74, 'wspace': 0.25}
    for ax, (key, name), line, color in zip(
            fig.subplots(1, 3, gridspec_kw=place), _CURVES.items(), LINES[:3],
            ('blue', 'green', 'orange'), strict=True):
        _draw_panel(ax, key, name, line, color, runs)
    return fig


# %% [line]
def _line(text, role='status'):
    """A line of text on a form, for eyes and for screen readers (live)."""
    return f'<div role="{role}">{html.escape(text)}</div>'


# %% [label]
_NAMES = {'group_size': 'Group size', 'prompts_per_step': 'Prompts per step',
          'seed': 'Seed', 'steps': 'Steps', 'variant': 'Variant'}


def _label(name):
    """The label of a field, and the room that label and field take (live)."""
    return {'description': _NAMES[name], 'style': {'description_width': 'initial'},
            'layout': {'width': f'{8 * len(_NAMES[name]) + 94}px'}}


# %% [number]
def _number(name, value):
    """A labelled field that takes any integer: the checks come later (live)."""
    require_count(name, value, low=0)
    return widgets.IntText(value, **_label(name))


# %% [parts]
_NOTE = ('<div style="font-size: 0.9em">The buttons work only in a running kernel '
         '(<code>make lab</code>), after this cell has run.</div>')


def _button(text):
    """A button in the colours of the figures (live)."""
    color = PALETTE['blue'] if text == 'Train' else PALETTE['grey']
    return widgets.Button(description=text, layout={'width': '90px'}, style={
        'button_color': color, 'text_color': 'white'}, disabled=text == 'Stop')


def _row(*parts):
    """Parts side by side, on several lines where the page is narrow (live)."""
    return widgets.HBox(parts, layout={'flex_flow': 'row wrap', 'grid_gap': '4px 16px'})


# %% [panel-widgets]
_WORDS = {'preparing': 'Preparing (the first time this makes the base agent):',
          'training': 'Training:', 'finished': 'Finished:',
          'stopped': 'Stopped after', 'failed': 'Failed after'}


class _Panel:
    """Buttons, and what shows a run and faintly the one before (live)."""

    def __init__(self):
        self.train, self.stop = map(_button, ('Train', 'Stop'))
        self.bar = widgets.IntProgress(style={'bar_color': PALETTE['blue']})
        self.status = widgets.HTML(_line('No run yet.'))
        self.notice, self.curves = (
            widgets.HTML(layout={'min_height': '0'}) for _ in range(2))
        self.rows = [_row(self.train, self.stop, self.bar), self.status, self.notice,
                     self.curves, widgets.HTML(_NOTE)]
        self.next_look = 0.0        # seconds, on the clock of `time.monotonic`


# %% [show]
def _show(panel, run, before):
    """Show how far `run` is, unless it trains and was looked at just now (live)."""
    start = time.monotonic()
    panel.train.disabled = run.running
    panel.stop.disabled = run.stopping or not run.running
    if run.error is not None:
        what = ''.join(str(run.error).splitlines()[:1])
        panel.notice.value = _line(f'{type(run.error).__name__}: {what}', 'alert')
    if run.state != 'training' or start >= panel.next_look:
        panel.bar.max, panel.bar.value = max(run.steps, 1), len(run.history)
        panel.status.value = _line(f'{_WORDS[run.state]} {_told(run)}.')
        alt = f'The run: {_told(run)}'
        panel.curves.value = svg_image(_run_figure(run, before), alt)
        panel.next_look = start + max(0.5, 3 * (time.monotonic() - start))


# %% [form]
class _Form(widgets.VBox):
    """Fields and buttons around a trainer (live)."""

    def __init__(self, controls, config_of, model, tasks, tok, eval_tasks, extra=()):
        self.controls, self._config_of, self._panel = controls, config_of, _Panel()
        super().__init__([_row(*controls.values()), *extra, *self._panel.rows])
        self._panel.train.on_click(lambda button: self.train())
        self._panel.stop.on_click(lambda button: self.stop())
        for control in controls.values():
            control.observe(self._changed, 'value')
        self.trainer = Trainer(model, tasks, tok, eval_tasks, self._follow)
        self.tasks, self.tok = self.trainer.tasks, self.trainer.tok

    def _changed(self, change):
        if self.running:
            self._panel.notice.value = _line('The change counts from the next run.')

    def __repr__(self):
        return 'A form that trains. It works in a running kernel: run this cell.'

    def _repr_mimebundle_(self, **kwargs):      # for where no widget can be shown
        return super()._repr_mimebundle_(**kwargs) | {'text/html': f'<p>{self!r}</p>'}


# %% [follow]
class _Follower(_Form):
    """A form that shows its trainer's runs, and keeps what comes out (live)."""
    model = config = error = _before = None
    history = ()
    running = property(lambda self: self.trainer.run.running)

    def _follow(self, run):
        last, self.error = self.trainer.last, run.error
        self.model, self.history, self.config = last.model, last.history, last.config
        if run.state == 'preparing':
            self._before, self._panel.notice.value = last, ''
        _show(self._panel, run, self._before)

    def figure(self):
        """The curves on show, as a matplotlib Figure; None before a run (live)."""
        return self._before and _run_figure(self.trainer.run, self._before)

    def wait(self, timeout=None):
        """Wait for the end of the run, `timeout` seconds at most (live)."""
        self.trainer.run.wait(timeout)


# %% [explorer]
class Explorer(_Follower):
    """A form that trains copies of a model; results as attributes (live).

    `model`, `history`, `config`: of the last run that ended. `running`: whether one is
    under way. `error`: what the last run raised. `controls`: the fields, by name.
    A run seeds PyTorch's generator, which all threads share.
    """

    def train(self):
        """Start a run unless one is under way; the form tells what it refuses."""
        settings = {name: control.value for name, control in self.controls.items()}
        steps = settings.pop('steps')
        label = ', '.join(f'{name} {value}' for name, value in settings.items())
        try:
            if not self.running:
                self.trainer.start(self._config_of(**settings), steps, label)
        except (TypeError, ValueError) as error:
            self._panel.notice.value = _line(f'Not started: {error}', 'alert')

    def stop(self):
        """End the run after the step under way; what came out is kept (live)."""
        self.trainer.run.stopping = self._panel.stop.disabled = True


# %% [group-size]
def group_size_explorer(model=None, tasks=None, tok=None, *, steps=40, eval_tasks=None,
                        **fields):
    """A form that trains at a group size of your choice: an `Explorer` (live).

    Defaults: the RL base, made at the first run, and the training tasks. Other
    keywords are fields of `RLConfig`: where the form starts, or what it leaves alone.
    `eval_tasks`: tasks whose pass rate is in the history too, every 20 steps.
    """
    cfg = RLConfig(**fields)
    controls = {name: _number(name, getattr(cfg, name))
                for name in ('group_size', 'prompts_per_step', 'seed')}
    controls['steps'] = _number('steps', steps)
    return Explorer(controls, partial(replace, cfg), model, tasks, tok, eval_tasks)


# %% [variant-fields]
def _fields_line(variant):
    """What a variant sets, as HTML (live)."""
    fields = VARIANTS.get(variant, {})
    text = ', '.join(f'{name}={value!r}' for name, value in fields.items())
    return f'<code>RLConfig({html.escape(text)})</code>'


# %% [variant]
def variant_explorer(model=None, tasks=None, tok=None, *, variant='default', steps=40,
                     eval_tasks=None, **fields):
    """A form that trains a variant of your choice: an `Explorer` (live).

    As `group_size_explorer`. A variant's own fields come before those given here.
    """
    require_choice('variant', variant, ('default', *VARIANTS))
    cfg, line = RLConfig(**fields), widgets.HTML(_fields_line(variant))
    menu = widgets.Dropdown(options=['default', *VARIANTS], value=variant,
                            **_label('variant'))
    menu.observe(lambda change: line.set_trait('value', _fields_line(change.new)),
                 'value')
    controls = {'variant': menu} | {name: _number(name, getattr(cfg, name))
                                    for name in ('group_size', 'seed')}
    controls['steps'] = _number('steps', steps)

    def config_of(variant, **settings):
        return RLConfig(**fields | VARIANTS.get(variant, {}) | settings)

    return Explorer(controls, config_of, model, tasks, tok, eval_tasks, [line])


__all__ = [
    "Trainer",
    "Explorer",
    "group_size_explorer",
    "variant_explorer",
]
