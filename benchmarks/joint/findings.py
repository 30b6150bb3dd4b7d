"""The figures in the sentences of README.md, from ours.csv, twice.csv and fit.csv: `make tables NAME=joint`."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pandas as pd

from common.figures import bare, found, where

HERE = Path(__file__).parent
AUC, F1 = "tstr_boosting_auc", "tstr_boosting_f1"


def score(dataset: str, method: str, epsilon: float | None, name: str, **key: object) -> float:
    """Two holders of columns; seed 0 unless another is asked for."""
    cell = {"partition": "columns", "holders": 2, "seed": 0} | key
    return float(found(HERE / "ours.csv", dataset=dataset, method=method, epsilon=epsilon, **cell)[name])


def listed(values: Iterable[float], digits: int = 3) -> str:
    *first, last = [bare(value, digits) for value in values]
    return f"{', '.join(first)} and {last}" if first else last


def cells(name: str) -> pd.DataFrame:
    """A figure of every method (columns) at every table and ε (rows), seed 0."""
    rows = where(HERE / "ours.csv", partition="columns", holders=2, seed=0)
    return rows.pivot_table(name, ["dataset", "epsilon"], "method", sort=False)


def met() -> str:
    """Adult in its finer coding, at ε = 1 and 8, beside a bootstrap of the rows."""
    one, eight = (
        f"{bare(score('adult_pgm', 'Gram', e, 'avd2'), 4)} and {bare(score('adult_pgm', 'Gram', e, AUC))}"
        for e in (1, 8)
    )
    drawn = bare(score("adult_pgm", "bootstrap", None, "avd2"), 4)
    return f"{one}; {eight} at ε=8 (as many rows drawn from the real ones: {drawn})"


def credit() -> str:
    parts = (
        f"{listed(score('credit', method, 1, F1, seed=seed) for seed in range(3))} for {method}"
        for method in ("Gram", "MST")
    )
    return " and ".join(parts)


def wide() -> str:
    har = [listed(score("har", method, e, AUC) for e in (0.5, 1, 2)) for method in ("MST", "Gram")]
    a9a, w8a = (
        listed(score(name, method, epsilon, AUC) for method in ("MST", "Gram"))
        for name, epsilon in (("a9a", 0.5), ("w8a-124", 1))
    )
    return (
        f"On har (562 columns, 5,882 people) MST's AUC is {har[0]} at ε = 0.5, 1 and 2, Gram's {har[1]}; "
        f"on a9a at ε=0.5 {a9a}, on w8a-124 at ε=1 {w8a}"
    )


def mended() -> str:
    har = listed(score("har", "Gram+target", e, AUC) for e in (0.5, 1, 2))
    a9a, w8a = score("a9a", "Gram+target", 0.5, AUC), score("w8a-124", "Gram+target", 1, AUC)
    return f"har {har}; a9a {bare(a9a)}; w8a-124 {bare(w8a)}"


def above(*names: str) -> str:
    """In how many cells Gram with its target named has the better score, by each name."""
    sides = [cells(name) for name in names]
    won = [int((found["Gram+target"] > found["MST"]).sum()) for found in sides]
    return " and ".join(f"{n} of {len(found)}" for n, found in zip(won, sides, strict=True))


def missed() -> str:
    """Where MST is nearer although the target is named."""
    found = cells("avd2")
    lost = (
        found[found["Gram+target"] > found["MST"]]
        .reset_index()
        .groupby("dataset", sort=False)
        .epsilon.apply(sorted)
    )
    return "; ".join(f"{table} at ε={', '.join(f'{e:g}' for e in prices)}" for table, prices in lost.items())


def dearer() -> str:
    """By how much the distance over all pairs grows when the target's pairs are measured twice."""
    found = cells("avd2")
    return f"{100 * ((found['Gram+target'] / found['Gram']).mean() - 1):.0f} %"


def coupled() -> str:
    found = cells("avd2")
    return f"{int((found['VertiGAN+gram'] < found['VertiGAN']).sum())} of {len(found)}"


def rare() -> str:
    gram, named = (
        listed((score("w8a-124", method, e, AUC) for e in (1, 8)), 2) for method in ("Gram", "Gram+target")
    )
    real = bare(score("w8a-124", "Gram", 1, "trtr_boosting_auc"), 2)
    return f"an AUC of {gram} at ε=1 and 8, {named} with the target named, where real rows give {real}"


def eight() -> str:
    """Eight holders of columns beside two, ε=1, mean over the tables."""
    rows = where(HERE / "ours.csv", method="Gram", partition="columns", epsilon=1, seed=0)
    wide = rows.pivot_table("avd2", "dataset", "holders")
    return f"{100 * ((wide[8] / wide[2]).mean() - 1):.0f} %"


def again(dataset: str, which: str, share: float) -> str:
    """AUC at ε=1 without a second measurement, and with one."""
    before, after = (
        found(HERE / "twice.csv", dataset=dataset, epsilon=1, again=name, share=part).boosting_auc
        for name, part in (("none", 0.0), (which, share))
    )
    return f"{bare(before)} to {bare(after)}"


def twice(which: str, share: float, *datasets: str) -> str:
    return ", ".join(f"{name} {again(name, which, share)}" for name in datasets)


def fit(method: str, epsilon: float, name: str) -> float:
    return float(found(HERE / "fit.csv", method=method, epsilon=epsilon)[name])


def plain() -> str:
    two = [bare(fit(method, 1, "avd2")) for method in ("plain", "mixture")]
    three = [bare(fit(method, 0.2, "avd3")) for method in ("plain", "independent")]
    return (
        f"is {two[0]} at ε=1 instead of {two[1]}, and the 3-way distance at ε=0.2 is {three[0]}, "
        f"where independent columns have {three[1]}"
    )


TABLES: dict[str, Callable[[], str]] = {
    "met": met,
    "credit": credit,
    "wide": wide,
    "mended": mended,
    "above": partial(above, AUC, F1),
    "missed distance": missed,
    "dearer": dearer,
    "coupled": coupled,
    "rare": rare,
    "eight": eight,
    "twice target": partial(twice, "target", 0.2, "har", "w8a-124", "census"),
    "twice strongest": partial(twice, "2m strongest", 0.5, "har", "w8a-124"),
    "sigma": lambda: ", ".join(f"{fit('mixture', e, 'sigma'):.0f} (ε = {e:g})" for e in (0.2, 1, 8)),
    "plain": plain,
}
