"""Where the commands print."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as Grid

from understudy.ground.check import readable


class _Steady(Console):
    """A console on which no text steers the terminal, whoever worded it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else readable(text), style, control)


_new = partial(_Steady, emoji=False, highlight=False)  # what stands between colons is a name, and no picture
out = _new(soft_wrap=True)
err = _new(stderr=True, soft_wrap=True)
plain = _new(soft_wrap=True, markup=False)  # for what others may have worded
plain_err = _new(stderr=True, soft_wrap=True, markup=False)
wide = _new(markup=False, width=500)  # for tables: a long line is better than a cut one
FileArg = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True)]


def escape(text: str) -> str:
    """The text as it is, where markup is read."""
    return text.replace("[", r"\[")


def note(text: str) -> None:
    """Something that a user should know, beside the output."""
    err.print(f"[yellow]Note:[/] {escape(text)}")


def print_table(heads: tuple[str, ...], rows: Iterable[Iterable[object]]) -> None:
    """A table without a frame."""
    grid = Grid(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        grid.add_column(head, no_wrap=True)
    for row in rows:
        grid.add_row(*(readable(str(cell)) for cell in row))
    wide.print(grid)
