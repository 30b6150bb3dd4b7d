"""What a notebook shows: texts and small tables as HTML, with every character of theirs harmless."""

from collections.abc import Iterable
from html import escape


def pre(text: object) -> str:
    """A text that stays as it is laid out."""
    return f"<pre>{escape(str(text))}</pre>"


def grid(heads: Iterable[object], rows: Iterable[Iterable[object]], *, title: str = "") -> str:
    """A table, under a title."""
    head = "".join(f"<th>{escape(str(one))}</th>" for one in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    above = f"<p><b>{escape(title)}</b></p>" if title else ""
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
