"""Parts of a long table, counted by other machines of its holder: `count` there, `--parts` where the run is.

The run adds the parts up itself: only it can draw noise once, after the entry in the ledger.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from understudy.cli.terminal import argument, option
from understudy.cli.terminal import plain_err as err
from understudy.ground.errors import ConfigError

Parts = Annotated[str | None, option("FOLDER:n: a long table is counted in n parts, by `understudy count FOLDER`.")]


@contextmanager
def counted_in(parts: str | None) -> Iterator[None]:
    """Long tables that are opened within are counted as --parts says, or here."""
    if parts is None:
        yield
        return
    from understudy.data.reading.spread import counted_by
    from understudy.data.reading.workers import InFolder

    with InFolder.at(parts) as folder, counted_by(folder):
        yield


def count(
    folder: Annotated[Path, argument("The folder that the run names with --parts.")],
    part: Annotated[str, option("Which part, of how many: 1/64 to 64/64.")],
    rows: Annotated[Path | None, option("Where the run's whole table is on this machine, if elsewhere.")] = None,
    patience: Annotated[float, option("How many seconds to wait for the run, or for its next count.")] = 86_400.0,
) -> None:
    """Count a part of a long table for a run of the same user, as long as it lasts: in a Slurm array, or a pod each.

    What is counted is sealed, for the run alone, and lies in the folder until the run has read it.
    """
    from understudy.data.reading.sources import source_at
    from understudy.data.reading.workers import count_until_over

    number, _, of = part.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise ConfigError(f"--part is i/n, from 1/64 to 64/64, not {part!r}. Nothing was counted.")
    count_until_over(
        folder, int(number) - 1, int(of), None if rows is None else source_at(rows), patience, say=err.print
    )
