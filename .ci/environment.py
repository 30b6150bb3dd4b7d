"""The environment that Make works in: made on first use, in layers, and changed only
where Make here made it.

    python .ci/environment.py .venv tests        # afterwards .venv has what the tests
                                                 need, or it was said why not

A layer is some extras of pyproject.toml on top of the package itself; `pandas3` stands
alone, in an environment of its own, with another version of pandas. In an
environment, the file `.made-by-make` names the checkout that made it, and
`.installed-LAYER` says from what. Any other environment is used as it is if it has what
is needed, and otherwise refused: nothing is ever installed into it.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MARK = ".made-by-make"
LAYERS = {
    "demo": ("demo",),
    "tests": ("images", "network", "sdmetrics", "exchange", "evidence", "dev"),
    "docs": ("docs",),
    # everything that the tests need and pandas 3 does not contradict
    "pandas3": ("demo", "images", "network", "exchange", "evidence", "dev"),
}
WITH_THE_PACKAGE = ("demo", "pandas3")  # others are installed on top of the demo's
# where a layer has another version than constraints.txt
PINS = {"pandas3": {"pandas": "3.1.1"}}
_FOUND = """
import importlib.metadata, importlib.util, json
spec = importlib.util.find_spec("understudy")
distributions = importlib.metadata.distributions()
versions = {one.name.lower().replace("_", "-"): one.version for one in distributions}
print(json.dumps([spec and spec.origin, versions]))
"""


def requirements(layer: str) -> list[str]:
    """What pyproject.toml asks for in this layer alone, with the package's own
    dependencies where the package is part of it.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    own = project["dependencies"] if layer in WITH_THE_PACKAGE else []
    return [
        *own,
        *(f"{name}=={version}" for name, version in PINS.get(layer, {}).items()),
        *(
            one
            for extra in LAYERS[layer]
            for one in project["optional-dependencies"][extra]
        ),
    ]


def constraints(layer: str) -> str:
    """The exact versions of a layer."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for name, version in PINS.get(layer, {}).items():
        text = re.sub(rf"(?m)^{name}==.*$", f"{name}=={version}", text)
    return text


def below(layer: str) -> tuple[str, ...]:
    """The layers to install, in order."""
    return (layer,) if layer in WITH_THE_PACKAGE else ("demo", layer)


def stamp(layer: str) -> str:
    """What a layer is made from, in short."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    made_from = [
        requirements(layer),
        project["scripts"],
        constraints(layer),
    ]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:4])


def satisfies(requirement: str, versions: dict[str, str]) -> bool:
    """Whether what is asked for (a name and bounds, as in pyproject.toml) is among
    these.
    """
    found = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?(.*)", requirement)
    assert found is not None, requirement
    have = versions.get(found[1].lower().replace("_", "-"))
    if have is None:
        return False
    for bound in filter(None, found[2].split(",")):
        sign, wanted = re.match(r"\s*(>=|<|==)\s*(\S+)", bound).groups()  # type: ignore[union-attr]
        this = _release(have)
        other = _release(wanted)
        if not {">=": this >= other, "<": this < other, "==": this == other}[sign]:
            return False
    return True


def missing(python: Path, layer: str) -> list[str]:
    """What an environment lacks for this layer; nothing is changed by asking."""
    told = subprocess.run(
        [python, "-c", _FOUND], capture_output=True, text=True, check=True
    ).stdout
    origin, versions = json.loads(told)
    asked = [one for needed in below(layer) for one in requirements(needed)]
    lacks = [one for one in asked if not satisfies(one, versions)]
    here = origin is not None and Path(origin).resolve().is_relative_to(ROOT / "src")
    return lacks if here else [f"understudy itself, from {ROOT}", *lacks]


def install(venv: Path, layer: str) -> None:
    """This layer, by uv where it is there and can, otherwise by pip. The demo compiles
    the modules that it uses; for tests all are compiled here, on all processors, so
    that no worker has to.
    """
    versions = venv / f".constraints-{layer}"
    versions.write_text(constraints(layer), encoding="utf-8")
    what: list[Any] = ["--constraint", versions]
    what += (
        ["--editable", f"{ROOT}[{','.join(LAYERS[layer])}]"]
        if layer in WITH_THE_PACKAGE
        else requirements(layer)
    )
    python = venv / "bin" / "python"
    uv = shutil.which("uv")
    pip: list[Any] = [
        python,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-compile",
    ]
    ways = [[uv, "pip", "install", "--quiet", "--python", python]] * bool(uv) + [pip]
    if all(subprocess.run([*way, *what]).returncode for way in ways):
        sys.exit(
            f"{venv}: what {layer} needs could not be installed, see above. Make "
            "tries it again next time."
        )
    if layer in ("tests", "pandas3"):
        compiling = [
            python,
            "-m",
            "compileall",
            "-qq",
            "-j",
            "0",
            *venv.glob("lib/python*/site-packages"),
        ]
        # some templates among the packages are no programs, which it says by its code
        subprocess.run(compiling)


def ready(venv: Path, layer: str) -> None:
    """An environment with this layer and what it stands on; it is said before something
    is made or changed.
    """
    say = sys.stderr.write
    python = venv / "bin" / "python"
    mark = venv / MARK
    ours = mark.exists() and mark.read_text(encoding="utf-8").strip() == str(ROOT)
    if not ours and venv.exists() and (not venv.is_dir() or any(venv.iterdir())):
        if not python.exists():
            sys.exit(
                f"{venv} is there, and it is no Python environment. Nothing was "
                "changed."
            )
        lacks = missing(python, layer)
        if lacks:
            sys.exit(
                f"{venv} was not made by Make in this checkout, so nothing is "
                f"installed into it. For {layer} it lacks: "
                f"{', '.join(lacks)}.\nInstall that yourself, or leave VENV out, or "
                "name a place where nothing is yet."
            )
        say(
            f"{venv} was not made by Make in this checkout: it has what is needed, "
            "and is used as it is.\n"
        )
        return
    for needed in below(layer):
        installed = venv / f".installed-{needed}"
        if (
            ours
            and installed.exists()
            and installed.read_text(encoding="utf-8") == stamp(needed)
        ):
            continue
        if not ours:
            say(f"Making an environment in {venv}, with {sys.executable} …\n")
            venv.mkdir(parents=True, exist_ok=True)
            mark.write_text(f"{ROOT}\n", encoding="utf-8")
            ours = True
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        say(f"Installing what {needed} needs into {venv} …\n")
        install(venv, needed)
        installed.write_text(stamp(needed), encoding="utf-8")


def remove(venv: Path) -> None:
    """Gone, if Make made it."""
    if (venv / MARK).exists():
        shutil.rmtree(venv)
    elif venv.exists():
        sys.stderr.write(f"{venv} was not made by Make, and is left as it is.\n")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    wanted = sys.argv[2]
    if wanted == "remove":
        remove(place)
    else:
        ready(place, wanted)
