"""Write the tables of the READMEs from the CSV files beside them.

    make tables [NAME=joint]                               # rewrites what stands between the marks
    python benchmarks/common/readme.py joint cohort        # the same for some folders; `.` is benchmarks/README.md
    python benchmarks/common/readme.py --check             # only says what differs

A table stands between two marks, each on a line of its own: `<!-- table: NAME -->` and `<!-- end -->`. A figure in
running text stands between `<!-- figure: NAME -->` and `<!-- end -->`. `show.py` of the folder has a dict TABLES: the
names, and functions without arguments that give the text; where sentences have many figures, so has `findings.py`.
`overview.py` has those of benchmarks/README.md.
"""

import argparse
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

sys.path.append(str(Path(__file__).parents[1]))

from common.options import command

BENCHMARKS = Path(__file__).parents[1]
Texts = Mapping[str, Callable[[], str]]
_START = re.compile(r"<!-- (?:table|figure): ")
_MARKED = re.compile(
    r"<!-- (?P<kind>table|figure): (?P<name>[^<>]+?) -->(?P<old>(?:(?!<!-- ).)*?)<!-- end -->", re.DOTALL
)


def readmes() -> Iterator[tuple[str, Path, list[Path]]]:
    """Each README with its name and the scripts that fill it."""
    yield ".", BENCHMARKS / "README.md", [BENCHMARKS / "common" / "overview.py"]
    for path in sorted(BENCHMARKS.glob("*/README.md")):
        findings = path.with_name("findings.py")
        yield path.parent.name, path, [path.with_name("show.py"), *([findings] if findings.exists() else [])]


def texts(scripts: Iterable[Path]) -> Texts:
    """The names and functions of all these scripts."""
    return {name: text for script in scripts for name, text in _loaded(script).TABLES.items()}


def _loaded(script: Path) -> ModuleType:
    """A script under a name of its own: all folders have a `show.py`."""
    spec = importlib.util.spec_from_file_location(f"{script.parent.name}_{script.stem}", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def filled(readme: str, tables: Texts, where: str = "README.md") -> str:
    """The same text with what the tables say now between its marks."""
    unused = set(tables)

    def fill(mark: re.Match[str]) -> str:
        kind, name = mark["kind"], mark["name"]
        if name not in tables:
            raise SystemExit(f"{where}: no {kind} has the name {name!r}. There are: {', '.join(tables)}.")
        unused.discard(name)
        text = tables[name]()
        if kind == "table":
            text = f"\n{text}\n"
        return f"<!-- {kind}: {name} -->{text}<!-- end -->"

    marks = len(_START.findall(readme))
    made, found = _MARKED.subn(fill, readme)
    if found != marks:
        raise SystemExit(f"{where}: {marks} marks are opened, and {found} are closed by <!-- end -->.")
    if unused:
        raise SystemExit(f"{where}: nothing shows {', '.join(sorted(unused))}.")
    return made


def parser() -> argparse.ArgumentParser:
    parser = command(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="folders of benchmarks, or . (all)")
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 where one differs")
    return parser


def main() -> None:
    args = parser().parse_args()
    every = {name: (path, scripts) for name, path, scripts in readmes()}
    if unknown := sorted(set(args.names) - set(every)):
        sys.exit(f"There is no README of {', '.join(unknown)}. There are: {', '.join(every)}.")
    differ = []
    for name in args.names or every:
        path, scripts = every[name]
        old = path.read_text()
        if (new := filled(old, texts(scripts), str(path))) != old:
            differ.append(str(path))
            if not args.check:
                path.write_text(new)
    print("\n".join(differ) or "Every table says what its CSV file says.")
    if args.check and differ:
        sys.exit("These differ from their CSV files: run `make tables`.")


if __name__ == "__main__":
    main()
