"""Which runs a federation's server has served, and where they lie: for those who look after it, not for the runs."""

import json
from contextlib import suppress
from pathlib import Path

from understudy.ground.durable import replace_json


def note_served(federation: Path, run: str, out: Path) -> None:
    """Remember where this run lies. Edges: a federation's folder that cannot be written to → it is not remembered."""
    with suppress(OSError):  # a folder that only the operator may change is no reason not to serve
        replace_json(federation / "served" / f"{run}.json", {"run": run, "out": str(out)})


def served(federation: Path) -> list[tuple[str, Path]]:
    """Each run with its output folder, the newest first."""
    files = sorted((federation / "served").glob("*.json"), key=lambda file: -file.stat().st_mtime)
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return [(str(one["run"]), Path(one["out"])) for one in found]
