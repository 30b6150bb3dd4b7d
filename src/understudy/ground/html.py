"""What a notebook shows: texts and small tables as HTML, with every character of theirs
harmless.
"""

from collections.abc import Iterable
from html import escape

# Notebooks wrap long lines, so that columns fall apart, and put every cell to the
# right, as if all were numbers.
_LAID_OUT = "white-space:pre;overflow-x:auto;margin:0.5em 0"
_LEFT = "text-align:left"


def line(text: object) -> str:
    return f"<p>{escape(str(text))}</p>"


def pre(text: object) -> str:
    """A text that stays as it is laid out; where it is too wide it is scrolled, not
    wrapped.
    """
    return f'<pre style="{_LAID_OUT}">{escape(str(text))}</pre>'


def grid(
    heads: Iterable[object], rows: Iterable[Iterable[object]], *, title: str = ""
) -> str:
    head = "".join(f'<th style="{_LEFT}">{escape(str(one))}</th>' for one in heads)
    cells = (
        ("".join(f'<td style="{_LEFT}">{escape(str(cell))}</td>' for cell in row))
        for row in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    above = f"<p><b>{escape(title)}</b></p>" if title else ""
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
