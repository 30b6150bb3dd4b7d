"""Constructors do not talk: who builds an object has asked nobody anything, and nobody
has paid.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import understudy

ROOT = Path(inspect.getfile(understudy)).parent


def asked_when_built(program: str) -> Iterator[str]:
    """Classes whose `__init__` asks parties, by itself or through methods of its own
    class.
    """
    for cls in (
        node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ClassDef)
    ):
        methods = {m.name: m for m in cls.body if isinstance(m, ast.FunctionDef)}
        seen: set[str] = set()
        left = ["__init__", "__post_init__"]
        while left:
            name = left.pop()
            if name in seen or name not in methods:
                continue
            seen.add(name)
            called = [
                n.func for n in ast.walk(methods[name]) if isinstance(n, ast.Call)
            ]
            for func in called:
                if isinstance(func, ast.Attribute) and func.attr == "ask":
                    yield f"{cls.name}.{name}"
                elif isinstance(func, ast.Attribute) and isinstance(
                    func.value, ast.Name
                ):
                    left += [func.attr] if func.value.id == "self" else []


def test_an_ask_is_found_also_through_a_method() -> None:
    program = (
        "class A:\n def __init__(self, parties):\n  self.begin(parties)\n def "
        "begin(self, p):\n  p.ask(1)\n"
    )
    assert list(asked_when_built(program)) == ["A.begin"]
    assert not list(
        asked_when_built(
            program.replace("self.begin(parties)", "self.parties = parties")
        )
    )


def test_no_constructor_asks_a_party() -> None:
    for file in ROOT.rglob("*.py"):
        text = file.read_text()
        assert not re.search(r"\bask\b", text) or not list(asked_when_built(text)), file
