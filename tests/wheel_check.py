"""The wheel as users get it: built from a copy of the sources, installed outside of the
checkout, and used there.

    make wheel-check              # half a minute: the demo, from the wheel
    python tests/wheel_check.py --visits

The wheel goes into an environment of its own, which sees the packages of this one but
not its `understudy`.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# no PYTHONPATH that leads back into the checkout
ALONE = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}


def build(folder: Path) -> Path:
    """A wheel from a copy of what a build reads, so that nothing that an earlier build
    left gets into it.
    """
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "src",
        source / "src",
        ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
    )
    backend = (
        "import sys; from setuptools.build_meta import build_wheel; "
        "build_wheel(sys.argv[1])"
    )
    # as pip does it, but for what pip says and checks
    command = [sys.executable, "-c", backend, str(folder)]
    subprocess.run(command, check=True, cwd=source, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """The `understudy` command of a new environment that holds this wheel."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True
    )
    python = folder / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(python),
    ]
    subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True
    )
    (own,) = folder.glob("lib/python*/site-packages")
    # Named in a .pth file it comes last, and .pth files in it, as of an editable
    # install, are not read.
    (own / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = [str(python), "-c", "import understudy; print(understudy.__file__)"]
    found = subprocess.run(
        where, check=True, cwd=folder, env=ALONE, capture_output=True, text=True
    ).stdout
    if not Path(found.strip()).is_relative_to(own):
        sys.exit(f"Not the wheel's understudy is found there, but {found.strip()}.")
    return folder / "bin" / "understudy"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = install(build(folder), folder / "environment")
        out = folder / "demo"
        subprocess.run(
            [command, "demo", "--out", out, *sys.argv[1:]],
            check=True,
            cwd=folder,
            env=ALONE,
        )
        pages = sorted(path.relative_to(folder) for path in out.rglob("*.html"))
        if not pages:
            sys.exit("The demo wrote no report.")
    sys.stdout.write(
        "\nThe wheel works without the checkout: the demo wrote "
        f"{', '.join(map(str, pages))}.\n"
    )


if __name__ == "__main__":
    main()
