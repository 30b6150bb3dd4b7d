"""What a terminal shows while a command trains, and after it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from understudy.cli.console import err, out
from understudy.privacy.accounts.budget import shown

if TYPE_CHECKING:
    from understudy.protocols.core import Progress as Rounds
    from understudy.runs.result import Result

ARTEFACTS = {
    "generator": "weights, schema and card: draw more rows with `understudy sample`",
    "model": "weights, schema and card of the classifier",
    "synthetic.parquet": "the synthetic table",
    "synthetic.csv": "the same, as text",
    "synthetic": "the synthetic tables: people and their events",
    "schema.toml": "the public schema",
    "report.html": "one page for the holder: is it good, is it safe",
    "privacy.json": "what was spent, per party and per person, against whom",
    "transcript.json": "messages exchanged: counts, bytes, paid values",
    "run.toml": "the run as it was carried out",
}


def summary(result: "Result", folder: Path) -> None:
    out.print(str(result.privacy), markup=False)
    if expected := result.artefact.card.get("expected"):
        out.print(f"\n{expected}", markup=False)
    if history := result.artefact.card.get("history"):
        out.print(
            f"\nOn the held-out rows {history[-1]['accuracy']:.1%} of the classes are predicted correctly."
        )
    out.print(f"\nWritten to {folder}:")
    for name, what in ARTEFACTS.items():
        if (folder / name).exists():
            out.print(f"  {name:<20} {what}")
    if (folder / "generator").exists():
        out.print(f"Is it good, is it safe? `understudy report {folder}` writes a page.", soft_wrap=True)


@contextmanager
def training() -> Iterator["Callable[[Rounds], None] | None"]:
    """A bar while it trains; Ctrl-C ends in words."""
    try:
        with bar_of() as watch:
            yield watch
    except KeyboardInterrupt:
        err.print(
            "Stopped. What was finished is saved, and the ledger holds all that was spent. Resume with --resume."
        )
        raise typer.Exit(130) from None


@contextmanager
def bar_of() -> Iterator["Callable[[Rounds], None] | None"]:
    """A bar of rounds, ε so far and time left; before it, one of the ids that are masked while people are aligned.

    Nothing of any row is shown; quiet when not in a terminal. No bar stands before the first word, nor between two.
    """
    if not err.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[spent]}"),
        TimeRemainingColumn(),
    )
    bar, tasks = Progress(*columns, console=err, transient=True), dict[str, Any]()

    def watch(rounds: "Rounds") -> None:
        if (task := tasks.get(rounds.stage)) is None:
            task = tasks[rounds.stage] = bar.add_task(rounds.stage, total=rounds.rounds, spent="")
            bar.start()
        over, every = rounds.done >= rounds.rounds, max(1, rounds.rounds // 50)
        if rounds.stage == "training" and (over or rounds.done % every == 0):
            spent = " ".join(f"{name} ε={shown(value, 3)}" for name, value in rounds.epsilon().items())
            bar.update(task, spent=spent)
        bar.update(task, completed=rounds.done)
        if rounds.stage == "aligning" and over:
            bar.stop()
            bar.remove_task(tasks.pop(rounds.stage))

    try:
        yield watch
    finally:
        bar.stop()
