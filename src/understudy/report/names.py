"""Names in plain words: figures, models, scores, attacks. An unknown name stands for itself."""

from understudy.evaluate.figure import What
from understudy.evaluate.utility.visits import AGAIN
from understudy.report.words import capital

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
    "linkability": (
        "Linking",
        "do two parties' columns of one person lead to the same synthetic row? (Giomi 2023)",
    ),
    "inference": (
        "Inference of",
        "does the nearest synthetic row reveal a column of a person whose other columns are known? (Giomi 2023)",
    ),
    "shadow": (
        "Shadow models",
        "can a classifier tell tables made with a person from tables made without? (Stadler 2022)",
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


def figure_name(what: What) -> str:
    """`avd2_cross` → "Pairs of columns, across parties"; `tstr_mlp_auc` → "Neural network"."""
    if what.part == "between":
        return PEOPLE[what.part].format(*what.of)
    plain = _plain(what)
    return f"{plain} ({' and '.join(what.of)})" if what.of else plain


def _plain(what: What) -> str:
    if what.measure == "tstr":
        if what == AGAIN.about(*what.of):
            return "Gradient boosting: does another event follow?"
        return (
            f"Small CNN: {CNN[what.score]}"
            if what.part == "cnn"
            else capital(MODELS.get(what.part, what.part))
        )
    if what.measure in SUMS:
        return SUMS[what.measure].format(what.column)
    if what.part in PEOPLE:
        return PEOPLE[what.part]
    words = {"cmd": "All columns, by level numbers"} | STRENGTHS | ARRAYS | VALUES
    sets = SETS.get(what.columns, f"Sets of {what.columns}") if what.columns else what.name
    return words[what.measure] + SCOPES[what.part] if what.measure in words else sets + SCOPES[what.part]


def attack_name(what: What) -> tuple[str, str]:
    """An attack's name and what it asks."""
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
