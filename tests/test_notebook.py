"""The notebook runs from its first cell to its last in a kernel of its own, and shows
what it should.
"""

import json
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from forker import Forker

NOTEBOOK = Path(__file__).parent.parent / "examples" / "one_table.ipynb"
# how good its rows are is not what this is about
SMALL = 'settings = {"components": 32, "steps": 20, "device": "cpu"}'


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forker: Forker) -> str:
    """The name of Python's, forked, and nothing of the user's beside it."""
    for place in (
        "IPYTHONDIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_PATH",
    ):
        monkeypatch.setenv(place, str(tmp_path / place))
    command = [
        sys.executable,
        str(Path(__file__).with_name("kernel.py")),
        str(forker.place),
        "{connection_file}",
    ]
    folder = tmp_path / "JUPYTER_PATH" / "kernels" / "forked"
    folder.mkdir(parents=True)
    said = {"argv": command, "display_name": "forked", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(said))
    return folder.name


def test_the_notebook_shows_result_statement_ledger_schema_and_generator(
    tmp_path: Path, kernel: str
) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (settings,) = (
        cell for cell in notebook.cells if "settings" in cell.metadata.get("tags", ())
    )
    settings.source = SMALL
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(
        notebook, timeout=240, kernel_name=kernel, resources=resources
    ).execute()

    shown = {
        cell.source.splitlines()[-1].strip(): output.data.get("text/html", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    }
    complaints = [
        one.text
        for cell in notebook.cells
        for one in cell.get("outputs", ())
        if "text" in one
    ]
    assert not complaints
    assert "A person over all parties" in shown["result"]
    assert "A person over all parties" in shown["result.privacy"]
    assert "Ledger of clinic" in shown["display(ledger)"]
    assert "may be missing" in shown["result.generator.schema"]
    assert "Generator by gram" in shown["result.generator"]
    assert (tmp_path / "ledgers" / "clinic.ledger").exists()
