"""The notebook runs from its first cell to its last in a process of its own, and shows what it should."""

import json
from pathlib import Path

import nbformat

from forker import Forker

NOTEBOOK = Path(__file__).parent.parent / "examples" / "one_table.ipynb"
SMALL = 'settings = {"components": 32, "steps": 20, "device": "cpu"}'  # how good its rows are is not what this is about


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert sum("settings" in cell.metadata.get("tags", ()) for cell in code) == 1


def test_the_notebook_shows_result_statement_ledger_schema_and_generator(
    tmp_path: Path, forker: Forker
) -> None:
    done = forker.run(
        NOTEBOOK, SMALL, tmp_path / "shown.json", folder=tmp_path, to=tmp_path / "played",
        program=Path(__file__).with_name("play_notebook.py"), IPYTHONDIR=str(tmp_path / "ipython"),
    )  # fmt: skip
    assert done.end() == 0, done.out + done.err
    assert not done.err
    shown = json.loads((tmp_path / "shown.json").read_text())
    assert "A person over all parties" in shown["result"]
    assert "A person over all parties" in shown["result.privacy"]
    assert "Ledger of clinic" in shown["display(ledger)"]
    assert "may be missing" in shown["result.generator.schema"]
    assert "Generator by gram" in shown["result.generator"]
    assert (tmp_path / "ledgers" / "clinic.ledger").exists()
