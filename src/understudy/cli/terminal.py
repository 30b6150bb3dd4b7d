"""The terminal: what options are made of, where commands print, and what is seen while
one trains.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as Grid

from understudy.ground.check import readable
from understudy.ground.errors import ConfigError, Effect
from understudy.ground.extras import need_extra
from understudy.privacy.accounts.budget import shown

if TYPE_CHECKING:
    from understudy.protocols.core import Progress as Rounds
    from understudy.runs.result import Result


def option(help: str, *names: str, **more: Any) -> Any:
    """An option of a command: what it means, then its names where they are not its
    parameter's.
    """
    return typer.Option(*names, help=help, **more)


def argument(help: str, **more: Any) -> Any:
    return typer.Argument(help=help, **more)


FileArg = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True)]
RowsArg = Annotated[Path, argument("CSV, Excel, Parquet, or a NAME.source.toml.")]
RunFolderArg = Annotated[Path, argument("A run's folder or its generator/ folder.")]
RowsArePeople = Annotated[
    bool,
    option(
        "Every row is another person. Without it and without --person, rows are "
        "protected.",
        "--rows-are-people",
    ),
]
Header = Annotated[
    bool | None,
    option(
        "Whether the first line holds names; without it columns are column_1, "
        "column_2, ….",
        "--header/--no-header",
    ),
]
NamesArePublic = Annotated[
    bool,
    option(
        "State that names and kinds are publicly known.", "--names-and-kinds-are-public"
    ),
]
Lifetime = Annotated[
    float | None,
    option(
        "For a new ledger: what all may cost a person; default: this alone.",
        "--lifetime-epsilon",
    ),
]
QuoteFormulas = Annotated[
    bool,
    option(
        "Put a ' before texts in CSV that a spreadsheet would run as formulas.",
        "--quote-formulas",
    ),
]
Certificate = Annotated[Path | None, option("For TLS, with its key.")]
Key = Annotated[Path | None, option("The certificate's key.")]
Proxied = Annotated[bool, option("A proxy in front speaks TLS.")]


def host_and_port(listen: str, usual: int) -> dict[str, Any]:
    """Where --listen says, as a server takes it."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(f"--listen looks like 127.0.0.1:{usual}, not {listen!r}.")
    return {"host": host.strip("[]"), "port": int(port)}


class _Steady(Console):
    """A console on which no text steers the terminal, whoever worded it."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else readable(text), style, control)


# what stands between colons is a name, and no picture
_new = partial(_Steady, emoji=False, highlight=False)
out = _new(soft_wrap=True)
err = _new(stderr=True, soft_wrap=True)
plain = _new(soft_wrap=True, markup=False)  # for what others may have worded
plain_err = _new(stderr=True, soft_wrap=True, markup=False)
wide = _new(markup=False, width=500)  # for tables: a long line is better than a cut one


def escape(text: str) -> str:
    """The text as it is, where markup is read."""
    return text.replace("[", r"\[")


def note(text: str) -> None:
    err.print(f"[yellow]Note:[/] {escape(text)}")


def print_error(error: Exception) -> None:
    err.print(f"[red]{type(error).__name__}:[/] {escape(str(error))}")


def print_table(heads: tuple[str, ...], rows: Iterable[Iterable[object]]) -> None:
    grid = Grid(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        grid.add_column(head, no_wrap=True)
    for row in rows:
        grid.add_row(*(readable(str(cell)) for cell in row))
    wide.print(grid)


def ask(text: str) -> str:
    """What somebody types; nothing, if they just press the key."""
    return str(typer.prompt(text, default="", show_default=False))


def need(*modules: str) -> None:
    """The libraries of the exchange, an extra of the package: missed in words."""
    need_extra("exchange", *modules)


def need_grpc() -> None:
    # Its own log would come before our words; set it to see that.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    need_extra(
        "network", what="the network", effect=Effect.NOTHING_READ_CHARGED_OR_SENT
    )


# While a command trains, and after it

ARTEFACTS = {
    "generator": "weights, schema and card: draw more rows with `understudy sample`",
    "model": "weights, schema and card of the classifier",
    "synthetic.parquet": "the synthetic table",
    "synthetic.csv": "the same, as text",
    "synthetic": "the synthetic tables: people and their events",
    "schema.toml": "the public schema",
    "report.html": "one report for the holder: is it good, is it safe",
    "privacy.json": "what was spent, per party and per person, against whom",
    "transcript.json": "messages exchanged: counts, bytes, paid values",
    "run.toml": "the run as it was carried out",
}


def summary(result: "Result", folder: Path) -> None:
    card = result.artefact.card
    plain.print(str(result.privacy))
    expected = card.get("expected")
    if expected:
        plain.print(f"\n{expected}")
    fit = card.get("fit")
    quality = card.get("quality", {})
    if fit and not quality.get("fit_misses"):
        plain.print(fit["said"])
    for words in quality.get("said", ()):
        plain.print(words)
    history = card.get("history")
    if history:
        out.print(
            f"\nOn the held-out rows {history[-1]['accuracy']:.1%} of the classes are "
            "predicted correctly."
        )
    out.print(f"\nWritten to {folder}:")
    for name, what in ARTEFACTS.items():
        if (folder / name).exists():
            out.print(f"  {name:<20} {what}")
    if (folder / "generator").exists():
        out.print(
            f"Is it good, is it safe? `understudy report {folder}` writes a report."
        )


@contextmanager
def training() -> Iterator["Callable[[Rounds], None] | None"]:
    """A bar while it trains; Ctrl-C ends in words."""
    try:
        with progress_bar() as watch:
            yield watch
    except KeyboardInterrupt:
        err.print(
            "Stopped. What was finished is saved, and the ledger holds all that was "
            "spent. Resume with --resume."
        )
        raise typer.Exit(130) from None


@contextmanager
def progress_bar() -> Iterator["Callable[[Rounds], None] | None"]:
    """A bar of rounds, ε and time left, before it one of the ids that are masked, or of
    the parts of a long table that were read; quiet when not in a terminal.
    """
    if not err.is_terminal:
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from understudy.data.reading.spread import parts_watched
    from understudy.protocols.core import Progress as Rounds

    stage = TextColumn("{task.description}")
    spent = TextColumn("{task.fields[spent]}")
    columns = (stage, BarColumn(), MofNCompleteColumn(), spent, TimeRemainingColumn())
    bar = Progress(*columns, console=err, transient=True)
    tasks = dict[str, Any]()

    def watch(rounds: "Rounds") -> None:
        task = tasks.get(rounds.stage)
        if task is None:
            task = tasks[rounds.stage] = bar.add_task(
                rounds.stage, total=rounds.rounds, spent=""
            )
            bar.start()
        finished = rounds.done >= rounds.rounds
        step = max(1, rounds.rounds // 50)
        if rounds.stage == "training" and (finished or rounds.done % step == 0):
            words = " ".join(
                f"{name} ε={shown(value, 3)}"
                for name, value in rounds.epsilon().items()
            )
            bar.update(task, spent=words)
        bar.update(task, completed=rounds.done)
        if rounds.stage != "training" and finished:
            bar.refresh()
            bar.remove_task(tasks.pop(rounds.stage))
            if not tasks:
                bar.stop()

    try:
        with parts_watched(lambda done, of: watch(Rounds(done, of, dict, "counting"))):
            yield watch
    finally:
        bar.stop()
