"""People who are held out of a run, so that attacks have somebody who took no part: by a secret coin for each row.

Guarantee: every row of a table in which a person has one row is held out with the same chance, by a coin of its own
that depends on nothing: not on what the row says, not on how many rows there are, not on the others. What is made of
the rows that stay is a release of a Poisson sample of the people, which costs nobody more than a release of all of them
does. A rule by the number of rows (“from 2,000 on”) would not do: one person more would change who is in it by a
twentieth of all others, and that is no small change of a release.
Edges: a source other than a DataFrame, a .csv or a .tsv file, with a header or without → ConfigError. Both parts of
a file are written beside the holder's ledger, for its owner alone, with a header; cells stay as they are written.
"""

from dataclasses import replace as replace_fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.data.reading.decoded import require_decoded
from understudy.data.reading.files import Source, open_source, separator_of
from understudy.data.reading.judged import judged
from understudy.data.reading.sources import TableSource
from understudy.ground.durable import replace
from understudy.ground.errors import ConfigError

if TYPE_CHECKING:
    from understudy.data.encoding.codec import Uniform

USUAL = 0.05  # of the people
FILES = (".csv", ".tsv")


def can_hold_out(source: object) -> bool:
    """Whether rows of such a source can be held out; by what it is, and by nothing that it holds."""
    if isinstance(source, TableSource):
        return source.decimal == "." and can_hold_out(source.table)
    named = isinstance(source, str | Path) and Path(source).suffix.lower() in FILES
    return named or isinstance(source, pd.DataFrame)


def hold_out(source: Source, share: float, rng: "Uniform", home: Path, name: str) -> tuple[Source, Path]:
    """The rows that stay, and the file of those that are held out, `home`/`name`-held-out.csv. The name is that of a
    run: another run holds out others.
    """
    if not 0 < share < 1:
        raise ConfigError(f"holdout is a share of the people between 0 and 1, not {share:g}. Nothing was charged.")
    if not can_hold_out(source):
        raise ConfigError("people can be held out of a DataFrame, a .csv or a .tsv file. Nothing was charged.")
    away = home / f"{name}-held-out.csv"
    if isinstance(source, pd.DataFrame):
        coins = _coins(len(source), share, rng)
        _write(away, source[coins], ",")
        return source[~coins], away
    stay, separator = home / f"{name}-taking-part.csv", separator_of(source)
    header = list(map(str, open_source(source, {}).header))
    require_decoded(source)
    raw = open_source(source, dict.fromkeys(header, False))
    judged(raw, {})  # a row that cannot be read is refused as everywhere
    frame = pd.DataFrame(raw.columns, columns=header)
    coins = _coins(len(frame), share, rng)
    _write(stay, frame[~coins], separator)
    _write(away, frame[coins], separator)
    if isinstance(source, TableSource):
        kept = source.header or None  # both parts have a header, whatever the file had
        as_written = replace_fields(source, table=str(stay), header=kept, encoding="utf-8", separator=separator)
        return as_written, away
    return stay, away


def _coins(rows: int, share: float, rng: "Uniform") -> NDArray[np.bool_]:
    coins: NDArray[np.bool_] = rng.uniform(rows).cpu().numpy() < share
    return coins


def _write(path: Path, frame: pd.DataFrame, separator: str) -> None:
    """One file, for its owner alone."""
    replace(path, frame.to_csv(index=False, sep=separator).encode())
