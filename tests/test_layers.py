"""Imports point down only, and heavy outside libraries stay in the one place that needs them."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "understudy"

# From the ground up. Members of one layer may import themselves and anything below, not each other.
LAYERS = [
    {"errors", "check", "bounded", "durable", "tensors_file", "pack", "padding"},
    {"data"},
    {"models", "privacy"},
    {"answers"},
    {"generator", "classifier"},
    {"protocols"},
    {"evaluate"},
    {"report"},
    {"exchange"},
    {"runtime"},
    {"runfile", "held"},
    {"registry"},
    {"federation"},
    {"run"},
    {"network"},
    {"demo"},
    {"__init__"},
    {"cli", "__main__"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
GROUND = {
    "errors": 0,
    "check": 1,
    "padding": 1,
    "bounded": 1,
    "durable": 2,
    "tensors_file": 1,
    "pack": 2,
}  # inside the lowest layer
ONLY_IN = {
    "typer": {"cli"},
    "rich": {"cli"},
    "plotly": {"report"},
    "jinja2": {"report", "exchange"},
    "grpc": {"runtime/grpc"},
    "flwr": {"runtime/flower"},
    "fastapi": {"exchange"},
    "starlette": {"exchange"},
    "sqlalchemy": {"exchange"},
    "httpx": {"exchange"},
    "uvicorn": {"exchange"},
    "statsmodels": {"data/samples"},
    "sdmetrics": {"evaluate/utility/second_opinion"},
}
FILES = sorted(ROOT.rglob("*.py"))


def part(file: Path) -> str:
    """`data`, `privacy`, `generator`: the unit that a layer is made of."""
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(file: Path) -> list[str]:
    """Dotted names that a file imports, wherever the statement stands."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            module = node.module or ""
            found += (
                [f"{module}.{alias.name}" for alias in node.names] if module == "understudy" else [module]
            )
    return found


def test_every_part_has_a_layer() -> None:
    assert {part(file) for file in FILES} <= HEIGHT.keys()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_point_down_only(file: Path) -> None:
    own = part(file)
    for name in imports(file):
        if not name.startswith("understudy."):
            continue
        other = name.split(".")[1]
        if other == own or (own == "__main__" and other == "cli"):
            continue
        if own in GROUND and other in GROUND:
            assert GROUND[other] < GROUND[own], f"{own} imports {other}"
            continue
        assert HEIGHT[other] < HEIGHT[own], f"{file.relative_to(ROOT)} imports {name}: that arrow points up"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_outside_libraries_stay_in_their_one_place(file: Path) -> None:
    place = str(file.relative_to(ROOT).with_suffix(""))
    for name in imports(file):
        allowed = ONLY_IN.get(name.split(".")[0])
        if allowed is not None:
            assert any(place == spot or place.startswith(f"{spot}/") for spot in allowed), (
                f"{place} imports {name}"
            )


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_unpickled(file: Path) -> None:
    assert not {"pickle", "dill", "cloudpickle", "marshal", "shelve"} & {
        name.split(".")[0] for name in imports(file)
    }
    assert "torch.load" not in file.read_text()
