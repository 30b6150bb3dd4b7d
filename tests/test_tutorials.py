"""The tutorials run: files are written, programs and commands carried out, in their
order, in an empty folder.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from test_cli import Run
from test_readme import LINK, ROOT, carried_out

pytestmark = pytest.mark.usefixtures("short_fits", "short_training", "light_masks")
BLOCK = re.compile(r"^```(python|console|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
MADE = {
    "images": ["runs/digits/report-public.html"],
    "one_table": [
        "runs/people/report.html",
        "runs/people/report-public.html",
        "predicted.csv",
        "book.csv",
    ],
    "phones": ["alone.csv", "shares.csv"],
    "silos": ["runs/north-south/report.html"],
    "two_hospitals": ["runs/hospital-registry/report-public.html", "joint.csv"],
}


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_leads_where_it_says(
    page: Path,
    understudy: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for kind, text in BLOCK.findall(page.read_text()):
        if kind == "python":
            exec(compile(text, page.name, "exec"), names)  # noqa: S102
        elif kind == "toml":
            file, body = text.split("\n", 1)
            Path(file.removeprefix("# ")).write_text(body)
        else:
            for line in text.splitlines():
                assert line.startswith("$ "), line
                carried_out(line.removeprefix("$ "), understudy)
    for made in MADE[page.stem]:
        assert (tmp_path / made).exists(), made


def test_every_tutorial_is_run_and_its_links_lead_to_files() -> None:
    assert {page.stem for page in PAGES} == MADE.keys()
    for page in PAGES:
        for link in LINK.findall(page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
