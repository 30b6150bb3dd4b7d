"""The figures in the sentences of README.md, from ours.csv and paper.csv: `make tables NAME=vertical`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from common.figures import found, listed, span, where

HERE = Path(__file__).parent
EPSILONS, SIDES = (0.5, 2.0, 8.0), ("avd2_within", "avd2_cross")
CRITICS = ("VertiGAN", "VDGAN-DPSGD")
GANS = ("VertiGAN", "VDGAN-DPSGD", "VDGAN-PATE", "central GAN")
METHODS = (*GANS, "DPLT", "DPLT+", "Gram")


def score(dataset: str, method: str, epsilon: float | None, name: str) -> float:
    return float(
        found(HERE / "ours.csv", study="main", dataset=dataset, method=method, epsilon=epsilon)[name]
    )


def scores(dataset: str, method: str, epsilon: float | None, *names: str, digits: int = 3) -> str:
    return listed((score(dataset, method, epsilon, name) for name in names), digits)


def over_prices(dataset: str, method: str, name: str, digits: int = 3) -> str:
    return listed((score(dataset, method, epsilon, name) for epsilon in EPSILONS), digits)


def spread(dataset: str, methods: Sequence[str], name: str, digits: int = 3, **key: object) -> str:
    """From the least to the largest mean over these methods and all ε."""
    rows = pd.concat(
        where(HERE / "ours.csv", study="main", dataset=dataset, method=method, **key) for method in methods
    )
    return span(rows.groupby(["method", "epsilon"], dropna=False)[name].mean(), digits)


def paper(dataset: str, method: str, epsilon: float | None, measure: str = "tstr_mlp_acc") -> float:
    return float(
        found(HERE / "paper.csv", dataset=dataset, method=method, epsilon=epsilon, measure=measure).value
    )


def adult_within() -> str:
    falls = (
        f"{name} from {score('adult', name, 0.5, 'avd2_within'):.2f} to {score('adult', name, 8, 'avd2_within'):.2f}"
        for name in CRITICS
    )
    return f"{' and '.join(falls)}: they come nearer within a party as ε grows,"


def adult_across() -> str:
    private, free = (listed((score("adult", name, e, "cmd_cross") for name in CRITICS), 1) for e in (8, None))
    return (
        f"{private} at ε = 8 and {free} without DP, where independent columns have "
        f"{score('adult', 'independent', None, 'cmd_cross'):.2f}"
    )


def adult_seeds() -> str:
    rows = where(HERE / "ours.csv", study="main", dataset="adult", method="VertiGAN", epsilon=0.5)
    return f"{listed(rows.cmd_cross, 2)}, and the MLP's AUC {listed(rows.tstr_mlp_auc, 2)}"


def har_gram() -> str:
    two, eight = (score("har", "Gram", e, "tstr_mlp_acc") for e in (2, 8))
    return f"{two:.3f} at ε = 2 and {eight:.3f} at ε = 8"


def har_sent() -> str:
    gram, gan = (
        (score("har", method, epsilon, "up_mb"), score("har", method, epsilon, "seconds"))
        for method, epsilon in (("Gram", 8), ("VertiGAN", None))
    )
    return f"{gram[0]:.0f} MB instead of {gan[0]:,.0f} and in {gram[1]:.0f} s instead of {gan[1]:.0f}"


def har_dplt() -> str:
    theirs = span((paper("har", "DPLT", e) for e in EPSILONS), 2)
    return f"{theirs} of accuracy, ours {spread('har', ['DPLT'], 'tstr_mlp_acc', 2)}"


def har_attack() -> str:
    return (
        f"{score('har', 'bootstrap', None, 'mia_acc'):.2f} of a bootstrap of the rows. On every method's rows, those "
        f"without DP included, it is right for {spread('har', METHODS, 'mia_acc', 2)}; the paper reports "
        f"{paper('har', 'VertiGAN', None, 'mia_acc'):.3f} for VertiGAN without DP"
    )


def w8a_auc() -> str:
    mlp, trees = (spread("w8a-124", ["Gram"], f"tstr_{model}_auc", 2) for model in ("mlp", "adaboost"))
    return f"{mlp} (MLP) and {trees} (AdaBoost), real rows {score('w8a-124', 'Gram', 8, 'trtr_mlp_auc'):.2f} (MLP)"


def a9a_gram() -> str:
    real = score("a9a", "Gram", 8, "trtr_mlp_acc")
    return (
        f"{over_prices('a9a', 'Gram', 'tstr_mlp_acc')} of accuracy at ε = 0.5, 2 and 8 (real rows {real:.3f})"
    )


def a9a_others() -> str:
    rest = spread("a9a", ["VertiGAN", "VDGAN-DPSGD", "DPLT"], "tstr_mlp_acc", epsilon=8)
    best = score("a9a", "central GAN", 8, "tstr_mlp_acc")
    return f"the central GAN ({best:.3f}); VertiGAN, VDGAN-DPSGD and DPLT have {rest}"


def credit_factors() -> str:
    far = score("credit", "independent", None, "avd2_within")
    near = [score("credit", "Gram", e, "avd2_within") for e in (0.5, 8)]
    return f"{far / near[0]:.0f} at ε = 0.5 and {far / near[1]:.0f} at ε = 8"


def credit_auc() -> str:
    real = score("credit", "Gram", 8, "trtr_mlp_auc")
    return f"{spread('credit', ['Gram'], 'tstr_mlp_auc', 2)} (MLP; real rows {real:.2f})"


def credit_free() -> str:
    near, far = (scores("credit", method, None, *SIDES) for method in ("VertiGAN", "independent"))
    return f"{near}, where they have {far}"


def census_free() -> str:
    parts = (
        f"{method}'s AUC is {scores('census', method, None, 'tstr_mlp_auc', 'tstr_adaboost_auc', digits=2)} "
        f"(MLP and AdaBoost) and CMD across {score('census', method, None, 'cmd_cross'):.2f}"
        for method in ("VertiGAN", "central GAN")
    )
    return "; ".join(parts)


def census_others() -> str:
    trees = score("census", "DPLT", 8, "tstr_adaboost_auc")
    mlp = score("census", "central GAN", 8, "tstr_mlp_auc")
    return f"{trees:.2f} and {mlp:.2f}"


def upload_mb() -> str:
    some = (
        where(HERE / "ours.csv", study="upload", dataset="a9a", upload=share).up_mb.mean()
        for share in (0.75, 1)
    )
    return listed(some, 0)


TABLES: dict[str, Callable[[], str]] = {
    "adult independent": partial(scores, "adult", "independent", None, *SIDES),
    "adult gram": partial(scores, "adult", "Gram", 0.5, *SIDES),
    "adult seconds": partial(spread, "adult", ["Gram"], "seconds", 0),
    "adult within": adult_within,
    "adult across": adult_across,
    "adult seeds": adult_seeds,
    "adult central": lambda: f"{score('adult', 'central GAN', None, 'cmd_cross'):.2f}",
    "adult pate": lambda: listed(score("adult", "VDGAN-PATE", e, "avd2_within") for e in (0.5, 8, None)),
    "har gram": har_gram,
    "har sent": har_sent,
    "har cmd": lambda: f"{score('har', 'VertiGAN', None, 'cmd_cross'):.2f}",
    "har dplt cmd": partial(spread, "har", ["DPLT", "DPLT+"], "cmd_cross", 2),
    "har dplt": har_dplt,
    "har attack": har_attack,
    "w8a independent": lambda: f"{score('w8a-124', 'independent', None, 'avd2_within'):.3f}",
    "w8a gram": lambda: f"{over_prices('w8a-124', 'Gram', 'avd2_within')} at ε = 0.5, 2 and 8",
    "w8a dplt": lambda: f"{score('w8a-124', 'DPLT', 8, 'avd2_within'):.3f}",
    "w8a gans": partial(spread, "w8a-124", GANS, "avd2_within", 2),
    "w8a auc": w8a_auc,
    "w8a paper": lambda: (
        f"{paper('w8a-124', 'real rows', None, 'trtr_mlp_acc'):.3f} for real rows, and "
        f"{paper('w8a-124', 'VertiGAN', 8):.3f} for VertiGAN at ε = 8"
    ),
    "a9a gram": a9a_gram,
    "a9a others": a9a_others,
    "credit factors": credit_factors,
    "credit auc": credit_auc,
    "credit free": credit_free,
    "credit central": partial(scores, "credit", "central GAN", None, *SIDES),
    "census gram": lambda: f"{scores('census', 'Gram', 0.5, *SIDES)} within and across",
    "census auc": lambda: listed((score("census", "Gram", e, "tstr_mlp_auc") for e in (0.5, 2)), 2),
    "census others": census_others,
    "census free": census_free,
    "census vertigan": partial(over_prices, "census", "VertiGAN", "avd2_within"),
    "census independent": lambda: f"{score('census', 'independent', None, 'avd2_within'):.3f}",
    "sixteen": lambda: f"{where(HERE / 'ours.csv', study='parties', parties=16).epsilon_person.mean():.0f}",
    "upload mb": upload_mb,
}
