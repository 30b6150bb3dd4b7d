"""A real run of two holders, with ledgers in files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w
from typer.testing import CliRunner

import understudy as us
from understudy.cli import app
from understudy.evidence.folder import derived_files
from understudy.privacy.accounts.statement import PrivacyStatement

NAMES = ("clinic", "insurer")


def two_holders(home: Path) -> Path:
    """In this folder: tables, schemas, ledgers, and the run in `out`: one joint
    release.
    """
    return _run(home, "gram", {"steps": 20, "components": 8})


def two_critics(home: Path) -> Path:
    """The same by rounds in which prices compose, and an outsider sees less than an
    insider.
    """
    settings = {
        "rounds": 2,
        "critic_steps": 2,
        "batch": 30,
        "sampling": "shared",
        "common": [4],
        "critic_hidden": [4],
    }
    return _run(home, "verti-gan", settings | {"latent": 4})


def one_report_of_two(home: Path) -> Path:
    """Two holders of different people, each of whom reports under local noise."""
    return _run(home, "lopub", {"epsilon_total": 0.5}, apart=True)


def restated(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a statement as a hub could, with every figure that follows, in
    privacy.json, the card and all files that evidence has of them.
    """
    stated: dict[str, Any] = json.loads((folder / "privacy.json").read_text())
    change(stated)
    stated |= PrivacyStatement.from_dict(stated).to_dict()
    (folder / "privacy.json").write_text(json.dumps(stated))
    (card,) = folder.glob("*/card.json")
    card.write_text(json.dumps(json.loads(card.read_text()) | {"privacy": stated}))
    if (folder / "about.json").exists():
        for name, text in derived_files(folder).items():
            (folder / name).write_text(text)


def _run(
    home: Path, protocol: str, settings: dict[str, Any], *, apart: bool = False
) -> Path:
    rng = np.random.default_rng(0)
    ids = np.arange(300)
    both = pd.DataFrame(
        {
            "id": ids,
            "ill": rng.integers(0, 2, 300).astype(bool),
            "paid": rng.integers(0, 9, 300),
        }
    )
    ill = us.Boolean(name="ill")
    paid = us.Integer(name="paid", low=0, high=8, bins=9)
    frames = {"clinic": both[["id", "ill"]], "insurer": both[["id", "paid"]]}
    columns: dict[str, list[Any]] = {"clinic": [ill], "insurer": [paid]}
    if apart:
        frames = {"clinic": both[:150], "insurer": both[150:]}
        columns = {name: [ill, paid] for name in NAMES}
    parties = {}
    for name in NAMES:
        frames[name].to_csv(home / f"{name}.csv", index=False)
        us.Schema(columns=tuple(columns[name]), person="id").save(home / f"{name}.toml")
        parties[name] = {
            "table": f"{name}.csv",
            "schema": f"{name}.toml",
            "epsilon": 1.0,
            "delta": 1e-6,
            "ledger": f"{name}.ledger",
        }
    file = {
        "protocol": protocol,
        "out": "out",
        "settings": settings,
        "parties": parties,
    }
    (home / "run.toml").write_text(tomli_w.dumps(file))
    done = CliRunner().invoke(app, ["run", str(home / "run.toml")])
    assert done.exit_code == 0, (done.output, done.exception)
    return home
