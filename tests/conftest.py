"""What tests in several folders share."""

import gc
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from postgres import postgres

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

gc.disable()  # until all is imported: what comes in stays


def pytest_collection_finish() -> None:
    """No search for cycles looks at the libraries and at thousands of collected tests again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def load_bench() -> Callable[..., ModuleType]:
    """A script of benchmarks/<folder>/ as a module."""
    return _load


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL for the tests, with its password in it."""
    with postgres() as url:
        if url is None:
            pytest.skip("no PostgreSQL here: install it, or set UNDERSTUDY_TEST_POSTGRES")
        yield url


def _load(folder: str, script: str = "bench") -> ModuleType:
    """Under a name of its own: several folders have a bench.py, a speed.py, a tables.py."""
    here = BENCHMARKS / folder
    spec = importlib.util.spec_from_file_location(f"{folder}_{script}", here / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path, own = sys.path[:], {file.stem for file in here.glob("*.py")}
    others = {name: sys.modules.pop(name) for name in own & sys.modules.keys()}
    sys.path[:0] = [str(here), str(BENCHMARKS)]
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
        for name in own:
            sys.modules.pop(name, None)
        sys.modules.update(others)
    return module
