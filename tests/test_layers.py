"""Imports point down only, and heavy outside libraries stay in the one place that needs
them.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "understudy"

# From the ground up. Members of one layer may import themselves and anything below, not
# each other.
LAYERS = [
    {"ground"},
    {"data"},
    {"models", "privacy"},
    {"answers"},
    {"generators"},
    {"protocols"},
    {"evaluate"},
    {"report"},
    {"evidence"},
    {"services/web"},
    {"services/exchange"},
    {"services/collect"},
    {"runtime"},
    {"runs"},
    {"api"},
    {"network"},
    {"services/console"},
    {"__init__"},
    {"cli", "__main__"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
ONLY_IN = {
    "typer": {"cli"},
    "rich": {"cli"},
    "plotly": {"report"},
    "jinja2": {"report", "services"},
    "grpc": {"runtime/grpc"},
    "flwr": {"network/flower"},
    "fastapi": {"services"},
    "starlette": {"services"},
    "sqlalchemy": {"services/exchange"},
    "httpx": {"services/exchange"},
    "uvicorn": {"services"},
    "mlcroissant": {"evidence"},
    "rdflib": {"evidence"},
    "securesystemslib": {"evidence"},
    "statsmodels": {"data/samples"},
    "PIL": {"data/array_folder"},
    "sdmetrics": {"evaluate/utility/second_opinion"},
}
FILES = sorted(ROOT.rglob("*.py"))
IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*"
    r"(?:import[ \t]+(?P<names>[^\n#;]+)|from\s+(?P<module>[\w.]+)\s+import\s+(?P<taken>\([^)]*\)|[^\n#;]+))",
    re.MULTILINE,
)


@cache
def imported() -> list[tuple[str, str]]:
    """Every file (`data/schema`) with every dotted name that it imports."""
    places = {
        str(file.relative_to(ROOT).with_suffix("")): file.read_text() for file in FILES
    }
    return [(place, name) for place, text in places.items() for name in imports(text)]


def imports(text: str) -> Iterator[str]:
    """Wherever the statement stands; one inside a string counts, too."""
    for found in IMPORT.finditer(text):
        if found["names"]:
            yield from _names(found["names"])
            continue
        assert not found["module"].startswith("."), (
            f"a relative import of {found['module']}"
        )
        if found["module"] == "understudy":
            yield from (f"understudy.{name}" for name in _names(found["taken"]))
        else:
            yield found["module"]


def _names(text: str) -> list[str]:
    """`a.b as c, d` → `a.b`, `d`; over several lines with comments, too."""
    plain = re.sub(r"#[^\n]*", "", text).strip("()")
    return [part.split()[0] for part in plain.split(",") if part.strip()]


def test_imports_are_found_wherever_and_however_they_are_written() -> None:
    program = """
import a, b.c as d
from e.f import (
    g,  # h, i
    j,
)
def k():
    if l: import m
    n = 1; from understudy import (o as p,  # q
        r)
"""
    assert list(imports(program)) == [
        "a",
        "b.c",
        "e.f",
        "m",
        "understudy.o",
        "understudy.r",
    ]


def test_every_folder_says_what_lives_in_it() -> None:
    for file in FILES:
        if file.name == "__init__.py":
            assert ast.get_docstring(ast.parse(file.read_text())), (
                f"{file.parent} is a room without a sign"
            )


def layer(place: str) -> str:
    """`services/web/limits` → `services/web`; `data/schema` → `data`: a service is a
    part of its own.
    """
    parts = place.split("/")
    return "/".join(parts[:2]) if parts[0] == "services" else parts[0]


def test_every_part_has_a_layer() -> None:
    parts = {layer(str(file.relative_to(ROOT).with_suffix(""))) for file in FILES}
    assert parts - {"services/__init__"} <= HEIGHT.keys()


def test_imports_point_down_only() -> None:
    for place, name in imported():
        if not name.startswith("understudy."):
            continue
        own = layer(place)
        other = layer("/".join(name.split(".")[1:]))
        if other == own or (own == "__main__" and other == "cli"):
            continue
        assert HEIGHT[other] < HEIGHT[own], (
            f"{place} imports {name}: that arrow points up"
        )


def test_no_module_leads_back_to_itself_not_even_inside_a_function() -> None:
    modules = {
        ".".join(file.relative_to(ROOT.parent).with_suffix("").parts): file
        for file in FILES
    }
    modules = {name.removesuffix(".__init__"): file for name, file in modules.items()}
    arrows = {name: _imported_by(file, modules) for name, file in modules.items()}
    # They name what is below them, when it is asked for.
    del arrows["understudy"], arrows["understudy.evaluate"]
    TopologicalSorter(arrows).prepare()


def test_no_benchmark_leads_back_to_itself() -> None:
    """A script imports those of its own folder by their bare names."""
    benchmarks = ROOT.parents[1] / "benchmarks"
    for folder in (path for path in benchmarks.iterdir() if path.is_dir()):
        modules = {
            prefix + file.stem: file
            for prefix, place in (("", folder), ("common.", benchmarks / "common"))
            for file in place.glob("*.py")
        }
        arrows = {name: _imported_by(file, modules) for name, file in modules.items()}
        TopologicalSorter(arrows).prepare()


def _imported_by(file: Path, modules: Mapping[str, Path]) -> set[str]:
    """Which of these modules a file imports."""
    imported = set()
    for found in IMPORT.finditer(file.read_text()):
        if found["names"]:
            imported |= modules.keys() & set(_names(found["names"]))
            continue
        module = found["module"]
        taken = {f"{module}.{one}" for one in _names(found["taken"])}
        imported |= modules.keys() & taken or modules.keys() & {module}
    return imported


def test_outside_libraries_stay_in_their_one_place() -> None:
    for place, name in imported():
        allowed = ONLY_IN.get(name.split(".")[0], {place})
        assert any(place == spot or place.startswith(f"{spot}/") for spot in allowed), (
            f"{place} imports {name}"
        )


def test_nothing_is_unpickled() -> None:
    for place, name in imported():
        assert name.split(".")[0] not in {
            "pickle",
            "dill",
            "cloudpickle",
            "marshal",
            "shelve",
        }, place
    for file in FILES:
        assert "torch.load" not in file.read_text(), file


KINDS_OF_ROWS = {
    "Table",
    "Images",
    "Series",
    "Visits",
    "ArrayTable",
    "Schema",
    "ImageSchema",
    "SeriesSchema",
    "VisitSchema",
    "ArraySchema",
    "AnySchema",
    "PublicSchema",
}


def test_nobody_but_the_kinds_of_rows_asks_for_a_class_of_rows() -> None:
    named = re.compile(rf"\bisinstance\b(?s:.)*\b({'|'.join(KINDS_OF_ROWS)})\b")
    for file in FILES:
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if named.search(text) else ():
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") == "isinstance"
            ):
                asked = {
                    name.id
                    for name in ast.walk(node.args[1])
                    if isinstance(name, ast.Name)
                }
                assert not asked & KINDS_OF_ROWS, (
                    f"{file}, line {node.lineno}: ask `data.kinds` which kind it is"
                )


def test_every_file_that_a_text_names_is_there() -> None:
    """`models/nets/wae.py`, `privacy/local`: in docstrings and comments."""
    named = re.compile(r"`((?:[a-z_]+/)+\w+)(?:\.py)?(?:[.:][\w.]+)?`")
    for file in FILES:
        for place in named.findall(file.read_text()):
            if (ROOT / place.split("/")[0]).is_dir():
                assert (ROOT / place).exists() or (ROOT / f"{place}.py").exists(), (
                    f"{file}: {place}"
                )
