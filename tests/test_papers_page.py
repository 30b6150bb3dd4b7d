"""The page of the papers says what its CSV files say, and no verdict more than they."""

import re
import runpy
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from test_bench_options import PAGES as COMMANDED

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def papers() -> Mapping[str, Any]:
    return runpy.run_path(str(DOCS / "papers.py"))


@pytest.fixture(scope="module")
def items(papers: Mapping[str, Any]) -> Mapping[str, Any]:
    return papers["items"]()  # type: ignore[no-any-return]


def test_the_page_is_that_of_its_csv_files(papers: Mapping[str, Any]) -> None:
    assert (DOCS / "papers.md").read_text() == papers["page"](), "run `make papers`"
    assert DOCS / "papers.md" in COMMANDED  # its commands are read there


def test_every_verdict_follows_from_the_figures_of_its_row(
    papers: Mapping[str, Any], items: Mapping[str, Any]
) -> None:
    assert list(papers["verdict_errors"](items)) == []


@pytest.mark.parametrize(
    ("item", "changed", "said"),
    [
        ("002-table-4", {"verdict": "reproduced"}, "not every figure and claim is met"),
        (
            "002-table-3",
            {"verdict": "not reproduced"},
            "which of its figures is missed",
        ),
        ("000-figure-3.7", {"command": ""}, "which command runs it"),
        ("000-figure-3.7", {"why": ""}, "what does it take"),
        ("000-figure-3.9", {"why": ""}, "which part"),
        ("000-theorem-1", {"test": ""}, "nothing shows that it is reproduced"),
        ("001-figure-5.3", {"why": ""}, "why is it not possible"),
        ("P1-table-1", {"alike": "P1-table-1"}, "there is no P1-table-1"),
        ("002-table-4", {"verdict": "nearly"}, "no verdict is 'nearly'"),
    ],
)
def test_a_verdict_that_does_not_follow_is_named(
    papers: Mapping[str, Any],
    items: Mapping[str, Any],
    item: str,
    changed: dict[str, str],
    said: str,
) -> None:
    wrong = {**items, item: replace(items[item], **changed)}
    (error,) = papers["verdict_errors"](wrong)
    assert error.startswith(f"{item}: ")
    assert said in error


def test_a_figure_meets_its_bound_by_the_rows_of_its_file(
    papers: Mapping[str, Any],
) -> None:
    given = {
        "of": "",
        "paper": "76330",
        "csv": "sign_ds/ours.csv",
        "where": "model == 'mlp'",
        "ours": "{dims:max}",
    }
    met = {
        bound: papers["Figure"](**given, holds=bound).met()
        for bound in ("within 0", "above 76329", "above 76330", "below 76330")
    }
    assert met == {
        "within 0": True,
        "above 76329": True,
        "above 76330": False,
        "below 76330": False,
    }
    assert papers["Figure"](**given, holds="").seeds() == 3


def test_no_item_of_a_text_is_left_out(items: Mapping[str, Any]) -> None:
    """Numbers of one kind in one text and chapter follow each other."""
    numbers: dict[tuple[str, str, str], list[int]] = {}
    for item in items:
        text, kind, number = item.split("-")
        *chapter, last = re.findall(r"[a-e]|\d+", number)
        if kind not in ("lemma", "theorem", "corollary", "algorithm"):
            numbers.setdefault((text, kind, ".".join(chapter)), []).append(int(last))
        else:
            numbers.setdefault((text, kind, ""), []).append(int(last))
    for key, found in numbers.items():
        if key == ("003", "algorithm", ""):
            continue  # A1, B1, B2
        assert all(b - a == 1 for a, b in pairwise(sorted(found))), key
        assert min(found) == 1, key
    assert len(items) > 230


def test_every_test_that_a_row_names_is_there(items: Mapping[str, Any]) -> None:
    named = [item.test for item in items.values() if item.test]
    assert len(named) > 20
    for test in named:
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(), test


def test_one_item_is_printed_and_drawn(
    papers: Mapping[str, Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    papers["show"]("002-table-5", tmp_path)
    assert "| HAR, VertiGAN, ε = 8 | 0.5324 |" in capsys.readouterr().out
    drawn = ElementTree.parse(tmp_path / "002-table-5.svg")
    texts = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"har", "w8a-124", "VertiGAN", "bootstrap"} <= texts
    papers["show"]("000-table-6.6", tmp_path)
    assert "Printed again: 002-table-5" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"No item is 'table-5'\. There are: 000-fig"):
        papers["show"]("table-5", tmp_path)


def test_every_picture_is_drawn_from_rows_that_are_there(
    papers: Mapping[str, Any], items: Mapping[str, Any], tmp_path: Path
) -> None:
    pictures = papers["pictures"]()
    assert set(pictures) <= set(items)
    for name, declared in pictures.items():
        path = papers["draw"](declared, items[name], tmp_path)
        assert "<circle" in path.read_text(), name
