"""The tables of README.md, from the CSV files beside it: `make tables NAME=joint`."""

from functools import cache, partial
from pathlib import Path

import pandas as pd

from common.figures import bare
from common.markdown import once, table
from common.rows import as_it_stands

HERE = Path(__file__).parent
METHODS = [
    "Gram",
    "Gram+target",
    "MST",
    "AIM",
    "DPLT",
    "VertiGAN",
    "VertiGAN+gram",
    "VDGAN-DPSGD",
    "bootstrap",
    "independent",
]
NAMES = {
    "Gram": "**Gram**, two holders",
    "Gram+target": "**Gram**, target named",
    "MST": "*central* MST",
    "AIM": "*central* AIM",
}
WAYS = [
    ("none", 0.0),
    ("m strongest", 0.5),
    ("2m strongest", 0.5),
    ("target", 0.05),
    ("target", 0.2),
    ("target", 0.5),
]
FIGURES = {
    "avd2": "2-way",
    "avd2_within": "within",
    "avd2_cross": "across",
    "avd3": "3-way",
    "tstr_boosting_f1": "F1",
    "tstr_boosting_auc": "AUC",
}
EQUAL = {"avd2": "2-way", "tstr_boosting_auc": "AUC", "tstr_boosting_f1": "F1"}
BESIDE = {"Gram+target": "two holders", "one holder": "one holder", "AIM-equal": "AIM", "MST-equal": "MST"}
CUTS = tuple(f"{name}@{people}" for name in ("credit", "randhie") for people in (4000, 2000, 1000))
TOLD = ("bank", "credit", "diabetes")  # on which it was chosen how a target is drawn
WIDE = ("census", "a9a", "w8a-124", "har")
SMALL = ("adult_pgm", "adult", "bank", "credit", "diabetes", "randhie")  # at most 30 columns


@cache
def measured() -> pd.DataFrame:
    return pd.read_csv(HERE / "ours.csv")


def columns_of_two(epsilon: float | None = None) -> pd.DataFrame:
    """Two holders of columns, at one ε or at all of them."""
    rows = measured()
    part = rows[(rows.partition == "columns") & (rows.holders == 2)]
    return part if epsilon is None else part[part.epsilon == epsilon]


def beside() -> str:
    """Every method at ε=1, and the two ends of the scale; seed 0."""
    part = columns_of_two()
    part = part[((part.epsilon == 1) | part.epsilon.isna()) & (part.seed == 0)]
    lines = []
    for dataset, group in part.groupby("dataset", sort=False):
        first = f"{dataset} ({group['columns'].iloc[0]} columns, {group.people.iloc[0]:,} people)"
        found = group.set_index("method")
        for method in [m for m in METHODS if m in found.index]:
            row = found.loc[method]
            figures = [f"{row[name]:.4f}" if "avd" in name else f"{row[name]:.3f}" for name in FIGURES]
            sent = f"{row.up_mb:,.0f}" if pd.notna(row.up_mb) else "–"
            lines.append([first, NAMES.get(method, method), *figures, sent])
            first = ""
    return table(("table", "method", *FIGURES.values(), "MB up, each"), lines, "llr")


def over(figure: str) -> str:
    """Gram over partitions, holders and ε; seed 0."""
    rows = measured()
    part = rows[(rows.method == "Gram") & (rows.seed == 0)]
    prices = sorted(part.epsilon.unique())
    wide = part.pivot_table(figure, ["dataset", "partition", "holders"], "epsilon", sort=False).sort_index()
    names = once(dataset for dataset, _, _ in wide.index)
    lines = [
        [name, partition, str(holders), *(f"{row[e]:.4f}" if pd.notna(row[e]) else "–" for e in prices)]
        for name, ((_, partition, holders), row) in zip(names, wide.iterrows(), strict=True)
    ]
    return table(("table", "partition", "holders", *(f"ε={price:g}" for price in prices)), lines, "lllr")


def prices() -> str:
    """Every private method at every ε: 2-way distance, then AUC; seed 0."""
    part = columns_of_two()
    part = part[(part.seed == 0) & part.epsilon.notna()]
    every = sorted(part.epsilon.unique())
    lines = []
    for dataset, group in part.groupby("dataset", sort=False):
        first = str(dataset)
        for method in [m for m in METHODS if (group.method == m).any()]:
            found = group[group.method == method].set_index("epsilon")
            cells = [
                f"{found.loc[e, figure]:{form}}" if e in found.index else "–"
                for figure, form in (("avd2", ".4f"), ("tstr_boosting_auc", ".3f"))
                for e in every
            ]
            lines.append([first, NAMES.get(method, method), *cells])
            first = ""
    heads = (f"{name}, ε={e:g}" for name in ("2-way", "AUC") for e in every)
    return table(("table", "method", *heads), lines, "llr")


def seeds() -> str:
    """Gram beside central MST at ε=1 where several seeds were run: means, ± half the range."""
    part = columns_of_two(1)
    part = part[part.method.isin(["Gram", "Gram+target", "MST"])]
    lines = []
    for (dataset, method), group in part.groupby(["dataset", "method"], sort=False):
        if len(group) > 1:
            cells = [
                f"{group[name].mean():{'.4f' if 'avd' in name else '.3f'}}"
                + (f" ±{(group[name].max() - group[name].min()) / 2:.3f}" if "avd" not in name else "")
                for name in FIGURES
            ]
            lines.append([str(dataset), NAMES[str(method)], str(len(group)), *cells])
    return table(("table", "method", "seeds", *FIGURES.values()), lines, "lllr")


def aims() -> str:
    """What was aimed at on the tables with few columns at ε=1, and where it is missed."""
    part = columns_of_two(1)
    part = part[part.dataset.isin(SMALL)]
    sides = {
        "seed 0": (means(part[part.seed == 0], "Gram"), means(part[part.seed == 0], "MST")),
        "means of three seeds": (means(part, "Gram"), means(part, "MST")),
        "target named, means of three seeds": (means(part, "Gram+target"), means(part, "MST")),
    }
    lines = [
        [aim, *(missed(ours[name], theirs[name], nearer=nearer) for ours, theirs in sides.values())]
        for aim, name, nearer in (
            ("2-way within no worse than *central* MST's", "avd2_within", True),
            ("2-way across no worse than central MST's", "avd2_cross", True),
            ("AUC above central MST's", "tstr_boosting_auc", False),
            ("F1 above central MST's", "tstr_boosting_f1", False),
        )
    ]
    ratios = [ours.avd2_cross / ours.avd2_within for ours, _ in sides.values()]
    lines.append(["across ≤ 1.2 × within", *(f"{kept(r <= 1.2)}: {listed(r)}" for r in ratios)])
    return table(("aim", *sides), lines)


def means(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    return rows[rows.method == method].groupby("dataset")[list(FIGURES)].mean().loc[list(SMALL)]


def missed(ours: "pd.Series[float]", theirs: "pd.Series[float]", *, nearer: bool) -> str:
    good = ours <= theirs if nearer else ours > theirs
    said = [f"{name} ({bare(ours[name], 4)} and {bare(theirs[name], 4)})" for name in SMALL if not good[name]]
    return kept(good) if not said else f"all but {', '.join(said)}"


def kept(good: "pd.Series[bool]") -> str:
    return "all six" if good.all() else "all but " + ", ".join(name for name in SMALL if not good[name])


def listed(values: "pd.Series[float]") -> str:
    return ", ".join(bare(value, 2) for value in values)


def aim() -> str:
    """AIM as in the tables above, and with its authors' settings."""
    smaller = columns_of_two(1)
    smaller = smaller[(smaller.method == "AIM") & (smaller.seed == 0)].set_index("dataset")
    whole = pd.read_csv(HERE / "aim.csv").set_index("dataset")
    lines = [
        [
            name,
            *(bare(rows.loc[name, "avd2"], 4) for rows in (smaller, whole)),
            *(bare(rows.loc[name, "tstr_boosting_auc"], 3) for rows in (smaller, whole)),
            f"{whole.loc[name, 'seconds']:,.0f}",
        ]
        for name in smaller.index
        if name in whole.index
    ]
    heads = (f"{name}, {which}" for name in ("2-way", "AUC") for which in ("above", "its authors'"))
    return table(("table", *heads, "CPU seconds"), lines, "lr")


def twice() -> str:
    """What a second measurement of some pairs does: AUC and 2-way distance, means over seeds."""
    rows = pd.read_csv(HERE / "twice.csv")
    ways = list(dict.fromkeys(sorted(zip(rows.again, rows.share, strict=True), key=WAYS.index)))
    lines = []
    for dataset, group in rows.groupby("dataset", sort=False):
        first = str(dataset)
        for epsilon, cells in group.groupby("epsilon"):
            found = cells.groupby(["again", "share"])[["boosting_auc", "avd2"]].mean()
            figures = [f"{found.loc[way].boosting_auc:.3f} ({found.loc[way].avd2:.4f})" for way in ways]
            lines.append([first, f"{epsilon:g}", *figures])
            first = ""
    named = (again if not share else f"{again}, {share:.0%}" for again, share in ways)
    return table(("table", "ε", *named), lines, "lr")


def fits() -> str:
    """Which model is fitted to one noisy Gram matrix."""
    rows = pd.read_csv(HERE / "fit.csv")
    figures = ("avd1", "avd2", "avd3", "tstr_acc", "tstr_f1", "tstr_auc")
    lines = [
        [
            row["method"],
            f"{row['epsilon']:g}" if pd.notna(row["epsilon"]) else "",
            str(row["seed"]),
            f"{row['seconds']:.0f}" if pd.notna(row["seconds"]) else "",
            *(bare(row[name], 3) for name in figures),
        ]
        for _, row in rows.iterrows()
    ]
    heads = ("model", "ε", "seed", "seconds", "avd1", "avd2", "avd3", "accuracy", "F1", "AUC")
    return table(heads, lines, "lr")


def won(method: str, rival: str, figure: str) -> int:
    """In how many of all cells (table and ε, seed 0) one method has the better figure."""
    part = columns_of_two()
    wide = part[part.seed == 0].pivot_table(figure, ["dataset", "epsilon"], "method")
    better = wide[method] < wide[rival] if "avd" in figure else wide[method] > wide[rival]
    return int(better.sum())


def rivals() -> str:
    """How often Gram, and Gram with the target named, is better than each central method."""
    part = columns_of_two()
    part = part[(part.seed == 0) & part.epsilon.notna()]
    count = len(part[["dataset", "epsilon"]].drop_duplicates())
    lines = [
        [NAMES[method], NAMES[rival], *(f"{won(method, rival, name)} of {count}" for name in FIGURES)]
        for rival in ("MST", "AIM")
        for method in ("Gram", "Gram+target")
    ]
    return table(("method", "beside", *FIGURES.values()), lines, "llr")


def predicted() -> str:
    """AUC and log loss of a column predicted by Bayes' rule and by boosting, means over seeds."""
    rows = pd.read_csv(HERE / "predict.csv", dtype={"known": str})
    wide = rows.pivot_table(["auc", "log_loss"], ["known", "dataset", "epsilon"], "method")
    ways = ("bayes", "boosting", "boosting x4", "real")
    figures = [(figure, way) for figure in ("auc", "log_loss") for way in ways]
    keys = [(known, name, f"{epsilon:g}") for known, name, epsilon in wide.index]
    columns = [*(once(part) for part in list(zip(*keys, strict=True))[:2]), [key[2] for key in keys]]
    columns += [[bare(value) for value in wide[figure]] for figure in figures]
    heads = ("known", "table", "ε", *(f"{name}: {way}" for name in ("AUC", "log loss") for way in ways))
    return table(heads, zip(*columns, strict=True), "llr")


def few() -> str:
    """Few people: the rule's share beside a fifth, means over the seeds."""
    rows = pd.read_csv(HERE / "few.csv")
    figures = ["share", "auc", "f1", "avd2"]
    means = rows.pivot_table(figures, ["dataset", "people", "epsilon"], "rule", sort=False)
    head = [f"{figure}, {rule}" for figure in ("AUC", "F1", "2-way") for rule in ("a fifth", "rule")]
    lines = []
    names = once(str(dataset) for dataset, _, _ in means.index)
    for name, ((_, people, epsilon), row) in zip(names, means.iterrows(), strict=True):
        both = [bare(row[figure, rule]) for figure in figures[1:] for rule in ("fifth", "few")]
        lines.append([name, f"{people:,}", f"{epsilon:g}", bare(row["share", "few"], 2), *both])
    return table(["table", "people", "ε", "share", *head], lines, "lr")


def three() -> str:
    """Three columns with a target: fitted to pairs alone, drawn to what these say, with chosen tables besides."""
    rows, lines = pd.read_csv(HERE / "three.csv"), []
    figures = {"auc": "AUC", "f1": "F1", "avd2": "2-way"}
    ways = {"pairs": "pairs alone", "drawn": "drawn", "drawn+4": "and 4 tables", "drawn+8": "and 8"}
    means = rows.groupby(["dataset", "epsilon", "method"])[list(figures)].mean().unstack()
    for dataset in dict.fromkeys(rows.dataset):
        for first, (epsilon, row) in enumerate(means.loc[dataset].iterrows()):
            said = [bare(row[figure, way], 4) for figure in figures for way in ways]
            lines.append([dataset if not first else "", f"{epsilon:g}", *said])
    heads = (f"{figure}: {way}" for figure in figures.values() for way in ways.values())
    return table(("table", "ε", *heads), lines, "lr")


def across() -> str:
    """Three-way tables across two holders: what parts them from those within one, seed by seed, ± standard error."""
    rows, lines = pd.read_csv(HERE / "across.csv"), []
    figures = {"auc": "AUC", "f1": "F1", "avd2": "2-way"}
    ways = {"paired": "either holder's two", "any": "any two"}
    wide = rows.pivot_table(list(figures), ["dataset", "epsilon", "seed"], "method", sort=False).dropna()
    for key, part in wide.groupby(["dataset", "epsilon"], sort=False):
        said = []
        for figure in figures:
            said.append(bare(part[figure, "held"].mean(), 4))
            gaps = [part[figure, way] - part[figure, "held"] for way in ways]
            said += [f"{gap.mean():+.4f} ± {gap.sem():.4f}".replace("0.", ".") for gap in gaps]
        lines.append([str(key[0]), f"{key[1]:g}", str(len(part)), *said])
    names = once(line[0] for line in lines)
    heads = (
        f"{figure}: {way}" for figure in figures.values() for way in ("its holder's two", *ways.values())
    )
    body = [[name, *line[1:]] for name, line in zip(names, lines, strict=True)]
    return table(("table", "ε", "seeds", *heads), body, "lr")


def across_gain(figure: str) -> str:
    """What tables across holders gain over all tables, ε and seeds: mean ± standard error."""
    wide = pd.read_csv(HERE / "across.csv").pivot_table(figure, ["dataset", "epsilon", "seed"], "method")
    gap = wide["any"] - wide["held"]
    return f"{gap.mean():+.4f} ± {gap.sem():.4f}".replace("0.", ".")


def ruled() -> str:
    """Rules in the fit: distances over all pairs and over those that rules tie, means over the seeds."""
    rows = pd.read_csv(HERE / "rules.csv")
    found = rows.pivot_table(["avd2", "avd2_ruled", "kept", "seconds"], "method", "dataset")
    ways = {"none": "no rules", "asked": "asked", "zeros": "zeros", "law": "law given the rules"}
    names = list(dict.fromkeys(rows.dataset))
    digits = {"avd2": 4, "avd2_ruled": 4, "kept": 3, "seconds": 1}
    lines = [
        [
            said,
            *(
                bare(found.loc[way, (figure, name)], many)
                for name in names
                for figure, many in digits.items()
            ),
        ]
        for way, said in ways.items()
    ]
    heads = (f"{name}: {figure}" for name in names for figure in ("all pairs", "tied", "kept", "seconds"))
    return table(("", *heads), lines, "lr")


@cache
def at_equal_noise() -> pd.DataFrame:
    """Means over seeds by table, ε and method; Gram with all rows at one holder is a method of its own."""
    rows = pd.read_csv(HERE / "equal.csv")
    rows.loc[rows.partition == "rows", "method"] = "one holder"
    return rows.groupby(["dataset", "epsilon", "method"], sort=False)[list(EQUAL)].mean().unstack()


def equal() -> str:
    """Gram with the target named beside central methods that have its noise: 2-way distance, AUC and F1."""
    wide = at_equal_noise()
    lines = []
    for dataset in (*SMALL, *CUTS):
        first = dataset
        for epsilon, row in wide.loc[dataset].sort_index().iterrows():
            cells = [(figure, method, 4 if figure == "avd2" else 3) for figure in EQUAL for method in BESIDE]
            said = [bare(row[f, m], many) if pd.notna(row[f, m]) else "–" for f, m, many in cells]
            lines.append([first, f"{epsilon:g}", *said])
            first = ""
    heads = (f"{figure}: {name}" for figure in EQUAL.values() for name in BESIDE.values())
    return table(("table", "ε", *heads), lines, "lr")


def equal_won() -> str:
    """In how many cells Gram is at least as good: 2-way no farther; AUC and F1 no lower, but for .002."""
    wide = at_equal_noise()
    lines = []
    apart = tuple(name for name in SMALL if name not in TOLD)
    for label, names in (
        ("whole", SMALL),
        (", ".join(TOLD), TOLD),
        (", ".join(apart), apart),
        ("4,000, 2,000 and 1,000 people", CUTS),
    ):
        part = wide[[name in names for name, _ in wide.index]]
        for ours in list(BESIDE)[:2]:
            for theirs in list(BESIDE)[2:]:
                counts = []
                for figure in EQUAL:
                    both = part[figure][[ours, theirs]].dropna()
                    ahead = both[ours] - both[theirs]
                    good = ahead <= 0 if figure == "avd2" else ahead >= -0.002
                    counts.append(f"{int(good.sum())} of {len(both)}")
                lines.append([label, BESIDE[ours], BESIDE[theirs], *counts])
    return table(("tables", "Gram, target named", "central", *EQUAL.values()), lines, "lllr")


def told() -> str:
    """What a target that is drawn by its row's other columns changes, beside one that its component draws."""
    rows = pd.read_csv(HERE / "told.csv")
    apart = tuple(name for name in SMALL if name not in TOLD)
    lines = []
    for names, label in (
        (TOLD, ", ".join(TOLD)),
        (apart, ", ".join(apart)),
        (CUTS, "4,000 people and fewer"),
        (WIDE, ", ".join(WIDE)),
    ):
        for holders, part in rows[rows.dataset.isin(names)].groupby("holders"):
            cells = [str(len(part))]
            for figure in EQUAL:
                after, before = part[figure], part[f"{figure}_component"]
                apart_by = after / before - 1 if figure == "avd2" else after - before
                sure, many = apart_by.sem(), 1 if figure == "avd2" else 4
                scale, unit = (100, " %") if figure == "avd2" else (1, "")
                cells.append(f"{scale * apart_by.mean():+.{many}f}{unit} ± {scale * sure:.{many}f}{unit}")
            lines.append([label, "one" if holders == 1 else "two", *cells])
    return table(("tables", "holders", "cells", *EQUAL.values()), lines, "llr")


def speed() -> str:
    rows = pd.read_csv(HERE / "speed.csv")
    lines = [
        [
            str(row.case), f"{row.width:,}", f"{row.columns}", f"{row.epsilon:g}", f"{row.steps:,}",
            f"{row.seconds:.1f}", f"{row.cpu_seconds:.1f}", f"{row.peak_mb:,} MB",
        ]
        for row in rows.itertuples()
    ]  # fmt: skip
    return table(("table", "levels", "columns", "ε", "steps", "seconds", "CPU seconds", "peak"), lines)


TABLES = {
    "speed": speed,
    "rules": ruled,
    "equal": equal,
    "equal won": equal_won,
    "few": few,
    "told": told,
    "three": three,
    "across": across,
    "across auc": partial(across_gain, "auc"),
    "across f1": partial(across_gain, "f1"),
    "predicted": predicted,
    "beside": beside,
    "seeds": seeds,
    "prices": prices,
    "aims": aims,
    "rivals": rivals,
    "distance": partial(over, "avd2"),
    "auc": partial(over, "tstr_boosting_auc"),
    "aim": aim,
    "wide pairs": partial(as_it_stands, HERE / "wide.csv", "lr"),
    "twice": twice,
    "fits": fits,
}
