"""Tables and figures as READMEs write them."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "l") -> str:
    """A table of these cells. `align` has an l or r for each column; its last letter is
    that of all further ones.
    """
    sides = [align[min(place, len(align) - 1)] for place in range(len(head))]
    lines = [
        _line(head),
        "|" + "".join("---:|" if side == "r" else "---|" for side in sides),
    ]
    for row in rows:
        if len(row) != len(head):
            raise ValueError(
                f"a row of {len(row)} cells under {len(head)} heads: {row}"
            )
        lines.append(_line(row))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def short(value: float | str) -> str:
    """A measured figure in three digits, or in whole numbers from 100 on; nothing where
    there is none.
    """
    if value == "":
        return ""
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def once(names: Iterable[str]) -> list[str]:
    """The same names, empty where one repeats the one above it."""
    shown = []
    last = None
    for name in names:
        shown.append("" if name == last else name)
        last = name
    return shown
