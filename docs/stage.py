"""Lay out the pages of the site in build/docs: these, the README as the first page, and
the benchmarks' READMEs and notes, whose tables are made from the CSV files beside them.

Links between them are rewritten, so that a link is right both in the checkout and on
the site; a link to anything else in the checkout becomes the name of that file.
"""

import re
import shutil
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "docs"
sys.path.append(str(ROOT / "benchmarks"))

from common.readme import folders  # noqa: E402  found by the line above

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def pages() -> dict[Path, str]:
    """Every page: where it is, and where it goes."""
    found = {ROOT / "README.md": "index.md"}
    found |= {path: path.name for path in sorted((ROOT / "docs").glob("*.md"))}
    found |= {
        path: f"tutorials/{path.name}"
        for path in sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    }
    for name, folder in folders().items():
        if name != ".":
            found[folder.readme] = f"benchmarks/{name}.md"
            if folder.notes:
                found[folder.notes] = f"benchmarks/{name}_notes.md"
    found |= {
        ROOT / "benchmarks" / "README.md": "benchmarks/index.md",
        ROOT / "examples" / "phone.md": "upload.md",
    }
    return found | {
        ROOT / "CHANGELOG.md": "changelog.md",
        ROOT / "SECURITY.md": "security.md",
    }


def main() -> None:
    where = pages()
    tables = {
        path: text
        for folder in folders().values()
        for path, text in folder.on_site().items()
    }
    shutil.rmtree(OUT, ignore_errors=True)
    for source, goal in where.items():
        path = OUT / goal
        path.parent.mkdir(parents=True, exist_ok=True)
        link = partial(_link, source=source, goal=goal, where=where)
        text = tables[source] if source in tables else source.read_text()
        path.write_text(LINK.sub(link, text))


def _link(link: re.Match[str], source: Path, goal: str, where: dict[Path, str]) -> str:
    mark = link[1]
    text = link[2]
    target = link[3]
    anchor = link[4] or ""
    if not target or "://" in target or target.startswith("mailto:"):
        return link[0]
    path = (source.parent / target).resolve()
    path = path / "README.md" if path.is_dir() else path
    up = "../" * goal.count("/")
    if path in where:
        return f"{mark}[{text}]({up}{where[path]}{anchor})"
    if mark and path.is_file():
        name = f"pictures/{path.parent.name}-{path.name}"
        (OUT / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, OUT / name)
        return f"![{text}]({up}{name})"
    return f"{text} (`{path.relative_to(ROOT)}`)"


if __name__ == "__main__":
    main()
