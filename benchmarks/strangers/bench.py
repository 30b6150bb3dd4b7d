"""A stranger's table by the one line alone: how near it comes to the rows as they are,
and whether the page knows.

    make bench NAME=strangers DATA=<folder>
    python benchmarks/strangers/bench.py --data <folder> --method NAME --epsilons 1 --tables wine codes

    us.synthesize(frame, epsilon=ε, names_and_kinds_are_public=True, rows_are_people=True)

Forty tables (`tables.py`), nothing declared. A cell is a table, a method (the name of
the code that ran, as `before`), ε and a seed; cells that stand in the file are not run
again. For every column of the table there is a row: its kind (number, day, text, or
"unsaid" where it is all missing or hardly two people share a text), whether it was left
out, KS of numbers and days, TV of texts, the difference of the shares of missing cells
(`gap`), p95, p99 and mean of synthetic over real numbers, p1 and p99 of both, the
deviation of synthetic over real numbers, the share of people `outside` of the real
range and how far the furthest lies `beyond` it (in real ranges), the value that at
least 1 % of people have whose share is furthest off (`atom`, `atom_error`, and the same
in σ, `atom_sigmas`: see `atom_figures`), what of its form did not come back (`form`),
and the kindest mark that the page has for it. Each line of the page's verdict has a row
of the kind "line": its mark, how far the worst of what it is about is off in truth
(`off`, `worst`; `truth.py`), and whether the line is a wrong "good" (`wrong_line`). The
row with column "(all)" has the AUC of gradient boosting that learned from synthetic
rows and from real ones, tested on rows held out, the mean distance of pairs as the page
has it, what the card said that can be expected, what was warned of, seconds, CPU seconds
of the one line (`cpu`), and what is kept of the strongest pairs, their distance and
that of all pairs, on 16 quantiles of numbers (`common/strong_pairs.py`). Columns are
measured on the rows as they came, not through a schema. Noise is not seeded: a seed is
only the number of a repetition.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype, is_string_dtype
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from tables import NAMES, Stranger, load, written_and_read
from truth import (
    Associations,
    Truth,
    common_words,
    kind_of_line,
    worst_column,
    worst_correlation,
    worst_pair,
)

import understudy as us
from common import publication, strong_pairs
from common.grid import Grid, by_text, grid_options
from common.options import quick
from understudy.data.column import OTHER
from understudy.evaluate.figure import FigureKey
from understudy.evaluate.utility.values import ks_and_wasserstein
from understudy.ground.errors import ConfigError, SchemaError, UtilityWarning
from understudy.report.lines import ReportLine, verdict_lines
from understudy.report.marks import column_mark, raw_mark

QUICK = quick()
EPSILONS = (1.0, 0.5, 4.0)
ALL = "(all)"
LINE = "line"
METHOD = "after"
ATOM = 0.01  # a value that so many people have is an atom
MOST_CLASSES = 12  # of a column that is predicted, see `with_few_classes`
RARE_CLASS = 0.02  # NOTES.md, the truth of a line: AUC of fewer people is chance
RARE_WORDS = "(rare words)"
SHARED_BY = 0.005  # a text column of which no text is shared by so many is free text
DAYS = (  # ways in which these tables write days
    "%Y-%m-%d",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d.%m.%y",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M:%S",
    "%H:%M:%S",
    "%H:%M",
    "%I:%M %p",
)
MARKS = ("good", "partly", "poor", "unknown")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run."""

    dataset: str
    method: str
    epsilon: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.method}/{publication.price(self.epsilon)}/seed={self.seed}"


KEY = tuple(Cell.__dataclass_fields__)
FIELDS = [
    *KEY,
    "people",
    "column",
    "kind",
    "left_out",
    "ks",
    "tv",
    "gap",
    "p95",
    "p99",
    "mean",
    "form",
    "mark",
    "tstr_auc",
    "trtr_auc",
    "pairs",
    "expected",
    "warned",
    "seconds",
    "cpu",
    "outside",
    "beyond",
    "p1_real",
    "p1_made",
    "p99_real",
    "p99_made",
    "deviation",
    "atom",
    "atom_error",
    "atom_sigmas",
    "off",
    "worst",
    "wrong_line",
    *strong_pairs.FIGURES,
]
GRID = Grid(
    fields=FIELDS,
    key=KEY,
    order=by_text(*KEY),
    columns=publication.plain,
    name=lambda cell: cell.name,
)


def cells(
    datasets: list[str], method: str, epsilons: list[float], seeds: int
) -> Iterator[Cell]:
    """Everything that is compared, ε of 1 first."""
    for seed in range(seeds):
        for epsilon in epsilons:
            for dataset in datasets:
                yield Cell(dataset=dataset, method=method, epsilon=epsilon, seed=seed)


def measure(cell: Cell, args: dict[str, Any]) -> list[dict[str, Any]]:
    """One cell: the one line, and its rows beside the real ones."""
    table = load(cell.dataset, args["data"])
    if args["people"]:
        table = replace(table, train=table.train.head(args["people"]))
    known = publication.plain(cell) | {"people": table.people}
    start = time.perf_counter()
    cpu = time.process_time()
    with (
        tempfile.TemporaryDirectory() as ledgers,
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always")
        try:
            result = us.synthesize(
                table.train,
                epsilon=cell.epsilon,
                names_and_kinds_are_public=True,
                rows_are_people=True,
                ledgers=ledgers,
                **args["settings"],
            )
        except (
            ConfigError,
            SchemaError,
            # nothing shows, or nothing can: all columns are lost, and it says so
        ) as error:
            lost = [
                {"column": str(name)} | column_figures(table.train[name], None)
                for name in table.train
            ]
            return [
                known | row
                for row in (
                    *lost,
                    {"column": ALL, "tstr_auc": 0.5, "warned": str(error)},
                )
            ]
        made = result.sample(table.people, seed=cell.seed)
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu
    generator = result.generator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = generator.sample(table.people, seed=cell.seed)
        target = table.target if table.target in generator.schema.names else None
        compared = us.evaluate(table.train, drawn, generator.schema, target=target)
    judged = {shares.column.name: shares for shares in compared.shares}
    pairs = [
        figure.value for figure in compared.figures if figure.key == FigureKey("avd", 2)
    ]
    read = written_and_read(made, table.texts)
    noise = single_noise(generator.card)
    rows = []
    for name in map(str, table.train):
        found = column_figures(table.train[name], read.get(name), noise)
        if name in judged:
            found["mark"] = min(
                column_mark(judged[name]), raw_mark(judged[name]), key=MARKS.index
            )
        rows.append({"column": name} | found)
    scores = learned(read, table, cell.seed), learned(table.train, table, cell.seed)
    warned = {str(w.message) for w in said if isinstance(w.message, UtilityWarning)}
    whole = {
        "column": ALL,
        "tstr_auc": scores[0],
        "trtr_auc": scores[1],
        "pairs": round(pairs[0], 4) if pairs and pairs[0] is not None else "",
        "expected": generator.card.get("expected", ""),
        "warned": " ".join(sorted(warned)).replace("\n", " "),
        "seconds": round(seconds, 1),
        "cpu": round(cpu, 1),
    }
    common = strong_pairs.common_codes(
        *(with_days_as_numbers(frame, table) for frame in (table.train, read))
    )
    strongest = strong_pairs.strong_pairs(*common).figures
    whole |= publication.rounded(strongest, strong_pairs.FIGURES)
    predicted = sorted({figure.key.column for figure in compared.predictions.figures})
    lines = lines_beside_truth(
        verdict_lines(compared), predicted, rows, table, read, cell.seed
    )
    return [known | row for row in (*rows, *lines, whole)]


def lines_beside_truth(
    said: Iterable[ReportLine],
    predicted: Sequence[str],
    columns: list[dict[str, Any]],
    table: Stranger,
    made: pd.DataFrame,
    seed: int,
) -> list[dict[str, Any]]:
    """Each line of the page's verdict that has a truth, with that truth. `predicted`:
    where nobody named a column.
    """
    table = with_columns_of(made, table)
    real_strengths, made_strengths = (
        associations(frame, table) for frame in (table.train, made)
    )
    truths = {
        "columns": worst_column(columns),
        "pairs": worst_pair(real_strengths, made_strengths),
        "correlations": worst_correlation(real_strengths, made_strengths),
    }
    rows = []
    for own in said:
        kind = kind_of_line(own.line)
        if kind is None:
            continue
        if kind == "models":
            targets = (
                [own.line.split("“")[1].split("”")[0]] if "“" in own.line else predicted
            )
            learned_of = [model_truth(target, table, made, seed) for target in targets]
            truth = max(learned_of, key=lambda one: one.off, default=Truth())
        else:
            truth = truths[kind]
        wrong = int(truth.contradicts(own.mark, kind))
        line = {"column": own.line, "kind": LINE, "mark": own.mark, "wrong_line": wrong}
        rows.append(line | {"off": truth.off, "worst": truth.worst})
    return rows


def with_columns_of(made: pd.DataFrame, table: Stranger) -> Stranger:
    """The table without columns that were left out: they have a line of their own."""
    names = [name for name in table.train if name in made]
    return replace(table, train=table.train[names], test=table.test[names])


def associations(frame: pd.DataFrame, table: Stranger) -> Associations:
    """How strongly the columns hang together that both tables have; ids and free text
    apart.
    """
    kinds = {str(name): kind_of(table.train[name]) for name in table.train}
    numbers = {
        name: as_numbers(frame, name, kind)
        for name, kind in kinds.items()
        if kind in ("number", "day")
    }
    texts = {
        name: as_words(frame, name) for name, kind in kinds.items() if kind == "text"
    }
    real_words = pd.DataFrame({name: as_words(table.train, name) for name in texts})
    return Associations.measure(
        pd.DataFrame(numbers), pd.DataFrame(texts), common_words(real_words)
    )


def as_numbers(frame: pd.DataFrame, name: str, kind: str) -> "pd.Series[float]":
    """A column's numbers, or its days since 1970; missing where it has none."""
    cells = frame.get(name, pd.Series(np.nan, index=frame.index))
    if kind == "number":
        return pd.to_numeric(cells, errors="coerce").astype(float)
    read = pd.Series(np.nan, index=frame.index)
    found = days(cells)
    if found is not None:
        read[cells.notna()] = found
    return read


def with_days_as_numbers(frame: pd.DataFrame, table: Stranger) -> pd.DataFrame:
    names = [str(name) for name in frame if kind_of(table.train[name]) == "day"]
    return frame.assign(**{name: as_numbers(frame, name, "day") for name in names})


def as_words(frame: pd.DataFrame, name: str) -> "pd.Series[Any]":
    cells = frame.get(name, pd.Series(np.nan, index=frame.index))
    return cells.astype(object).where(cells.isna(), cells.astype(str))


def model_truth(target: str, table: Stranger, made: pd.DataFrame, seed: int) -> Truth:
    """By how much gradient boosting that learned from synthetic rows is worse than one
    that learned from real ones.
    """
    if target != table.target:
        table, made = with_few_classes(target, table, made)
    real, synthetic = (learned(rows, table, seed) for rows in (table.train, made))
    return Truth(
        round(real - synthetic, 4), f"{target}: AUC {real:.3f} -> {synthetic:.3f}"
    )


def with_few_classes(
    target: str, table: Stranger, made: pd.DataFrame
) -> tuple[Stranger, pd.DataFrame]:
    """The table that asks for this column, and synthetic rows to learn it from, with
    `MOST_CLASSES` at most.

    A day, and a number of more values, is above its median or not. A number of fewer is
    the nearest of those that `RARE_CLASS` of the people have. Of words as frequent as
    that the first are classes, and all others are one. Their number is what a model's
    work grows with: hundreds of codes would take hours.
    """
    real = table.train[target]
    above = None
    kind = kind_of(real)
    frames = [table.train, table.test, made]
    if kind == "day":
        frames = [
            frame.assign(**{target: as_numbers(frame, target, kind)})
            for frame in frames
        ]
        above = float(frames[0][target].median())
    elif kind == "number" and real.nunique() > MOST_CLASSES:
        above = float(real.median())
    elif kind == "number":
        frames = [
            frame.assign(**{target: nearest_frequent(frame[target], real)})
            for frame in frames
        ]
    else:
        shares = as_words(table.train, target).value_counts(normalize=True)
        often = shares.index[shares >= RARE_CLASS]
        if len(often) == len(shares) <= MOST_CLASSES:
            return replace(table, target=target, above=None), made
        often = often[: MOST_CLASSES - 1]
        frames = [
            frame.assign(**{target: rare_as_one(as_words(frame, target), often)})
            for frame in frames
        ]
    train, test, made = frames
    return replace(table, train=train, test=test, target=target, above=above), made


def nearest_frequent(
    cells: "pd.Series[Any]", real: "pd.Series[Any]"
) -> "pd.Series[Any]":
    """Of each number the nearest of those that `RARE_CLASS` of real people have."""
    shares = real.value_counts(normalize=True)
    frequent = np.sort(shares.index[shares >= RARE_CLASS].to_numpy(dtype=float))
    numbers = pd.to_numeric(cells, errors="coerce").astype(float)
    if not len(frequent):
        return numbers
    distances = np.abs(numbers.to_numpy()[:, None] - frequent)
    nearest = pd.Series(frequent[distances.argmin(axis=1)], index=cells.index)
    return nearest.where(numbers.notna())


def rare_as_one(words: "pd.Series[Any]", often: "pd.Index[Any]") -> "pd.Series[Any]":
    return words.where(words.isna() | words.isin(often), RARE_WORDS)


def single_noise(card: Mapping[str, Any]) -> float:
    """The σ, in people, of one count of a single column, as the card says it."""
    noise = card["noise"]
    return float(noise.get("fine tables", max(noise.values())))


def days(cells: "pd.Series[Any]") -> NDArray[np.float64] | None:
    """Days since 1970 of texts that are all written as a day or a time in one way; None
    of others.
    """
    present = cells.dropna()
    if not len(present) or not is_string_dtype(cells.dtype):
        return None
    for form in DAYS:
        read = pd.to_datetime(present, format=form, errors="coerce")
        if not read.isna().any():
            return (read - pd.Timestamp(0)).dt.total_seconds().to_numpy() / 86_400
    return None


def kind_of(cells: "pd.Series[Any]") -> str:
    """What a stranger would call the column."""
    if not cells.notna().any():
        return "unsaid"
    if is_numeric_dtype(cells) and not is_bool_dtype(cells):
        return "number"
    if days(cells) is not None:
        return "day"
    return (
        "text" if cells.value_counts(normalize=True).iloc[0] >= SHARED_BY else "unsaid"
    )


def column_figures(
    real: "pd.Series[Any]", made: "pd.Series[Any] | None", noise: float = 0.0
) -> dict[str, Any]:
    """A column's figures; `made` is None where it was left out. `noise`: σ of one
    count, in people.
    """
    found: dict[str, Any] = {"kind": kind_of(real), "left_out": int(made is None)}
    if made is None:
        return found
    if found["kind"] in ("number", "text"):
        found |= atom_figures(real, made, noise)
    found["gap"] = round(float(made.isna().mean() - real.isna().mean()), 4)
    found["form"] = changed(real, made)
    if found["kind"] == "text" or found["kind"] == "unsaid":
        shares = [
            cells.astype(object).where(cells.notna(), "(missing)").astype(str)
            for cells in (real, made)
        ]
        both = pd.concat(
            [s.value_counts(normalize=True) for s in shares], axis=1
        ).fillna(0.0)
        return found | {
            "tv": round(float((both.iloc[:, 0] - both.iloc[:, 1]).abs().sum() / 2), 4)
        }
    a, b = (
        days(cells) if found["kind"] == "day" else _numbers(cells)
        for cells in (real, made)
    )
    if b is None or not len(b):
        return found | {"ks": 1.0}
    found["ks"] = round(ks_and_wasserstein(a, b)[0], 4)
    if found["kind"] == "number":
        for title, share in (("p95", 0.95), ("p99", 0.99)):
            found[title] = _over(
                float(np.quantile(b, share)), float(np.quantile(a, share))
            )
        found["mean"] = _over(float(b.mean()), float(a.mean()))
        found |= spread_figures(a, b)
    return found


def spread_figures(
    real: NDArray[np.float64], made: NDArray[np.float64]
) -> dict[str, Any]:
    """p1 and p99 of both, the ratio of deviations, the share of people beyond the real
    ends, and how far they are.
    """
    low = float(real.min())
    high = float(real.max())
    furthest = max(low - float(made.min()), float(made.max()) - high, 0.0)
    quantiles = {
        f"p{p}_{whose}": np.quantile(cells, p / 100)
        for p in (1, 99)
        for whose, cells in (("real", real), ("made", made))
    }
    return {
        "outside": round(float(((made < low) | (made > high)).mean()), 5),
        "beyond": round(furthest / (high - low), 4)
        if high > low
        else float(furthest > 0),
        **{name: float(f"{value:.6g}") for name, value in quantiles.items()},
        "deviation": _over(float(made.std()), float(real.std())),
    }


def atom_figures(
    real: "pd.Series[Any]", made: "pd.Series[Any]", noise: float
) -> dict[str, Any]:
    """The value that at least 1 % of people have, real or synthetic, whose share is
    furthest off.

    Shares are of the rows with a value. σ of a share is that of the noise on one count
    of the release, as the card says it, and of the draw of so many rows, together:
    where most cells are missing, the same noise moves a share more. A share that is
    read from several counts has more noise, so the figure is strict. "(other)" stands
    for all texts that were not released, and is held against the share of those: real
    texts that are never drawn.
    """
    real_values = _as_values(real)
    made_values = _as_values(made)
    if (made_values == OTHER).any():
        released = real_values.isin(made_values.unique())
        real_values = real_values.where(released, OTHER)
    shares = [
        values.value_counts(normalize=True) for values in (real_values, made_values)
    ]
    both = pd.concat(shares, axis=1).fillna(0.0)
    both = both[both.max(axis=1) >= ATOM]
    if both.empty:
        return {}
    rows = len(real_values)
    true = both.iloc[:, 0]
    drawn = both.iloc[:, 1]
    errors = (true - drawn).abs()
    variance = (noise / rows) ** 2 + true * (1 - true) / rows
    sigmas = errors / np.sqrt(variance.clip(lower=1 / rows**2))
    return {
        "atom": str(sigmas.idxmax()),
        "atom_error": round(float(errors[sigmas.idxmax()]), 4),
        "atom_sigmas": round(float(sigmas.max()), 2),
    }


def _as_values(cells: "pd.Series[Any]") -> "pd.Series[Any]":
    """Numbers as numbers, so that 1 and 1.0 are one value, and anything else as
    text.
    """
    present = cells.dropna()
    number = is_numeric_dtype(present) and not is_bool_dtype(present)
    return present.astype(float) if number else present.astype(str)


def _numbers(cells: "pd.Series[Any]") -> NDArray[np.float64]:
    return pd.to_numeric(cells, errors="coerce").dropna().to_numpy(dtype=float)


def _over(made: float, real: float) -> float | str:
    return round(made / real, 4) if real else ""


def changed(real: "pd.Series[Any]", made: "pd.Series[Any]") -> str:
    """What of a column's form did not come back: its type, decimals, words, gaps where
    there were none.
    """
    lost = []
    if real.dtype != made.dtype:
        lost.append(f"{real.dtype} as {made.dtype}")
    if made.isna().any() and not real.isna().any():
        lost.append("gaps")
    if real.dtype.kind == made.dtype.kind == "f" and _decimals(made) > _decimals(real):
        lost.append(f"{_decimals(made)} decimals for {_decimals(real)}")
    if real.dtype == made.dtype and is_string_dtype(real.dtype):
        if days(real) is not None:
            lost += [] if days(made) is not None else ["days"]
        elif strange := set(made.dropna()) - set(real.dropna()):
            lost.append(f"new words: {', '.join(sorted(map(str, strange))[:2])}")
    return "; ".join(lost)


def _decimals(cells: "pd.Series[Any]") -> int:
    """The most decimals of any cell, from six on all alike."""
    values = cells.dropna().to_numpy(dtype=float)
    return next(
        (
            n
            for n in range(6)
            if np.allclose(values, np.round(values, n), rtol=1e-12, atol=1e-12)
        ),
        6,
    )


def learned(rows: pd.DataFrame, table: Stranger, seed: int) -> float:
    """The AUC, on rows held out, of gradient boosting that learned from these; 0.5
    where there is nothing to learn.
    """
    if table.target not in rows:
        return 0.5
    (x, y), (x_test, y_test) = (features(frame, table) for frame in (rows, table.test))
    if len(np.unique(y)) < 2:
        return 0.5
    model = HistGradientBoostingClassifier(
        max_iter=60, early_stopping=False, random_state=seed
    ).fit(x, y)
    guess = np.zeros((len(y_test), int(max(y.max(), y_test.max())) + 1))
    guess[:, model.classes_] = model.predict_proba(x_test)
    present = np.unique(y_test)
    return round(
        float(np.mean([roc_auc_score(y_test == c, guess[:, c]) for c in present])), 4
    )


def features(
    frame: pd.DataFrame, table: Stranger
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Numbers as they are, days as days, of a text its place among the real ones; and
    the class.
    """
    columns = []
    for name in table.train:
        real = table.train[name]
        cells = frame.get(name, pd.Series(np.nan, index=frame.index))
        number = is_numeric_dtype(real) and not is_bool_dtype(real)
        cells = pd.to_numeric(cells, errors="coerce") if number else cells.astype(str)
        if name == table.target and table.above is not None:
            classes = np.where(cells.isna(), -1, cells > table.above)
        elif name == table.target or not number:
            listed = real.dropna() if number else real.dropna().astype(str)
            places = np.asarray(
                pd.Categorical(cells, categories=sorted(listed.unique())).codes
            )
        if name == table.target:
            classes = places if table.above is None else classes
        else:
            columns.append(
                cells.to_numpy(dtype=float)
                if number
                else np.where(places < 0, np.nan, places.astype(float))
            )
    known = classes >= 0
    x = np.column_stack(columns)[known]
    x[:, np.isnan(x).all(axis=0)] = 0.0  # trees want a number in every column
    return x, np.asarray(classes)[known].astype(np.int64)


def parser() -> argparse.ArgumentParser:
    parser = grid_options(__doc__, out=Path(__file__).parent / "ours.csv", device="cpu")
    parser.add_argument(
        "--method", default=METHOD, help="the name of the code that runs"
    )
    parser.add_argument(
        "--tables",
        nargs="*",
        default=["codes"] if QUICK else list(NAMES),
        choices=NAMES,
    )
    parser.add_argument(
        "--epsilons", nargs="*", type=float, default=[1.0] if QUICK else list(EPSILONS)
    )
    parser.add_argument(
        "--people",
        type=int,
        default=400 if QUICK else None,
        help="only so many of each table",
    )
    parser.add_argument("--seeds", type=int, default=1)
    return parser


def main() -> None:
    args = parser().parse_args()
    settings = {"components": 16, "steps": 20} if QUICK else {}
    asked = cells(args.tables, args.method, args.epsilons, args.seeds)
    GRID.run(partial(measure, args=vars(args) | {"settings": settings}), asked, args)


if __name__ == "__main__":
    main()
