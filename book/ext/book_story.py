"""The picture of the cover: what the agent learns in five settings, one after another.

`{story}` draws it from evidence/five_runs.json, so its numbers are the measured ones.
The text below the directive is the caption.
"""

import html
import json
import statistics
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

STUDY = Path(__file__).resolve().parent.parent.parent / "evidence" / "five_runs.json"

# The arm of the study, its title, what the environment allows (the line that changes
# from one step to the next is marked), and what comes of it.
STEPS = (
    ("base agent, not trained", "Base agent", ["imitates players", "that never look"],
     "before training"),
    ("GRPO, original gym", "Original gym", ["names stay", "edits are free"],
     "memorises names"),
    ("GRPO, renamed", "Renamed", ["*names change", "edits are free"],
     "stacks edits"),
    ("GRPO, one edit", "One edit", ["names change", "*one edit only"],
     "learns nothing"),
    ("GRPO from RL base, one edit", "Reading base", ["*sometimes reads", "same gym"],
     "learns to read"),
)  # fmt: skip
FIGURES = ("pass_rate", "reads", "edits")


def measured(path=STUDY):
    """-> {arm: {split: {figure: mean over seeds}}} and the number of seeds."""
    study = json.loads(path.read_text(encoding="utf-8"))
    means = {}
    for arm, *_ in STEPS:
        results = [result for result in study["results"] if result["arm"] == arm]
        means[arm] = {
            split: {
                figure: statistics.fmean(result[split][figure] for result in results)
                for figure in FIGURES
            }
            for split in ("train", "heldout")
        }
    return means, len(study["seeds"])


# ---- Drawing: once in a row for a screen, once in a column for a phone ----

WIDE = {"name": "wide", "card": (140, 258), "step": (154, 0), "text": (70, 24),
        "anchor": "middle", "icons": (70, 116), "bars": (70, 232, 84)}  # fmt: skip
TALL = {"name": "tall", "card": (350, 106), "step": (0, 124), "text": (14, 25),
        "anchor": "start", "icons": (196, 21), "bars": (294, 84, 56)}  # fmt: skip


def text(x, y, said, kind, anchor="middle"):
    said = html.escape(said)
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{said}</text>'


def eye(x, y, reads):
    """An eye, open where the agent reads in most episodes, else closed."""
    lid = f'<path class="icon" d="M{x - 9} {y}q9 9 18 0'
    if reads < 0.5:
        lashes = "".join(f"M{x + i} {y + 5 - abs(i) // 4}v4" for i in (-5, 0, 5))
        return f'{lid}{lashes}"/>'
    return f'{lid}q-9 -9 -18 0"/><circle class="dot" cx="{x}" cy="{y}" r="2.6"/>'


def pencil(x, y):
    return f'<path class="pencil" d="M{x - 7} {y + 7}l1 -4l9 -9l3 3l-9 9z"/>'


def icons(x, y, figures):
    """An eye and one pencil for each edit, each with the number beside it."""
    pencils = max(round(figures["edits"]), 1)
    x -= (88 + 8 * pencils) / 2  # they stand in the middle
    drawn = [eye(x + 9, y, figures["reads"])]
    drawn += [text(x + 22, y + 5, f"{figures['reads']:.1f}", "count", "start")]
    drawn += [pencil(x + 58 + 8 * i, y) for i in range(pencils)]
    end = x + 60 + 8 * pencils
    return [*drawn, text(end, y + 5, f"{figures['edits']:.1f}", "count", "start")]


def bars(x, y, height, rates):
    """Two bars on a line: held-out tasks filled, training tasks hollow."""
    drawn = [f'<path class="floor" d="M{x - 46} {y}h92"/>']
    for left, split in ((x - 38, "heldout"), (x + 4, "train")):
        rate = rates[split]["pass_rate"]
        high = height * rate
        drawn.append(
            f'<rect class="{split}" x="{left}" y="{y - high:.1f}" width="34" '
            f'height="{high:.1f}"/>'
        )
        drawn.append(text(left + 17, round(y - high - 6, 1), f"{rate:.2f}", split))
    return drawn


def arrow(x, y, down):
    """A short arrow between two cards; (x, y) is its middle."""
    tip = "M-5 -4L0 3L5 -4M0 3V-6" if down else "M-3 -5L4 0L-3 5M4 0H-5"
    return f'<path class="arrow" transform="translate({x} {y})" d="{tip}"/>'


def card(step, means, look):
    arm, title, allowed, learned = step
    wide, high = look["card"]
    x, y = look["text"]
    anchor = look["anchor"]
    kind = "step last" if step is STEPS[-1] else "step"
    drawn = [f'<rect class="{kind}" width="{wide}" height="{high}" rx="8"/>']
    drawn.append(text(x, y, title, "title", anchor))
    for i, line in enumerate(allowed):
        kind = "changed" if line.startswith("*") else "allowed"
        drawn.append(text(x, y + 20 + 17 * i, line.strip("*"), kind, anchor))
    drawn.append(text(x, y + 65, learned, "learned", anchor))
    drawn += icons(*look["icons"], means[arm]["heldout"])
    return [*drawn, *bars(*look["bars"], means[arm])]


def draw(means, seeds, look):
    wide, high = look["card"]
    step_x, step_y = look["step"]
    n = len(STEPS) - 1
    drawn = []
    for i, step in enumerate(STEPS):
        place = f"translate({i * step_x + 1} {i * step_y + 1})"
        inside = "".join(card(step, means, look))
        drawn.append(f'<g transform="{place}">{inside}</g>')
        if i and step_x:
            drawn.append(arrow(i * step_x - 6, high / 2, down=False))
        elif i:
            drawn.append(arrow(wide / 2, i * step_y - 8, down=True))
    name = look["name"]
    size = (n * step_x + wide + 2, n * step_y + high + 2)
    return (
        f'<svg class="story story-{name}" role="img" viewBox="0 0 {size[0]} {size[1]}" '
        f'aria-labelledby="story-{name}-title story-{name}-told">'
        f'<title id="story-{name}-title">What the agent learns, step by step</title>'
        f'<desc id="story-{name}-told">{html.escape(told(means, seeds))}</desc>'
        + "".join(drawn)
        + "</svg>"
    )


def told(means, seeds):
    """The picture in words."""
    lines = [f"Pass rates and calls an episode, measured, means of {seeds} seeds."]
    for arm, title, allowed, learned in STEPS:
        train, held = means[arm]["train"], means[arm]["heldout"]
        setting = ", ".join(line.strip("*") for line in allowed)
        lines.append(
            f"{title} ({setting}): {learned}. It passes {held['pass_rate']:.2f} of "
            f"held-out and {train['pass_rate']:.2f} of training episodes; on held-out "
            f"tasks it reads {held['reads']:.1f} times and edits {held['edits']:.1f} "
            "times an episode."
        )
    return " ".join(lines)


class Story(SphinxDirective):
    """`{story}`: the picture, with the content as its caption."""

    has_content = True

    def run(self):
        self.env.note_dependency(str(STUDY))
        means, seeds = measured()
        picture = "".join(draw(means, seeds, look) for look in (WIDE, TALL))
        frame = nodes.container(classes=["story-frame"])
        frame += nodes.raw("", picture, format="html")
        self.state.nested_parse(self.content, self.content_offset, frame)
        return [frame]


def setup(app):
    app.add_directive("story", Story)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
