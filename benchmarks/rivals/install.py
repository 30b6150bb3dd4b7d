"""The environments that rivals need: two virtual environments of pinned packages, and
checkouts of public sources.

    python benchmarks/rivals/install.py [--check]

They are made in `build/rivals`, or where RIVALS says, and never committed. `modern`
(Python 3.12) has mbi and what dpsynth, private-pgm and private evolution import; `dpmm`
(Python 3.11) has dpmm, and runs FLAIM. Four rivals are on no package index: their
public sources are cloned into the folder `sources` there, at the commit that was
measured. What is there already is left as it is. Where a copy of GitHub is to be used,
git's `url.<copy>.insteadOf` names it. Without a checkout its methods are left out of a
run, which says so.
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
ENVIRONMENTS = {
    "dpsynth": "modern",
    "private_pgm": "modern",
    "tab_pe": "modern",
    "dpmm": "dpmm",
    "flaim": "dpmm",
}
GITHUB = "https://github.com/"
SOURCES = {  # of an adapter: the repository and the commit that was measured
    "dpsynth": ("google/dpsynth", "cf8075f319b96c2e009e4ea6bb55378faccbbc80"),
    "private_pgm": (
        "ryan112358/private-pgm",
        "4d2b3c566b148da3ef800ce76e6189c548f2da22",
    ),
    "tab_pe": ("microsoft/DPSDA", "9078c67995499e6769113780200bbf1d788d3d60"),
    "flaim": ("Samuel-Maddock/flaim", "3e698da752b4af928a040f645f7e08fa306db4cd"),
}


def missing(adapter: str) -> str:
    """Why an adapter cannot run here, or nothing."""
    environment = HOME / ENVIRONMENTS[adapter]
    if not (environment / "bin" / "python").exists():
        return (
            f"there is no environment {environment}: python "
            "benchmarks/rivals/install.py makes it."
        )
    if adapter in SOURCES and not checkout(adapter).is_dir():
        return (
            f"there is no checkout {checkout(adapter)}: python "
            "benchmarks/rivals/install.py makes it."
        )
    return ""


def checkout(adapter: str) -> Path:
    """The folder of an adapter's sources."""
    return HOME / "sources" / SOURCES[adapter][0].partition("/")[2]


def cloned(adapter: str) -> None:
    """A checkout of an adapter's sources at their commit, whole or not at all."""
    (repository, commit), folder = SOURCES[adapter], checkout(adapter)
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    subprocess.run(
        ["git", "clone", "-q", "--no-checkout", f"{GITHUB}{repository}", part],
        check=True,
    )
    subprocess.run(
        [
            "git",
            "-C",
            part,
            "-c",
            "advice.detachedHead=false",
            "checkout",
            "-q",
            commit,
        ],
        check=True,
    )
    part.rename(folder)


def made(name: str, python: str) -> None:
    """A virtual environment with the packages of `env/<name>.txt`."""
    found = shutil.which(python)
    if (
        found is None
        or subprocess.run(
            [found, "--version"], capture_output=True, check=False
        ).returncode
    ):
        sys.exit(
            f"{python} is needed for {name}, and there is none on the path that starts."
        )
    folder = HOME / name
    subprocess.run([found, "-m", "venv", "--clear", folder], check=True)
    subprocess.run(
        [folder / "bin" / "pip", "install", "-q", "-r", HERE / "env" / f"{name}.txt"],
        check=True,
    )


def parser() -> argparse.ArgumentParser:
    parser = command(__doc__)
    parser.add_argument("--check", action="store_true", help="only say what can run")
    return parser


def main() -> None:
    args = parser().parse_args()
    for name, python in PYTHONS.items():
        if not args.check and not (HOME / name / "bin" / "python").exists():
            made(name, python)
    for adapter in SOURCES:
        if not args.check and not checkout(adapter).is_dir():
            cloned(adapter)
    for adapter in ENVIRONMENTS:
        print(f"{adapter}: {missing(adapter) or 'ready'}")


if __name__ == "__main__":
    main()
