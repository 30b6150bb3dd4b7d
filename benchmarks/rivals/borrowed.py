"""Scripts of other benchmarks, each under a name of its own: several folders have a
bench.py or a tables.py.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).parents[1]


def script(folder: str, name: str) -> ModuleType:
    """benchmarks/<folder>/<name>.py, read once; what it imports from its own folder is
    taken from there.
    """
    known = f"{folder}_{name}"
    if known not in sys.modules:
        here = BENCHMARKS / folder
        spec = importlib.util.spec_from_file_location(known, here / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        path = sys.path[:]
        own = {file.stem for file in here.glob("*.py")}
        others = {stem: sys.modules.pop(stem) for stem in own & sys.modules.keys()}
        sys.path[:0] = [str(here), str(BENCHMARKS)]
        sys.modules[known] = module
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path[:] = path
            for stem in own:
                sys.modules.pop(stem, None)
            sys.modules.update(others)
    return sys.modules[known]
