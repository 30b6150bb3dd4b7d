"""The environments that rivals need: two virtual environments of pinned packages, and the folder of public sources.

    python benchmarks/rivals/install.py [--check]

They are made in `build/rivals`, or where RIVALS says, and never committed. `modern` (Python 3.12) has mbi and what
dpsynth, private-pgm and private evolution import; `dpmm` (Python 3.11) has dpmm. Three rivals are on no package index.
Their public sources are taken as they are: a checkout of each lies in the folder `sources` there, at the commit that
was measured:

    sources/dpsynth       github.com/google/dpsynth           cf8075f319b96c2e009e4ea6bb55378faccbbc80
    sources/private-pgm   github.com/ryan112358/private-pgm   4d2b3c566b148da3ef800ce76e6189c548f2da22
    sources/DPSDA         github.com/microsoft/DPSDA          9078c67995499e6769113780200bbf1d788d3d60

Without a checkout its methods are left out of a run, which says so.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from common.options import command

HERE = Path(__file__).parent
HOME = Path(os.environ.get("RIVALS") or HERE.parents[1] / "build" / "rivals").resolve()
PYTHONS = {"modern": "python3.12", "dpmm": "python3.11"}
ENVIRONMENTS = {"dpsynth": "modern", "private_pgm": "modern", "tab_pe": "modern", "dpmm": "dpmm"}
SOURCES = {"dpsynth": "dpsynth", "private_pgm": "private-pgm", "tab_pe": "DPSDA"}


def missing(adapter: str) -> str:
    """Why an adapter cannot run here, or nothing."""
    environment, source = HOME / ENVIRONMENTS[adapter], SOURCES.get(adapter)
    if not (environment / "bin" / "python").exists():
        return f"there is no environment {environment}: python benchmarks/rivals/install.py makes it."
    if source and not (HOME / "sources" / source).is_dir():
        return f"there is no checkout {HOME / 'sources' / source}: see benchmarks/rivals/install.py."
    return ""


def made(name: str, python: str) -> None:
    """A virtual environment with the packages of `env/<name>.txt`."""
    found = shutil.which(python)
    if found is None:
        sys.exit(f"{python} is needed for {name}, and is not on the path.")
    folder = HOME / name
    subprocess.run([found, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "-q", "-r", HERE / "env" / f"{name}.txt"], check=True)


def parser() -> argparse.ArgumentParser:
    parser = command(__doc__)
    parser.add_argument("--check", action="store_true", help="only say what can run")
    return parser


def main() -> None:
    args = parser().parse_args()
    for name, python in PYTHONS.items():
        if not args.check and not (HOME / name / "bin" / "python").exists():
            made(name, python)
    for adapter in ENVIRONMENTS:
        print(f"{adapter}: {missing(adapter) or 'ready'}")


if __name__ == "__main__":
    main()
