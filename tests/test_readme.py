"""README runs: its programs and its commands, in its order, on tables as it has them;
and links lead somewhere.
"""

import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from test_cli import Run
from understudy.data.samples import overlap_people, toy

pytestmark = pytest.mark.usefixtures("short_fits", "short_training", "light_masks")
ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
MARK = re.compile(r"<!-- .*? -->")  # which no reader sees
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TABLE_ROW = re.compile(r"^\|.*$", re.MULTILINE)
IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
PROSE = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """people.csv of one holder, clinic.csv and insurer.csv of two."""
    monkeypatch.chdir(tmp_path)
    frame, _ = toy(rows=3_000, seed=1)  # so that nobody has to be warned of few people
    frame = frame.drop(columns=["joined", "treated"]).dropna().reset_index(drop=True)
    frame.to_csv("people.csv", index=False)
    held = overlap_people(frame, "id", {"clinic": 0.9, "insurer": 0.9}, seed=2)
    frame.loc[held["clinic"], ["id", "age", "smoker", "colour"]].to_csv(
        "clinic.csv", index=False
    )
    frame.loc[held["insurer"], ["id", "income", "grade"]].to_csv(
        "insurer.csv", index=False
    )
    return tmp_path


def carried_out(line: str, understudy: Run) -> None:
    """One line of a terminal: our command in this process, any other in a shell."""
    if not line.startswith("understudy "):
        subprocess.run(["bash", "-c", line], check=True)
        return
    quoted = re.findall(r'"([^"]*)"|(\S+)', line.split("   #")[0])
    code, _, err = understudy(*(one or other for one, other in quoted[1:]))
    assert code == 0, f"{line}\n{err}"


def prose(text: str) -> list[str]:
    """The sentences of a page: neither code nor tables, and of links their words."""
    bare = IMAGE.sub("\n\n", TABLE_ROW.sub("", FENCED.sub("\n\n", text)))
    bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", bare)
    paragraphs = re.split(r"\n\s*\n|\n(?=[#-])", bare)
    return [
        sentence
        for paragraph in paragraphs
        for sentence in re.split(r"(?<=[.?!])\s+", paragraph.strip())
        if sentence
    ]


def test_the_readme_says_what_it_is_and_shows_code_within_sixty_words() -> None:
    text = (ROOT / "README.md").read_text()
    before_code = text.partition("```")[0]
    assert len(before_code.split()) <= 60
    assert "differentially private synthetic data" in before_code
    assert "federated" in before_code


def test_no_sentence_of_the_readme_has_more_than_thirty_words() -> None:
    sentences = prose((ROOT / "README.md").read_text())
    assert len(sentences) > 30
    assert [one for one in sentences if len(one.split()) > 30] == []


def test_no_caption_of_the_readme_has_more_than_twenty_five_words() -> None:
    paragraphs = (ROOT / "README.md").read_text().split("\n\n")
    captions = [
        below for image, below in pairwise(paragraphs) if image.startswith("![")
    ]
    assert len(captions) == 2
    assert [one for one in captions if len(" ".join(prose(one)).split()) > 25] == []


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_prose_is_longer_than_120_characters(page: Path) -> None:
    text = FENCED.sub("", page.read_text())
    text = TABLE_ROW.sub("", IMAGE.sub("", text))
    indented = re.compile("^    .*$", re.MULTILINE)  # code
    lines = MARK.sub("", indented.sub("", text)).splitlines()
    assert [line for line in lines if len(line) > 120] == []


@pytest.mark.long
def test_every_program_and_every_command_of_the_readme_runs(
    understudy: Run, tables: Path
) -> None:
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    assert [kind for kind, _ in blocks] == ["python", "console", "console", "python"]
    said: list[str] = []
    for kind, text in blocks:
        if kind == "python":
            names: dict[str, Any] = {}
            exec(compile(text, "README.md", "exec"), names)  # noqa: S102
            said.append(str(names["result"].privacy))
            continue
        for line in text.splitlines():
            assert line.startswith("$ "), line
            carried_out(line.removeprefix("$ "), understudy)
    right = re.findall(r"right at most\s(\d+) of 100", (ROOT / "README.md").read_text())
    assert len(right) == 1
    assert f"right at most {right[0]} of 100 times" in said[0]
    assert len((tables / "synthetic.csv").read_text().splitlines()) == 1_001
    for made in (
        "report.html",
        "runs/people/report.html",
        "runs/clinic-insurer/report.html",
        "rows.csv",
    ):
        assert (tables / made).exists(), made


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_the_docs_leads_to_a_file(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if link.startswith("../benchmarks/"):
            continue  # a page may be written before its figures are
        assert (page.parent / link).exists(), f"{page.name}: {link}"
