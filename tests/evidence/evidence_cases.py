"""A real run of two holders, with ledgers in files."""

from pathlib import Path

import numpy as np
import pandas as pd
import tomli_w
from typer.testing import CliRunner

import understudy as us
from understudy.cli import app

NAMES = ("clinic", "insurer")


def two_holders(home: Path) -> Path:
    """In this folder: tables, schemas, ledgers, and the run in `out`."""
    rng = np.random.default_rng(0)
    ids = np.arange(300)
    frames = {
        "clinic": pd.DataFrame({"id": ids, "ill": rng.integers(0, 2, 300).astype(bool)}),
        "insurer": pd.DataFrame({"id": ids, "paid": rng.integers(0, 9, 300)}),
    }
    columns = {"clinic": [us.Boolean(name="ill")], "insurer": [us.Integer(name="paid", low=0, high=8, bins=9)]}
    parties = {}
    for name in NAMES:
        frames[name].to_csv(home / f"{name}.csv", index=False)
        us.Schema(columns=tuple(columns[name]), person="id").save(home / f"{name}.toml")
        parties[name] = {
            "table": f"{name}.csv", "schema": f"{name}.toml", "epsilon": 1.0, "delta": 1e-6, "ledger": f"{name}.ledger",
        }  # fmt: skip
    (home / "run.toml").write_text(
        tomli_w.dumps(
            {"protocol": "gram", "out": "out", "settings": {"steps": 20, "components": 8}, "parties": parties}
        )
    )
    done = CliRunner().invoke(app, ["run", str(home / "run.toml")])
    assert done.exit_code == 0, done.output
    return home
