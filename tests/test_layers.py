"""Imports point down only, and heavy outside libraries stay in the one place that needs them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "understudy"

# From the ground up. Members of one layer may import themselves and anything below, not each other.
LAYERS = [
    {"errors", "check", "bounded", "durable", "tensors_file", "pack", "padding", "html"},
    {"data"},
    {"models", "privacy"},
    {"answers"},
    {"classifier", "generator_file"},
    {"generator"},
    {"protocols"},
    {"evaluate"},
    {"report"},
    {"web"},
    {"exchange"},
    {"collect"},
    {"runtime"},
    {"runfile", "held"},
    {"registry"},
    {"federation", "planning", "settings"},
    {"run"},
    {"network", "one_table", "predicting"},
    {"demo", "console"},
    {"__init__"},
    {"cli", "__main__"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
GROUND = {
    "errors": 0,
    "check": 1,
    "padding": 1,
    "html": 0,
    "bounded": 1,
    "durable": 2,
    "tensors_file": 1,
    "pack": 2,
}  # inside the lowest layer
ONLY_IN = {
    "typer": {"cli"},
    "rich": {"cli"},
    "plotly": {"report"},
    "jinja2": {"report", "exchange", "console"},
    "grpc": {"runtime/grpc"},
    "flwr": {"runtime/flower"},
    "fastapi": {"exchange", "collect", "console"},
    "starlette": {"web", "exchange", "collect", "console"},
    "sqlalchemy": {"exchange"},
    "httpx": {"exchange"},
    "uvicorn": {"web", "exchange", "console"},
    "statsmodels": {"data/samples"},
    "sdmetrics": {"evaluate/utility/second_opinion"},
}
FILES = sorted(ROOT.rglob("*.py"))
PARTS = sorted({file.relative_to(ROOT).parts[0].removesuffix(".py") for file in FILES})
every_part = pytest.mark.parametrize("own", PARTS)


@cache
def parts() -> dict[str, dict[str, list[str]]]:
    """Of every part (`data`, `privacy`, `generator`) the files, each with the dotted names that it imports."""
    found: dict[str, dict[str, list[str]]] = {name: {} for name in PARTS}
    for file in FILES:
        place = file.relative_to(ROOT).with_suffix("")
        found[place.parts[0]][str(place)] = list(imports(ast.parse(file.read_bytes())))
    return found


def imports(tree: ast.Module) -> Iterator[str]:
    """Wherever the statement stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imported_from(node)


def _imported_from(node: ast.ImportFrom) -> list[str]:
    assert node.module, "a relative import"
    assert node.level == 0, f"a relative import of {node.module}"
    return (
        [f"understudy.{alias.name}" for alias in node.names] if node.module == "understudy" else [node.module]
    )


def test_every_part_has_a_layer() -> None:
    assert set(PARTS) <= HEIGHT.keys()


@every_part
def test_imports_point_down_only(own: str) -> None:
    for place, names in parts()[own].items():
        for name in names:
            if not name.startswith("understudy."):
                continue
            other = name.split(".")[1]
            if other == own or (own == "__main__" and other == "cli"):
                continue
            if own in GROUND and other in GROUND:
                assert GROUND[other] < GROUND[own], f"{own} imports {other}"
                continue
            assert HEIGHT[other] < HEIGHT[own], f"{place} imports {name}: that arrow points up"


@every_part
def test_outside_libraries_stay_in_their_one_place(own: str) -> None:
    for place, names in parts()[own].items():
        for name in names:
            allowed = ONLY_IN.get(name.split(".")[0], {place})
            assert any(place == spot or place.startswith(f"{spot}/") for spot in allowed), (
                f"{place} imports {name}"
            )


def test_nothing_is_unpickled() -> None:
    for files in parts().values():
        for place, names in files.items():
            loaded = {"pickle", "dill", "cloudpickle", "marshal", "shelve"} & {n.split(".")[0] for n in names}
            assert not loaded, f"{place} imports {loaded}"
    for file in FILES:
        assert "torch.load" not in file.read_text(), file
