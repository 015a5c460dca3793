"""The cover: its picture says what was measured, and its doors lead somewhere."""

import json
import statistics

import pytest
from house import ROOT, article, book_extension, build_book


@pytest.fixture(scope="module")
def cover():
    status, printed = build_book()
    assert status == 0, printed
    return article("book/intro")


@pytest.fixture(scope="module")
def book_story():
    return book_extension("book_story")


def test_the_picture_has_the_means_of_the_study(cover, book_story):
    study = json.loads((ROOT / "evidence" / "five_runs.json").read_text("utf-8"))
    pictures = cover.select("svg.story")
    assert [p["class"] for p in pictures] == [
        ["story", "story-wide"],
        ["story", "story-tall"],
    ]
    for picture in pictures:
        for split in ("heldout", "train"):
            shown = [text.text for text in picture.select(f"text.{split}")]
            assert shown == [
                f"{statistics.fmean(rates):.2f}"
                for rates in (
                    [r[split]["pass_rate"] for r in study["results"] if r["arm"] == arm]
                    for arm, *_ in book_story.STEPS
                )
            ]


def test_the_picture_is_told_in_words(cover):
    ids = set()
    for picture in cover.select("svg.story"):
        assert picture["role"] == "img"
        named = picture["aria-labelledby"].split()
        texts = [picture.find(id=name).text for name in named]
        assert texts[0] == "What the agent learns, step by step"
        assert texts[1].startswith("Pass rates and calls an episode, measured, ")
        for text in picture.select("text.title, text.learned, text.heldout"):
            assert text.text in texts[1]
        assert not ids & set(named)
        ids |= set(named)


def test_the_caption_counts_the_seeds_as_the_study_does(cover, book_story):
    _, seeds = book_story.measured()
    assert seeds == 10
    assert "mean of ten seeds" in " ".join(cover.text.split())


def test_three_doors_lead_into_the_book(cover):
    doors = cover.select(".doors a.sd-stretched-link")
    assert [door["href"] for door in doors] == [
        "../notebooks/00_how_to_read.html", "#ways", "../notebooks/9_4_shortcuts.html",
    ]  # fmt: skip
