"""The client that an app can follow makes uploads that both aggregators take, and pays
before it sends.
"""

import ast
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from understudy.data.encoding.codec import Codec
from understudy.data.samples import toy
from understudy.privacy.secure.ring import Field
from understudy.privacy.secure.sketch import Sketch
from understudy.privacy.secure.sums import KeyPair, fingerprint
from understudy.privacy.secure.table_shares import _cipher, _lines
from understudy.protocols.aggregators.protocol import Config, TableTerms
from understudy.protocols.aggregators.upload import context_of

PHONE = Path(__file__).parents[2] / "examples" / "phone.py"
FRAME, SCHEMA = toy(rows=12, seed=3)
CONFIG = Config(aggregator="second", epsilon=1.0)
SCHEMAS = {"phones": SCHEMA, "second": SCHEMA}
PLAN = TableTerms.joint(CONFIG, SCHEMAS)
PAIR = KeyPair(bytes(range(32)))


def ticket(run: str = "r") -> dict[str, Any]:
    return {
        "run": run,
        "config": asdict(CONFIG),
        "schemas": {name: schema.to_dict() for name, schema in SCHEMAS.items()},
        "key": PAIR.public.hex(),
        "sizes": list(PLAN.cells.sizes),
    }


def counted(rows: Any, context: bytes) -> tuple[Any, Any]:
    """Who passes at both aggregators, and the sums."""
    form = PLAN.format
    sketch = Sketch(PLAN.cells, bytes(32))
    first, (second, opened) = (
        form.first(rows),
        form.second(rows[:, : form.head], PAIR, context),
    )
    (z1, y1, sums1), (z2, y2, sums2) = sketch.look(first), sketch.look(second)
    prime = np.uint64(PLAN.field.prime)
    z = (z1 + z2) % prime
    y = (y1 + y2) % prime
    passed = (
        sketch.passed(sketch.judge(first, z, y), sketch.judge(second, z, y)) & opened
    )
    return passed, PLAN.field.signed((sums1 + sums2) % prime).numpy()


def test_both_aggregators_take_what_a_phone_sends(phone: ModuleType) -> None:
    told = json.loads(json.dumps(ticket()))
    context = context_of("r", told["config"], told["schemas"], PAIR.public)
    assert phone.context_of(told) == context
    codes = Codec(SCHEMA).codes(FRAME)
    uploads = [
        phone.upload(told["sizes"], row.tolist(), PAIR.public, context) for row in codes
    ]
    rows = np.frombuffer(b"".join(uploads), np.uint8).reshape(len(codes), -1)
    assert rows.shape[1] == PLAN.format.size
    passed, sums = counted(rows, context)
    assert passed.all()
    for one, other, table in PLAN.cells.tables(sums):
        expected = np.zeros_like(table)
        for row in codes:
            expected[row[one], 0 if one == other else row[other]] += 1
        assert np.array_equal(table, expected)


def test_a_word_that_is_no_number_of_the_field_is_drawn_again_alike(
    phone: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a prime near 2³¹ every other word is."""
    monkeypatch.setattr(phone, "PRIME", 2**31 + 11)
    key = bytes(range(16))
    seed = bytes(range(16, 32))
    seeds = np.frombuffer(seed, "<u8").reshape(1, 1, 2)
    lines = _lines(
        [_cipher(np.frombuffer(key, np.uint8))], seeds, 41, Field(2**31 + 11)
    )
    assert np.array_equal(phone.line(key, seed, 41), lines[0, 0])
    assert np.array_equal(
        phone.numbers(bytes(32), 3, 50), Field(2**31 + 11).uniform(bytes(32), 3, 50)
    )


def words(folder: Path, *more: str, run: str = "r") -> list[str]:
    (folder / "ticket.json").write_text(json.dumps(ticket(run)))
    levels = ",".join("0" for _ in PLAN.cells.sizes)
    return [str(PHONE), "ticket.json", levels, "upload.bin", *more]


@pytest.fixture
def start(
    phone: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """The program in this process: what it ends with, nothing if all is well."""
    monkeypatch.chdir(tmp_path)

    def started(*more: str, run: str = "r") -> str:
        monkeypatch.setattr("sys.argv", words(tmp_path, *more, run=run))
        try:
            phone.main()
        except SystemExit as end:
            return str(end)
        return ""

    return started


def test_a_phone_pays_first_and_uploads_once_in_a_run(
    tmp_path: Path, start: Callable[..., str]
) -> None:
    done = subprocess.run(
        [sys.executable, *words(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "none against both together" in done.stdout
    assert fingerprint({"second": PAIR.public}) in done.stdout
    assert (tmp_path / "upload.bin").stat().st_size == PLAN.format.size
    made = (tmp_path / "upload.bin").read_bytes()
    entry = {
        "run": "r",
        "epsilon": 1.0,
        "delta": 1e-6,
        "upload": hashlib.sha256(made).hexdigest(),
    }
    assert json.loads((tmp_path / "ledger.jsonl").read_text()) == entry
    assert not start(), "the same upload again, at no price"
    assert (tmp_path / "upload.bin").read_bytes() == made
    assert json.loads((tmp_path / "ledger.jsonl").read_text()) == entry
    (tmp_path / "upload.bin").unlink()
    assert "You have uploaded" in start()
    assert "ε would be above 1.5 in all" in start("--max-epsilon", "1.5", run="s")
    assert "δ would be above 1.5e-06 in all" in start("--delta", "1.5e-6", run="s")
    assert not (tmp_path / "upload.bin").exists()


def test_a_phone_that_was_cut_off_after_it_paid_sends_what_it_paid_for(
    tmp_path: Path, start: Callable[..., str]
) -> None:
    assert not start()
    made = (tmp_path / "upload.bin").read_bytes()
    file = tmp_path / "upload.bin"
    file.rename(tmp_path / "upload.bin.draft")
    file.write_bytes(made[:100])  # of another run, or half of it
    assert not start()
    assert file.read_bytes() == made
    assert not (tmp_path / "upload.bin.draft").exists()
    assert len((tmp_path / "ledger.jsonl").read_text().splitlines()) == 1


def asked(**more: Any) -> dict[str, Any]:
    """A round about two columns with three and two levels, each by itself and both
    together.
    """
    round = {
        "run": "r",
        "round": 1,
        "config": {"epsilon_total": 1.0},
        "sizes": [3, 2],
        "groups": [0, 1, 2, 0, 1],
        "columns": [[0], [1], [0, 1]],
        "listed": [[], [], []],
        "weights": [1, 1, 1],
    }
    return round | more


@pytest.mark.parametrize(
    "made_up",
    [
        # a bit that is no cell's
        {"groups": [0, 9, -7, 0, 1], "columns": [[0]], "listed": [[]], "weights": [1]},
        {"groups": [0, 1, -1, 0, 1]},
        {"groups": [0, 1, float("nan"), 0, 1]},
        {"groups": [0, 1, 0.5, 0, 1]},
        {"groups": [0, 1, 2, 0]},  # none for the last level
        {"groups": [0, 1, 2, 0, 1, 1]},
        {"columns": [[0], [1], [0, 2]]},
        {"columns": [[0], [1], [0, -1]]},
        {"columns": [[0], [1], []]},
        {"weights": [1, 1]},
        {"listed": [[], []]},
    ],
)
def test_a_ticket_in_which_some_rows_have_no_cell_is_refused_whatever_the_row_is(
    phone: ModuleType, made_up: dict[str, Any]
) -> None:
    told = json.loads(json.dumps(asked(**made_up)))
    for levels in ([one, other] for one in range(3) for other in range(2)):
        assert len(phone.report(asked(), levels)) == 16 + 2 + 1
        with pytest.raises(SystemExit, match="Nothing was sent"):
            phone.report(told, levels)


def test_a_ticket_about_other_columns_is_refused_before_the_levels_are_looked_at(
    tmp_path: Path, start: Callable[..., str]
) -> None:
    own = list(PLAN.cells.sizes)
    assert "about other columns" in start(
        "--sizes", ",".join(map(str, [own[0] + 1, *own[1:]]))
    )
    assert not (tmp_path / "ledger.jsonl").exists()
    assert not start("--sizes", ",".join(map(str, own)))


def test_the_phone_needs_numpy_and_cryptography_alone() -> None:
    tree = ast.parse(PHONE.read_text())
    roots = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    roots |= {
        str(node.module).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert roots - sys.stdlib_module_names == {"numpy", "cryptography"}
