"""A kernel of Jupyter that has its imports behind it: `python kernel.py PLACE
CONNECTION_FILE`.

It is the real one, in a process of its own, forked by the forker in `place`. This
program is there for as long as that is, since Jupyter looks whether what it started is
alive.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from forker import Forker

if __name__ == "__main__":
    place, connection = map(Path, sys.argv[1:])
    launcher = find_spec("ipykernel_launcher")
    assert launcher is not None
    assert launcher.origin is not None
    environment = {name: os.environ[name] for name in ("IPYTHONDIR", "JPY_PARENT_PID")}
    kernel = Forker(place).run(
        "-f",
        connection,
        folder=Path.cwd(),
        to=connection.with_suffix(".kernel"),
        program=Path(launcher.origin),
        **environment,
    )
    sys.exit(kernel.end())
