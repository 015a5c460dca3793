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
from matplotlib.figure import Figure

from agentrl.agent import build_tokenizer
from agentrl.checks import require_choice, require_count
from agentrl.figures import LINES, PALETTE, svg_image
from agentrl.grpo import RLConfig
from agentrl.gym import make_tasks
from agentrl.shortcuts import make_rl_base
from agentrl.training_loop import check_run, train_rl
from agentrl.variants import VARIANTS


# %% [run]
@dataclass
class _Run:
    """A run, planned or under way (live)."""
    config: RLConfig
    steps: int
    label: str = ''         # the settings that were chosen by hand
    history: tuple = ()


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
def _run_figure(run, before=None):
    """The curves of a run, and faintly those of the run before it (live)."""
    runs = [run] if before is None else [before, run]
    title = run.label if before is None else f'{run.label}\nfaint: {before.label}'
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


# %% [form]
class _Form(widgets.VBox):
    """Fields and buttons, and below them what happens (live)."""

    def __init__(self, controls, extra=()):
        super().__init__()
        self.controls = controls
        self._train, self._stop = map(_button, ('Train', 'Stop'))
        self._train.on_click(lambda button: self.train())
        self._stop.on_click(lambda button: self.stop())
        self._bar = widgets.IntProgress(style={'bar_color': PALETTE['blue']})
        self._status = widgets.HTML(_line('No run yet.'))
        self._notice, self._curves = (
            widgets.HTML(layout={'min_height': '0'}) for _ in range(2))
        self.children = [
            _row(*controls.values()), *extra,
            _row(self._train, self._stop, self._bar),
            self._status, self._notice, self._curves, widgets.HTML(_NOTE)]

    def __repr__(self):
        return 'A form that trains. It works in a running kernel: run this cell.'

    def _repr_mimebundle_(self, **kwargs):      # for where no widget can be shown
        return super()._repr_mimebundle_(**kwargs) | {'text/html': f'<p>{self!r}</p>'}


# %% [display]
class _Display(_Form):
    """A form that shows a run, and faintly the one before (live)."""
    _shown = _before = None
    _next_look = 0.0            # seconds, on the clock of `time.monotonic`

    def figure(self):
        """The curves on show, as a matplotlib Figure; None before a run (live)."""
        return self._shown and _run_figure(self._shown, self._before)

    def _show(self, run, word, always=True):
        """Bar, text and curves; not `always`: only when it is time to look again."""
        start = time.monotonic()
        if always or start >= self._next_look:
            self._shown = run
            self._curves.value = svg_image(self.figure(), f'The run: {_told(run)}')
            self._bar.max, self._bar.value = max(run.steps, 1), len(run.history)
            self._status.value = _line(f'{word} {_told(run)}.')
            took = time.monotonic() - start
            self._next_look = start + max(0.5, 3 * took)

    def _set_busy(self, busy):
        self._train.disabled, self._stop.disabled = busy, not busy


# %% [worker]
class _Worker(_Display):
    """Trains a copy of the base model and keeps what comes out (live)."""
    model = config = error = _last = _thread = None
    running = _stopping = False
    history = ()

    def _train_copy(self, run):
        def on_step(history):
            run.history = tuple(history)
            self._show(run, 'Training:', always=False)
            return self._stopping

        self._show(run, 'Preparing (the first time this makes the base agent):')
        if self._base is None:
            self._base = make_rl_base(self.tok)
        model = copy.deepcopy(self._base)
        history = train_rl(model, self.tasks, self.tok, run.config,
                           0 if self._stopping else run.steps,
                           eval_tasks=self._eval_tasks, on_step=on_step)
        self._show(run, 'Finished:' if len(history) == run.steps else 'Stopped after')
        self.model, self.history, self.config = model, history, run.config
        self._last = run


# %% [work]
class _Thread(_Worker):
    """What surrounds a run: threads of arithmetic, errors, buttons (live)."""

    def _work(self, run):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            self._train_copy(run)
        except Exception as error:
            self.error, what = error, ''.join(str(error).splitlines()[:1])
            self._status.value = _line(f'Failed after {_told(run)}.')
            self._notice.value = _line(f'{type(error).__name__}: {what}', 'alert')
        finally:
            torch.set_num_threads(threads)
            self._set_busy(False)
            self.running = False


# %% [plan]
def _plan(settings, config_of, tasks, eval_tasks):
    """A run at these settings; `ValueError` where it cannot start (live)."""
    steps, rest = settings['steps'], dict(settings)
    del rest['steps']
    cfg = check_run(config_of(**rest), tasks, steps, eval_tasks=eval_tasks)
    return _Run(cfg, steps, ', '.join(f'{name} {rest[name]}' for name in rest))


# %% [settings]
class _Settings(_Thread):
    """What all runs of a form share, and how to end one (live)."""

    def __init__(self, controls, config_of, model, tasks, tok, eval_tasks, extra=()):
        super().__init__(controls, extra)
        self.tasks = make_tasks('train') if tasks is None else tasks
        self.tok = build_tokenizer(make_tasks('all')) if tok is None else tok
        self._base, self._eval_tasks, self._config_of = (
            copy.deepcopy(model), eval_tasks, config_of)
        for control in controls.values():
            control.observe(self._changed, 'value')

    def _changed(self, change):
        if self.running:
            self._notice.value = _line('The change counts from the next run.')

    def stop(self):
        """End the run after the step under way; what came out is kept (live)."""
        self._stopping = self._stop.disabled = True

    def wait(self, timeout=None):
        """Wait for the end of the run, `timeout` seconds at most (live)."""
        if self._thread:
            self._thread.join(timeout)


# %% [explorer]
class Explorer(_Settings):
    """A form that trains copies of a model; results as attributes (live).

    `model`, `history`, `config`: of the last run that ended. `running`: whether one is
    under way. `error`: what the last failure raised. `controls`: the fields, by name.
    A run seeds PyTorch's generator, which all threads share.
    """

    def train(self):
        """Start a run unless one is under way; the form tells what it refuses."""
        if self.running:
            return
        settings = {name: control.value for name, control in self.controls.items()}
        try:
            run = _plan(settings, self._config_of, self.tasks, self._eval_tasks)
        except (TypeError, ValueError) as error:
            self._notice.value = _line(f'Not started: {error}', 'alert')
            return
        self.running, self._stopping, self._before = True, False, self._last
        self._notice.value, self.error = '', None
        self._set_busy(True)
        self._thread = threading.Thread(target=self._work, args=(run,), daemon=True)
        self._thread.start()


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
    "Explorer",
    "group_size_explorer",
    "variant_explorer",
]
