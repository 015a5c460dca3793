"""The row that 9.3 prints for each split."""

import re

import pytest
from tiny import Scripted, call, weights

import agentrl as arl


def rows(capsys, *args, **options):
    arl.compare(*args, **options)
    return capsys.readouterr().out.splitlines()


def test_one_row_for_each_split(tok, apprentice, capsys):
    cfg = arl.RLConfig(max_edits=None, rename=False)
    before = weights(apprentice)
    printed = rows(capsys, "base agent", apprentice, cfg, tok, n=2)
    assert len(printed) == 2
    for line, split in zip(printed, ("train", "heldout"), strict=True):
        assert line.startswith("base agent")
        assert line.split()[2] == split
        stats = arl.evaluate(apprentice, arl.make_tasks(split), tok, 2, cfg=cfg)
        names = ("pass_rate", "reads", "edits", "first_edit_right", "tests")
        shown = [float(x) for x in re.findall(r"\d+\.\d+", line)]
        assert shown == pytest.approx([stats[name] for name in names], abs=0.0051)
    assert (weights(apprentice) == before).all()
    assert rows(capsys, "base agent", apprentice, cfg, tok, n=2) == printed


def test_a_row_by_hand(tok, capsys):
    """Every task is read twice, tested once and edited twice, once in vain."""
    words = ("read", "swap_minmax", "fix_init", "test", "read", "submit")
    model = Scripted(tok, {"": [call(word) for word in words]})
    cfg = arl.RLConfig(max_edits=1)
    for line in rows(capsys, "script", model, cfg, tok, n=1):
        assert re.sub(r" +", " ", line).split(" ", 2)[2] == (
            "pass 0.200 reads 2.00 edits 1.00 first edit right 0.20 tests 1.00"
        )
