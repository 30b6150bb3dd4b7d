"""What importing one module drags in: a protocol does not bring all networks, readers
and services with it.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src"
PROTOCOLS = "understudy.protocols"
# Ceilings: they may be lowered, not raised. A protocol is to bring 90 files at most:
# its stages, not its fit, its networks, and how rows are read, which are imported where
# they are used.
SMALL = (
    "aggregators.protocol",
    "papers.verti_gan.dplt",
    "papers.vd_gan.pate",
    "papers.verti_gan.protocol",
    "gram.protocol",
    "moments.protocol",
    "one_report.protocol",
    "papers.sign_ds.protocol",
    "papers.sgde.protocol",
    "tied.protocol",
    "visits.protocol",
)
MOST = {
    f"{PROTOCOLS}.core": 30,
    f"{PROTOCOLS}.protocol": 30,
    **dict.fromkeys((f"{PROTOCOLS}.{name}" for name in SMALL), 90),
    "understudy.privacy.accounts.accounting": 12,
}


def file_of(module: str) -> Path | None:
    place = SRC.joinpath(*module.split("."))
    return next(
        (
            file
            for file in (place.with_suffix(".py"), place / "__init__.py")
            if file.exists()
        ),
        None,
    )


@cache
def imports(module: str) -> frozenset[str]:
    """Modules of ours that are imported when this one is: not inside functions, and not
    for type checkers.
    """
    file = file_of(module)
    assert file is not None, module
    named: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named |= {
                node.module,
                *(f"{node.module}.{alias.name}" for alias in node.names),
            }
    steps = {
        ".".join(one.split(".")[:end])
        for one in named
        for end in range(1, one.count(".") + 2)
    }
    return frozenset(
        step for step in steps if step.startswith("understudy") and file_of(step)
    )


def closure(module: str) -> set[str]:
    seen: set[str] = set()
    left = [module]
    while left:
        here = left.pop()
        if here not in seen:
            seen.add(here)
            left += imports(here)
    return seen


@pytest.mark.long
@pytest.mark.parametrize("module", MOST)
def test_a_module_brings_no_more_files_than_it_says(module: str) -> None:
    assert len(found := closure(module)) <= MOST[module], sorted(found)


def test_no_protocol_brings_the_generator_but_what_one_is_made_of() -> None:
    for file in (SRC / "understudy" / "protocols").rglob("*.py"):
        module = ".".join(file.relative_to(SRC).with_suffix("").parts).removesuffix(
            ".__init__"
        )
        assert "understudy.generators.generator" not in imports(module), module


def test_a_generator_knows_no_network_by_name() -> None:
    for name in ("generator", "generator_file", "parts", "sampling"):
        known = {
            one
            for one in imports(f"understudy.generators.{name}")
            if one.startswith("understudy.models.")
        }
        assert known <= {"understudy.models.plan"}, known
