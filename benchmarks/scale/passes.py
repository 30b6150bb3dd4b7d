"""A run's passes over a table, by a clock: `bench.py` and `cores.py` time them."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from understudy.data.encoding.fine import fine_schema, is_bought
from understudy.data.reading import files, stores
from understudy.data.table import open_table
from understudy.protocols.gram.settings import Config
from understudy.protocols.joint.parts import Job, merged

LEVELS = 20  # of a column whose levels are chosen


def passes(
    own: Any, source: Any, small: Any, clock: Callable[[], Any]
) -> tuple[Any, str]:
    """What the clock says of each pass over a table of the schema `own` (opened, fine
    cells, pairs), and a digest of the sums. `small` is counted first, by which
    everybody has imported everything.
    """
    files.LONG = stores.SPREAD = 0
    key = bytes(32)
    columns = zip(own.columns, fine_schema(own).columns, strict=True)
    most = [
        (fine.size, LEVELS if is_bought(declared) else fine.size)
        for declared, fine in columns
    ]
    cells = {
        str(n): torch.arange(size, dtype=torch.int32) * few // size
        for n, (size, few) in enumerate(most)
    }

    def counted(table: Any, name: str) -> Any:
        stages = [["fine", {}, 10.0], ["pairs", {"groups": cells}, 10.0]][
            : 1 + (name == "pairs")
        ]
        told = {"one": own.to_dict()}
        study = "understudy.protocols.gram.protocol:Gram"
        job = Job("r", "one", study, asdict(Config()), told, own.to_dict(), stages)
        return merged(job.of_table(table, key), table)

    counted(open_table(small, own), "fine")
    marks = [clock()]
    table = open_table(source, own)
    marks.append(clock())
    sums = counted(table, "fine")
    marks.append(clock())
    sums |= {f"pairs {key}": value for key, value in counted(table, "pairs").items()}
    marks.append(clock())
    digest = hashlib.sha256(
        b"".join(sums[key].numpy().tobytes() for key in sorted(sums))
    ).hexdigest()[:12]
    return np.diff(marks, axis=0), digest
