"""The notebook runs from its first cell to its last in a kernel of its own, and shows what it should.

It takes about ten seconds of CPU, with the start of pytest: a kernel of its own imports everything anew.
"""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples" / "one_table.ipynb"
SMALL = 'settings = {"components": 32, "steps": 20, "device": "cpu"}'  # how good its rows are is not what this is about


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code)


def test_the_notebook_shows_result_statement_ledger_schema_and_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):  # nothing of the user's
        monkeypatch.setenv(place, str(tmp_path / place))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (settings,) = (cell for cell in notebook.cells if "settings" in cell.metadata.get("tags", ()))
    settings.source = SMALL
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()

    shown = {
        cell.source.splitlines()[-1].strip(): output.data.get("text/html", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    }
    complaints = [one.text for cell in notebook.cells for one in cell.get("outputs", ()) if "text" in one]
    assert not complaints
    assert "A person over all parties" in shown["result"]
    assert "A person over all parties" in shown["result.privacy"]
    assert "Ledger of clinic" in shown["display(ledger)"]
    assert "may be missing" in shown["result.generator.schema"]
    assert "Generator by gram" in shown["result.generator"]
    assert (tmp_path / "ledgers" / "clinic.ledger").exists()
