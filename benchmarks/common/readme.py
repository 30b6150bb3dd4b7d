"""Write the tables of the READMEs from the CSV files beside them.

    make tables [NAME=joint]                               # rewrites what stands between the marks
    python benchmarks/common/readme.py joint cohort        # the same for some folders; `.` is benchmarks/README.md
    python benchmarks/common/readme.py --check             # only says what differs

A table stands between two marks, each on a line of its own: `<!-- table: NAME -->` and
`<!-- end -->`. A figure in running text stands between `<!-- figure: NAME -->` and
`<!-- end -->`. A sentence that claims an order stands between `<!-- claim: NAME -->`
and `<!-- end -->`; it stays as it is, and is refused where its CSV file says otherwise.
All are declared in the folder's `tables.toml` (`common/declared.py`); what cannot be declared is in `show.py`: a dict TABLES of names and functions.
`overview.py` has those of benchmarks/README.md.

A folder's `NOTES.md` has what is too long for its README. The checkout shows where its
tables go, and the documentation site has them (`docs/stage.py`).
"""

import argparse
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

sys.path.append(str(Path(__file__).parents[1]))

from common.declared import tables
from common.options import command

BENCHMARKS = Path(__file__).parents[1]
Texts = Mapping[str, Callable[[], str]]
ON_THE_SITE = "*The table is on the documentation site: `make docs`.*"
_START = re.compile(r"<!-- (?:table|figure|claim): ")
_MARKED = re.compile(
    r"<!-- (?P<kind>table|figure|claim): (?P<name>[^<>]+?) -->(?P<old>(?:(?!<!-- ).)*?)<!-- end -->",
    re.DOTALL,
)


@dataclass(frozen=True)
class Folder:
    """A folder's pages, and the scripts that declare their tables."""

    readme: Path
    notes: Path | None
    scripts: list[Path]

    @property
    def pages(self) -> list[Path]:
        return [self.readme, *([self.notes] if self.notes else [])]

    def in_checkout(self) -> dict[Path, str]:
        """Each page as it is committed."""
        tables = texts(self.scripts)
        readme = filled(self.readme.read_text(), tables, str(self.readme))
        if self.notes is None:
            return {self.readme: readme}
        notes = filled(
            self.notes.read_text(), tables, str(self.notes), with_tables=False
        )
        return {self.readme: readme, self.notes: notes}

    def on_site(self) -> dict[Path, str]:
        """Each page with all its tables."""
        tables = texts(self.scripts)
        return {
            page: filled(page.read_text(), tables, str(page)) for page in self.pages
        }

    def unused(self) -> list[str]:
        """The tables that no page shows."""
        return unused((page.read_text() for page in self.pages), texts(self.scripts))


def folders() -> dict[str, Folder]:
    """The folders of benchmarks by name; `.` is the overview of all."""
    overview = BENCHMARKS / "common" / "overview.py"
    every = {".": Folder(BENCHMARKS / "README.md", None, [overview])}
    for path in sorted(BENCHMARKS.glob("*/README.md")):
        folder = path.parent
        notes = folder / "NOTES.md"
        every[folder.name] = Folder(
            readme=path,
            notes=notes if notes.exists() else None,
            scripts=_there(folder, ("tables.toml", "show.py")),
        )
    return every


def _there(folder: Path, names: Iterable[str]) -> list[Path]:
    return [folder / name for name in names if (folder / name).exists()]


def texts(scripts: Iterable[Path]) -> Texts:
    """The names of all these declarations and scripts, and what gives their text."""
    made: dict[str, Callable[[], str]] = {}
    for script in scripts:
        made |= tables(script) if script.suffix == ".toml" else _loaded(script).TABLES
    return made


def _loaded(script: Path) -> ModuleType:
    """A script under a name of its own: several folders have a `show.py`."""
    spec = importlib.util.spec_from_file_location(
        f"{script.parent.name}_{script.stem}", script
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def filled(
    page: str,
    tables: Texts,
    where: str = "README.md",
    *,
    with_tables: bool = True,
) -> str:
    """The same text with what the tables say now between its marks."""

    def fill(mark: re.Match[str]) -> str:
        kind = mark["kind"]
        name = mark["name"]
        if name not in tables:
            raise SystemExit(
                f"{where}: no {kind} has the name {name!r}. There are: "
                f"{', '.join(tables)}."
            )
        if kind == "table":
            text = f"\n{tables[name]() if with_tables else ON_THE_SITE}\n"
        elif kind == "claim":
            tables[name]()
            text = mark["old"]
        else:
            text = tables[name]()
        return f"<!-- {kind}: {name} -->{text}<!-- end -->"

    marks = len(_START.findall(page))
    made, found = _MARKED.subn(fill, page)
    if found != marks:
        raise SystemExit(
            f"{where}: {marks} marks are opened, and {found} are closed by <!-- end "
            "-->."
        )
    return made


def unused(pages: Iterable[str], tables: Texts) -> list[str]:
    """The tables that no page shows."""
    shown = {mark["name"] for page in pages for mark in _MARKED.finditer(page)}
    return sorted(set(tables) - shown)


def parser() -> argparse.ArgumentParser:
    parser = command(__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="folders of benchmarks, or . (all)"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; end with 1 where one differs",
    )
    return parser


def main() -> None:
    args = parser().parse_args()
    every = folders()
    unknown = sorted(set(args.names) - set(every))
    if unknown:
        sys.exit(
            f"There is no README of {', '.join(unknown)}. There are: "
            f"{', '.join(every)}."
        )
    differ = []
    for name in args.names or every:
        folder = every[name]
        for path, text in folder.in_checkout().items():
            if text != path.read_text():
                differ.append(str(path))
                if not args.check:
                    path.write_text(text)
        not_shown = folder.unused()
        if not_shown:
            sys.exit(f"{name}: nothing shows {', '.join(not_shown)}.")
    print("\n".join(differ) or "Every table says what its CSV file says.")
    if args.check and differ:
        sys.exit("These differ from their CSV files: run `make tables`.")


if __name__ == "__main__":
    main()
