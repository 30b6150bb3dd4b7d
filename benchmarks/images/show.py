"""The tables of README.md, from ours.csv and paper.csv: `make tables NAME=images`."""

from itertools import product
from pathlib import Path

import pandas as pd

from common.markdown import table

HERE = Path(__file__).parent
SERIES = {"sine": "Sine", "energy": "Energy", "air": "Air", "stock": "Stock"}
BOUNDS = ("largest", "declared", "bought")
METHODS = ("moments", "moments, upright")
BESIDE = ("digit", "digit, parity, size", "digit, ink")
NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "usps": "USPS", "emnist": "EMNIST, 47 classes"}


def measured() -> pd.DataFrame:
    return pd.read_csv(HERE / "ours.csv")


def accuracies() -> str:
    """A line for each data set and classifier, a column for each ε."""
    ours = measured()
    ours = ours[ours.split == "one holder"]
    steps = sorted(set(ours.epsilon) - {0.0})
    lines = []
    for (dataset, name), method in product(NAMES.items(), METHODS):
        for classifier in ("cnn", "cnn, longer", "mlp", "logistic"):
            rows = ours[(ours.dataset == dataset) & (ours.classifier == classifier)]
            drawn = rows[rows.method == method]
            if not len(drawn):
                continue
            people = f"{name}, {rows.people.max():,} people" if method == "moments" else f"{name}, upright"
            lines.append(
                (
                    people if classifier == "cnn" else "",
                    classifier,
                    *(_mean(drawn[drawn.epsilon == step].accuracy) for step in steps),
                    _mean(drawn[drawn.epsilon == 0].accuracy),
                    _mean(rows[rows.method == "real"].accuracy),
                )
            )
    return table(("data", "trained", *(f"ε = {step:g}" for step in steps), "no noise", "real images"), lines)


def silos() -> str:
    """20 silos beside one holder, at SGDE's ε. Of offers that were added also what the fit itself tells."""
    every = measured()
    every = every[(every.epsilon == 1.5) & every.method.isin(METHODS)]
    lines = []
    for (dataset, method), rows in every.groupby(["dataset", "method"], sort=False):
        offers, drawn = rows[rows.split == "offers"], rows[rows.classifier == "cnn"]
        if not len(offers):
            continue
        lines.append(
            (
                NAMES[dataset] + method.removeprefix("moments"),
                *(_mean(drawn[drawn.split == split].accuracy) for split in ("one holder", "20 silos")),
                _most(rows[rows.split == "20 silos"].up_mb),
                *(
                    _mean(offers[offers.classifier == one].accuracy)
                    for one in ("cnn", "mlp", "logistic", "fit")
                ),
                _most(offers.up_mb),
            )
        )
    columns = ("one holder", "20 silos, sums under pads", "sent by a silo", "20 silos, offers added")
    return table(("data", *columns, "mlp", "logistic", "the fit's own rule", "an offer has"), lines)


def veil() -> str:
    """Offers by how much variance is drawn besides: what a CNN learns from them, and what the fit itself tells."""
    rows = pd.read_csv(HERE / "offers.csv")
    rows = rows[rows.classifier.isin(("cnn", "fit"))]
    lines = [
        (
            f"{NAMES[str(dataset)]}{str(method).removeprefix('moments')}, {silos} silos, ε = {step:g}",
            who,
            *(_mean(some[some.veil == times].accuracy) for times in (0, 3, 8, 20)),
        )
        for (dataset, method, silos, step, who), some in rows.groupby(
            ["dataset", "method", "silos", "epsilon", "classifier"], sort=False
        )
    ]
    return table(
        (
            "offers of",
            "",
            *(f"{times} times the variance" if times else "nothing besides" for times in (0, 3, 8, 20)),
        ),
        lines,
    )


def published() -> str:
    """Ours beside what was published, with the number of images behind each."""
    ours, paper = measured(), pd.read_csv(HERE / "paper.csv")
    ours = ours[(ours.classifier == "cnn") & (ours.split == "one holder")]
    lines = []
    for dataset in ("mnist", "fashion_mnist"):
        for step in (1.0, 10.0):
            mine = ours[(ours.dataset == dataset) & (ours.epsilon == step)]
            said = paper[(paper.dataset == dataset) & (paper.epsilon == step)]
            lines.append(
                (
                    f"{NAMES[dataset]}, ε = {step:g}",
                    *(_mean(mine[mine.method == method].accuracy) for method in METHODS),
                    f"{mine.people.max():,}",
                    ", ".join(f"{row.method} {row.accuracy:.3g}"[:40] for row in said.itertuples()),
                )
            )
    return table(("", *METHODS, "images", "published (60,000 images)"), lines)


def others() -> str:
    """Our other methods at what a person pays in all, from their own files, beside moments at the same ε."""
    ours = measured()
    sgde, gen_fl = (pd.read_csv(HERE.parent / name / "ours.csv") for name in ("sgde", "gen_fl"))
    ours = ours[ours.classifier == "cnn"]
    turned, ours = (ours[ours.method == method] for method in reversed(METHODS))
    pool = sgde[(sgde.method == "synthetic") & (sgde.table == "III")].assign(accuracy=sgde.accuracy / 100)
    found = {
        "SGDE's β-VAEs, 20 silos": (1.5, pool),
        "moments, 20 silos, offers added": (1.5, ours[(ours.split == "offers") & (ours.epsilon == 1.5)]),
        "moments, upright, 20 silos, offers added": (1.5, turned[turned.split == "offers"]),
        "moments, 20 silos, sums under pads": (1.5, ours[(ours.split == "20 silos") & (ours.epsilon == 1.5)]),
        "DP-GenFL's private GAN, drawn images alone": (
            4,
            gen_fl[gen_fl.method == "DP-GenFL γ=1, private GAN"],
        ),
        "DP-GenFL, real images, too": (4, gen_fl[gen_fl.method == "DP-GenFL γ=0.2, private GAN"]),
        "DP-FL, real images alone": (4, gen_fl[gen_fl.method == "DP-FL"]),
        "moments, one holder": (4, ours[(ours.split == "one holder") & (ours.epsilon == 4)]),
    }
    lines = [
        (
            name,
            f"{step:g}",
            *(_mean(rows[rows.dataset == dataset].accuracy) for dataset in ("mnist", "fashion_mnist")),
        )
        for name, (step, rows) in found.items()
    ]
    return table(("", "ε", "MNIST", "Fashion-MNIST"), lines)


def tried() -> str:
    """Prototypes at ε = 10, with a CNN that learned for longer."""
    rows = pd.read_csv(HERE / "tried.csv")
    lines = [
        (what, *(_mean(some[some.dataset == dataset].accuracy_longer) for dataset in list(NAMES)[:3]))
        for what, some in rows.groupby("what", sort=False)
    ]
    return table(("", *list(NAMES.values())[:3]), lines)


def _most(megabytes: "pd.Series[float]") -> str:
    return f"{megabytes.max():.1f} MB" if len(megabytes) else "–"


def _mean(values: "pd.Series[float]") -> str:
    if not len(values):
        return "–"
    half = (values.max() - values.min()) / 2
    return f"{values.mean():.3f}".lstrip("0") + (
        f" ± {half:.3f}".replace("0.", ".") if len(values) > 1 else ""
    )


def speed() -> str:
    rows = pd.read_csv(HERE / "speed.csv")
    lines = [
        [
            f"{row.people:,}{', upright' if row.upright else ''}",
            f"{row.features}",
            f"{row.statistics_s:.1f}",
            f"{row.fit_s:.1f}",
            f"{row.rest_s:.1f}",
            f"{row.peak_mb:,} MB",
        ]
        for row in rows.itertuples()
    ]
    return table(("images", "features", "statistics", "fit", "the rest", "peak"), lines)


def norms() -> str:
    """How far the means are off, and what comes of it, by the bound on norms; a line for each data set and ε."""
    ours = pd.read_csv(HERE / "norms.csv")
    lines = []
    for dataset, name in (NAMES | SERIES).items():
        for number, (step, rows) in enumerate(ours[ours.dataset == dataset].groupby("epsilon")):
            by = dict(list(rows.groupby("bound")))
            lines.append(
                (
                    "" if number else f"{name}, {rows.people.max():,} people",
                    f"{step:g}",
                    *(f"{by[bound].norm.mean():.2f}" for bound in BOUNDS[1:]),
                    *(f"{by[bound].means_off.mean():.3f}" for bound in BOUNDS),
                    *(f"{by[bound].figure.mean():.3f}" for bound in BOUNDS),
                )
            )
    off, figure = ([f"{what}: {bound}" for bound in BOUNDS] for what in ("means off", "figure"))
    return table(
        ("data", "ε", "norm: declared", "bought", off[0], *BOUNDS[1:], figure[0], *BOUNDS[1:]), lines
    )


def labels() -> str:
    """What the fit tells of each label, by the labels that there are; a line for each data set and ε."""
    ours = pd.read_csv(HERE / "labels.csv")
    columns = [(names, label) for names in BESIDE for label in names.split(", ")]
    lines = []
    for dataset, name in NAMES.items():
        for number, (step, rows) in enumerate(ours[ours.dataset == dataset].groupby("epsilon")):
            cells = [
                rows[(rows["labels"] == names) & (rows["label"] == label)].fit for names, label in columns
            ]
            people = "" if number else f"{name}, {rows.people.max():,} people"
            lines.append((people, f"{step:g}", *map(_mean, cells)))
    heads = ("digit, alone", "digit", "parity", "size", "digit, of six inks", "ink")
    return table(("data", "ε", *heads), lines)


TABLES = {
    "labels": labels,
    "norms": norms,
    "speed": speed,
    "accuracies": accuracies,
    "silos": silos,
    "veil": veil,
    "published": published,
    "others": others,
    "tried": tried,
}
