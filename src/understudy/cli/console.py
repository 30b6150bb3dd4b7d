"""Where the commands print."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
FileArg = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True)]


def escape(text: str) -> str:
    """The text as it is, where markup is read."""
    return text.replace("[", r"\[")
