"""Tables that are declared, in a `tables.toml` beside the CSV files: what is read, a
line for what, and its cells.

    [NAME]                          # the mark in the README
    csv = "ours.csv"                # or several files, one below the other
    where = "seed == 0"             # rows that count (DataFrame.query)
    with = {ratio = "a / b"}        # further columns (DataFrame.eval)
    lines = ["dataset", "epsilon"]  # a line for each of their values; without it, for each row
    sorted = ["dataset"]            # numbers are in order by themselves, texts as they
                                    come in the file
    over = "method"                 # a column whose head has {} stands once for each of
                                    these values
    columns = [["table", "{dataset}"], ["AUC, {}", "{auc:bare .3f}"], ["best", "{auc:max .2f}", "epsilon == 8"]]
    names.method = {mst = "MST"}    # how values are shown, in which order; others are
                                    left out. A list keeps the words
    once = 1                        # so many first columns are empty where they repeat
                                    the line above
    align = "lr"; empty = "–"       # of a cell without figures
    above = "…"; below = "…"        # templates over all rows of the table
    more = [["all", "{people:sum ,}", ["{auc:.2f}", "seed == 0"]]]  # further lines: cells over all rows, or some
    each = "dataset"                # a table for each of its values, whose name is the
                                    mark
    like = "OTHER"                  # as that declaration, but for what stands here

Without `columns` a file is shown as it stands; with `text` in their place it is a
figure of a sentence. The column `file` says which of several files a row is from.
With `holds` it is a claim, of order for example (`common/claims.py`): the README marks
the sentence, `<!-- claim: NAME -->so said<!-- end -->`, which stays as it is written.
With `shows` it is a figure worked out of several lines (`common/claims.py`, too).
`{column:statistic style format}`: the mean, or first, min, max, sum, half (of the
range), sem, n (how many different values), count; bare (.5), short (three digits),
spread (mean ± half the range), tight (mean ±.02); a format as Python has it. `{column}`
alone is the text of the first row.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from common.claims import holds, worked_out
from common.markdown import once, short, table
from common.rows import as_it_stands

STATISTICS: dict[str, Callable[[Any], float]] = {
    "mean": lambda values: values.mean(),
    "first": lambda values: values[0],
    "min": lambda values: values.min(),
    "max": lambda values: values.max(),
    "sum": lambda values: values.sum(),
    "half": lambda values: (values.max() - values.min()) / 2,
    "sem": lambda values: values.std(ddof=1) / len(values) ** 0.5,
    "n": lambda values: len(set(values)),
    "count": len,
}
STYLES = ("short", "bare", "spread", "tight")
Declared = Mapping[str, Any]
Places = Any  # numbers of rows


class Values:
    """One column of the rows that a cell is made of; its format says what is shown of
    it.
    """

    def __init__(self, values: Any, names: Mapping[str, str]) -> None:
        self.values = values[~pd.isna(values)]
        self.names = names

    def __format__(self, spec: str) -> str:
        words = spec.split()
        form = next((word for word in words if word not in (*STATISTICS, *STYLES)), "")
        if not len(self.values):
            return "0" if "n" in words else ""
        if not words:
            first = str(self.values[0])
            return self.names.get(first, first)
        numbers = self.values.astype(float)
        statistic = next(
            (STATISTICS[word] for word in words if word in STATISTICS),
            STATISTICS["mean"],
        )
        shown = _styled(statistic(numbers), words, form)
        if len(numbers) > 1 and ("spread" in words or "tight" in words):
            half = _styled(STATISTICS["half"](numbers), words, form)
            shown += (
                f" ± {half}" if "spread" in words else f" ±{half.replace('0.', '.', 1)}"
            )
        return shown


def _styled(number: float, words: list[str], form: str) -> str:
    if "short" in words:
        return short(number)
    text = format(int(number) if form in ("", ",") else float(number), form)
    return text.replace("0.", ".", 1) if "bare" in words and abs(number) < 1 else text


class Rows(dict[str, Any]):
    """The columns of some rows, each made when a template asks for it."""

    def __init__(
        self, columns: Mapping[str, Any], places: Places, names: Declared
    ) -> None:
        self.columns = columns
        self.places = places
        self.names = names

    def __missing__(self, name: str) -> Values:
        named = self.names.get(name, {})
        return Values(
            self.columns[name][self.places], named if isinstance(named, dict) else {}
        )


def tables(path: Path, folder: Path | None = None) -> dict[str, Callable[[], str]]:
    """The marks of a `tables.toml`, and what stands between them; its files are in the
    same folder, if no other is named.
    """
    folder = folder or path.parent
    made: dict[str, Callable[[], str]] = {}
    every = tomllib.loads(path.read_text())
    for name, own in every.items():
        declared = every.get(own.get("like"), {}) | own
        over = declared.get("each")
        if "holds" in declared:
            made[name] = partial(_claimed, folder, declared, name)
        elif "shows" in declared:
            made[name] = partial(_worked_out, folder, declared)
        elif over:
            for value in declared["names"][over]:
                made[str(value)] = partial(
                    _text, folder, declared, f"{over} == {value!r}"
                )
        else:
            made[name] = partial(_text, folder, declared)
    return made


@cache
def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype_backend="numpy_nullable")


def _claimed(folder: Path, declared: Declared, name: str) -> str:
    """Nothing, where the claim holds: its sentence stays as it is written."""
    lines = holds(selected(folder, declared), declared)
    if not lines.all():
        raise SystemExit(
            f"{folder.name}: the claim {name!r} does not hold for "
            f"{', '.join(map(str, lines.index[~lines]))}."
        )
    return ""


def _worked_out(folder: Path, declared: Declared) -> str:
    return worked_out(selected(folder, declared), declared)


def _text(folder: Path, declared: Declared, only: str = "") -> str:
    files = declared.get("csv", "ours.csv")
    if "columns" not in declared and "text" not in declared:
        return as_it_stands(folder / files, declared.get("align", "l"))
    return Table(declared, selected(folder, declared, only)).text()


def selected(folder: Path, declared: Declared, only: str = "") -> pd.DataFrame:
    """The rows that a declaration is about."""
    files = declared.get("csv", "ours.csv")
    each = {
        file: _read(folder / file)
        for file in ([files] if isinstance(files, str) else files)
    }
    rows = pd.concat(
        [found.assign(file=name) for name, found in each.items()], ignore_index=True
    )
    for name, formula in declared.get("with", {}).items():
        rows[name] = rows.eval(formula, engine="python")
    for asked in (only, declared.get("where", "")):
        rows = rows.query(asked, engine="python") if asked else rows
    if rows.empty:
        raise LookupError(
            f"{folder.name}: {files} has no row with {declared.get('where')} {only}"
        )
    return rows.reset_index(drop=True)


class Table:
    """A declaration with the rows that it is about."""

    def __init__(self, declared: Declared, rows: pd.DataFrame) -> None:
        self.declared = declared
        self.rows = rows
        self.names = declared.get("names", {})
        self.columns = {
            str(name): rows[name].to_numpy(dtype=object, na_value=None) for name in rows
        }

    def text(self) -> str:
        every = np.arange(len(self.rows))
        if "text" in self.declared:
            return self.said(self.declared["text"], every)
        columns = list(self.heads())
        lines = [
            [self.said(cell, places[kept[places]]) for _, cell, kept in columns]
            for places in self.groups(every)
        ]
        for more in self.declared.get("more", ()):
            cells = [(cell, "") if isinstance(cell, str) else cell for cell in more]
            lines.append(
                [self.said(cell, every[self.kept(asked)]) for cell, asked in cells]
            )
        for place in range(self.declared.get("once", 0)):
            shown = once(line[place] for line in lines)
            for line, text in zip(lines, shown, strict=True):
                line[place] = text
        made = table(
            [head for head, _, _ in columns], lines, self.declared.get("align", "l")
        )
        above, below = (
            self.said(self.declared[side], every) if side in self.declared else ""
            for side in ("above", "below")
        )
        return "\n\n".join(filter(None, (above, made, below)))

    def said(self, template: str, places: Places) -> str:
        """The template filled in; what the table has for empty cells where there is no
        figure for it.
        """
        text = template.format_map(Rows(self.columns, places, self.names))
        if "{" not in template:
            return text
        return (
            str(self.declared.get("empty", "–"))
            if text == self.hollow(template)
            else text
        )

    @cache  # noqa: B019  a table is there for one text
    def hollow(self, template: str) -> str:
        return template.format_map(Rows(self.columns, np.arange(0), self.names))

    def heads(self) -> Iterator[tuple[str, str, Any]]:
        """Each column's head and cell, and which rows it is about."""
        over = self.declared.get("over")
        for head, cell, *asked in self.declared["columns"]:
            kept = self.kept(asked[0] if asked else "")
            if not (over and "{" in head):
                yield head, cell, kept
                continue
            named = self.names.get(over, {})
            for value in self.order(over, np.arange(len(self.rows))):
                name = (
                    named.get(str(value), value) if isinstance(named, dict) else value
                )
                yield head.format(name), cell, kept & (self.columns[over] == value)

    def kept(self, asked: str) -> Any:
        if not asked:
            return np.ones(len(self.rows), bool)
        # each that is there takes time
        named = self.rows[[name for name in self.rows if str(name) in asked]]
        return named.eval(asked, engine="python").fillna(False).to_numpy(bool)

    def groups(self, places: Places, depth: int = 0) -> Iterator[Places]:
        """The rows of each line."""
        keys = self.declared.get("lines")
        if keys is None:
            yield from places[:, None]
        elif depth == len(keys):
            yield places
        else:
            name = keys[depth]
            held = self.columns[name][places]
            parts = [held == value for value in self.order(name, places)]
            parts += [pd.isna(held)] if name not in self.names else []
            for part in parts:
                if part.any():
                    yield from self.groups(places[part], depth + 1)

    def order(self, name: str, places: Places) -> list[Any]:
        """The values of a column as their names are listed; numbers in order; texts as
        they come, or sorted.
        """
        numbers = self.rows[name].dtype.kind in "iuf"
        if name in self.names:
            return [float(value) if numbers else value for value in self.names[name]]
        found = dict.fromkeys(
            value for value in self.columns[name][places] if value is not None
        )
        return (
            sorted(found)
            if numbers or name in self.declared.get("sorted", ())
            else list(found)
        )
