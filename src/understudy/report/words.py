"""The page's words: names of figures, models, scores and attacks, and figures as text. An unknown name is itself.

Figures have digits that a reader can hold in mind, and a privacy price is never rounded down.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.evaluate.figure import What
from understudy.ground.check import readable
from understudy.privacy.accounts.budget import right_at, shown

if TYPE_CHECKING:
    from jinja2 import Environment

SETS = {1: "Single columns", 2: "Pairs of columns"}
SCOPES = {"": "", "within": ", one party", "cross": ", across parties"}
MODELS = {
    "mlp": "neural network",
    "forest": "random forest",
    "adaboost": "AdaBoost",
    "boosting": "gradient boosting",
    "linear": "linear model",
}
VALUES = {
    "ks": "Largest difference of shares up to any number (KS)",
    "wasserstein": "Distance to move, share of the bounds (Wasserstein)",
    "quantile_error": "Error of quantiles, share of the real 5–95 % range",
    "zero_share": "Share of exact zeros",
    "negative_share": "Share of negative numbers",
    "spike_share": "Share of the most frequent number",
}
STRENGTHS = {
    "pearson": "Numbers (Pearson)",
    "spearman": "Ranks of numbers (Spearman)",
    "cramers_v": "Levels (Cramér’s V)",
    "correlation_ratio": "Levels and numbers (correlation ratio)",
}
SCORES = {
    "auc": ("AUC", "how often the true class is ranked above another"),
    "acc": ("Accuracy", "share of right answers"),
    "bal_acc": ("Balanced accuracy", "share of right answers, every class counting alike"),
    "f1": ("Macro-F1", "precision and recall, every class counting alike"),
    "r2": ("R²", "share of the variance that is explained"),
    "mae": ("Mean absolute error", "in the target's own unit"),
}
ATTACKS = {
    "mia": ("Membership", "are synthetic rows closer to a person if the person took part? (Hilprecht 2019)"),
    "closer_to_train": (
        "Closeness",
        "are synthetic rows closer to people who took part than to others? (Platzer 2021)",
    ),
    "singling_out": (
        "Singling out",
        "does a condition on columns that only one synthetic row meets also single out one person? (Giomi 2023)",
    ),
    "linkability": ("Linking", "do two parties' columns of one person lead to the same synthetic row? (Giomi 2023)"),
    "inference": (
        "Inference of",
        "does the nearest synthetic row reveal a column of a person whose other columns are known? (Giomi 2023)",
    ),
}
MEASURES = {
    "acc": "right guesses",
    "auc": "AUC",
    "tpr_at_1pct": "caught at 1 % false alarms",
    "share": "share closer",
    "copies": "people whose row is in the table",
    "success": "success",
}
ARRAYS = {
    "mmd": "Distance of the distributions, squared MMD",
    "coverage": "Coverage: real rows with a drawn one near",
    "autocorrelation": "Difference of the autocorrelations",
    "next_step_mae": "Error of the next step, mean",
    "dcr": "Distance of drawn rows to the nearest real one",
}
CNN = {"acc": "accuracy", "bal_acc": "balanced accuracy", "f1": "F1 (macro)", "auc": "AUC"}
PEOPLE = {
    "people": "Pairs of people’s columns",
    "events": "Pairs of an event’s columns",
    "across": "A person’s column and an event’s",
    "next": "An event’s column and one of the next",
    "later": "A column and itself two events later",
    "number": "The number of events",
    "between": "A column of {} and one of {}",
}
SUMS = {
    "total_mean": "Sum of “{}” a person, mean",
    "total_q90": "Sum of “{}” a person, 90 % quantile",
    "mean_q90": "Average of “{}” a person, 90 % quantile",
}
CLOSENESS = {
    "dcr": "Distance to the nearest training row, median",
    "dcr_p5": "Distance to the nearest training row, 5th percentile",
    "nndr": "Nearest to second nearest, median ratio",
    "nndr_p5": "Nearest to second nearest, 5th percentile",
}


def pages_in(*folders: Path, **known: Any) -> "Environment":
    """The pages in these folders; every text in them is escaped, and none turns a line around."""
    import jinja2  # which a command starts without

    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: readable(value) if type(value) is str else value,
    )  # fmt: skip
    pages.globals |= known
    return pages


def figure_name(what: What) -> str:
    """`avd2_cross` → "Pairs of columns, across parties"; `tstr_mlp_auc` → "Neural network"."""
    if what.part == "between":
        return PEOPLE[what.part].format(*what.of)
    plain = _plain(what)
    return f"{plain} ({' and '.join(what.of)})" if what.of else plain


def _plain(what: What) -> str:
    if what.measure == "tstr":
        if what.part == "again":
            return "Gradient boosting: does another event follow?"
        if what.part == "cnn":
            return f"Small CNN: {CNN[what.score]}"
        return capital(MODELS.get(what.part, what.part))
    if what.measure in SUMS:
        return SUMS[what.measure].format(what.column)
    if what.measure == "lag":
        return f"“{what.column}” and itself, {what.columns} event{'s' * (what.columns != 1)} later"
    if what.part in PEOPLE:
        return PEOPLE[what.part]
    words = {"cmd": "All columns, by level numbers"} | STRENGTHS | ARRAYS | VALUES
    sets = SETS.get(what.columns, f"Sets of {what.columns}") if what.columns else what.name
    return words[what.measure] + SCOPES[what.part] if what.measure in words else sets + SCOPES[what.part]


def attack_name(what: What) -> tuple[str, str]:
    title, asks = ATTACKS.get(what.measure, (what.name, ""))
    if what.measure == "singling_out":
        title += f", {'1 column' if what.part == 'univariate' else f'{what.part} columns'}"
    elif what.outliers is not None:
        title += f", {what.outliers} % outliers"
        asks = "the same for people who are unlike the others, the hardest to hide (Zhang 2022)"
    elif what.measure == "mia" and what.part:
        title += f", {what.part}"
        asks = f"the same, by the {what.part} synthetic row (Chen 2020)"
    elif told := what.column or what.part:
        title += f" {told}"
    return f"{title} ({' and '.join(what.of)})" if what.of else title, asks


def lower_bound(epsilon: float | None) -> str:
    """A figure that was reached at least, rounded down; None: no amount of the claimed noise explains it."""
    return "∞" if epsilon is None else f"{math.floor(1000 * epsilon) / 1000:g}"


def at_price(epsilon: float | None, delta: float | None = None) -> str:
    """ "ε = 1.2 at δ = 10⁻⁵" in a piece that no line break parts."""
    said = f"ε\u00a0=\u00a0{shown(epsilon)}"
    return said if delta is None else f"{said} at δ\u00a0=\u00a0{chance(delta)}"


def best_guess(epsilon: float | None, delta: float, exact: float | None = None) -> str:
    """How often a guess at even odds whether one person took part can be right at most: (e^ε + δ) / (1 + e^ε). `exact`:
    by all of the run's curve, where that is known, which is less. Wasserman and Zhou (JASA 2010), Kairouz et al. (ICML
    2015): the two errors of any test under (ε, δ)-DP sum to at least 2(1 − δ) / (1 + e^ε). Rounded up.
    """
    if epsilon is None or math.isinf(epsilon):
        return "always"
    share = right_at(epsilon, delta)
    share = share if exact is None else min(share, max(0.5, float(exact)))
    return f"{math.ceil(share * 1000 - 1e-9) / 10:g} %"


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where there is none."""
    return "–" if value is None else f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def short(text: str, most: int) -> str:
    """A text of at most so many letters: names tend to differ at their ends, so the middle goes."""
    return text if len(text) <= most else f"{text[: most - most // 2 - 1]}…{text[-(most // 2) :]}"


def percent(share: float) -> str:
    """A share in whole per cent; what is there but rounds to nothing is said to be there."""
    return "<1" if 0 < share < 0.005 else f"{100 * share:.0f}"


def right_about(quality: Mapping[str, Any]) -> str:
    """An offer's figure: "right about 83 % (81 to 85 %) of its own people". The interval is rounded outwards."""
    low, high = math.floor(100 * quality["low"]), math.ceil(100 * quality["high"])
    return f"right about {percent(quality['accuracy'])}\u00a0% ({low} to {high}\u00a0%) of its own people"


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def chance(delta: float) -> str:
    """δ as a power of ten: 10⁻⁵, 2·10⁻⁶, 0."""
    if not delta:
        return "0"
    digits, _, power = f"{delta:.2e}".partition("e")
    digits = f"{float(digits):g}"
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def luck(p: float | None) -> str:
    """How likely something is by luck; small chances are rounded up, and a dash stands where none was computed."""
    if p is None:
        return "–"
    return "<0.001" if p < 0.001 else f"{math.ceil(p * 1000 - 1e-9) / 1000:.3f}" if p < 0.1 else f"{p:.2f}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
