"""Parts of a count by way of a folder: for machines of a holder that share a disk and nothing else.

A party writes the job, and waits until every part is there; whoever counts part i (a task of a Slurm array, a pod of a
Kubernetes Job) calls `count_in_folder` for as long as the run lasts.

    with counted_by(InFolder(Path("/scratch/parts"), of=64)):          # where the run is
        us.synthesize("/data/rows.parquet", schema, budget=…)
    count_in_folder(Path("/scratch/parts"), 7, "/data/rows.parquet")   # at the machine of part 8 of 64

Guarantee: jobs, which hold the key, and parts, which it seals, are files for their owner alone, whole or not there, and
gone once they were read. What a part may be is for `parts` to judge: a file that somebody else left is refused.
Edges: parts that do not come in time → PartyError, and nothing was charged or sent.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.ground.durable import own_folder, replace
from understudy.protocols.joint.parts import Job, part_of

if TYPE_CHECKING:
    from understudy.data.reading.files import Source
    from understudy.data.reading.sources import TableSource

_LOOK = 0.2  # seconds between two looks


@dataclass
class InFolder:
    """Who counts parts (`parts.counted_by`): whoever looks into this folder. `patience`: seconds, for all parts."""

    folder: Path
    of: int
    patience: float = 86_400.0

    def __call__(self, job: Job, source: "TableSource") -> Iterator[bytes]:
        name, end = str(job.about["job"])[:32], time.monotonic() + self.patience
        parts = [self.folder / f"{name}.part{number}" for number in range(job.of)]
        asked = replace(own_folder(self.folder) / f"{name}.job", job.to_bytes())
        try:
            for number, part in enumerate(parts):
                while not part.exists():
                    if time.monotonic() > end:
                        raise job.refusal(f"part {number + 1} of {job.of} did not come in {self.patience:,.0f} s.")
                    time.sleep(_LOOK)
                yield part.read_bytes()
        finally:
            for file in (asked, *parts):
                file.unlink(missing_ok=True)


def count_in_folder(folder: Path, number: int, source: "Source") -> int:
    """Count part `number`, from 0, of every job that is in the folder and lacks it; how many these were."""
    from understudy.data.reading.sources import source_at

    counted = 0
    for asked in sorted(folder.glob("*.job")):
        part = asked.with_suffix(f".part{number}")
        with suppress(FileNotFoundError):  # answered meanwhile by another
            if not part.exists():
                made = part_of(asked.read_bytes(), number, source_at(source))
                if asked.exists():
                    replace(part, made)
                    counted += 1
    return counted
