"""A notebook's cells one after the other, as a kernel runs them: NOTEBOOK SETTINGS TO.

SETTINGS stand in for the cell with that tag. TO is a JSON file of what is shown as HTML, by the last line of its cell.
"""

import json
import sys
from pathlib import Path
from typing import Any

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


def played(cells: list[dict[str, Any]], settings: str) -> dict[str, str]:
    """What each cell shows; the error of the first that fails."""
    options = Config({"HistoryManager": {"enabled": False}})
    shell = InteractiveShell.instance(config=options, display_pub_class=CapturingDisplayPublisher)
    shown: dict[str, str] = {}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        source = settings if "settings" in cell["metadata"].get("tags", ()) else "".join(cell["source"])
        done = shell.run_cell(source)
        done.raise_error()
        outputs = [one["data"] for one in shell.display_pub.outputs]
        if done.result is not None:
            outputs.append(shell.display_formatter.format(done.result)[0])
        shell.display_pub.outputs.clear()
        for data in outputs:
            shown[source.splitlines()[-1].strip()] = data.get("text/html", "")
    return shown


if __name__ == "__main__":
    notebook, settings, to = sys.argv[1:]
    Path(to).write_text(json.dumps(played(json.loads(Path(notebook).read_text())["cells"], settings)))
