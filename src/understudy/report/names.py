"""Names in plain words: figures, models, scores, attacks. An unknown name stands for itself."""

import re

from understudy.report.words import capital

SETS = {"1": "Single columns", "2": "Pairs of columns", "3": "Sets of 3", "4": "Sets of 4"}
SCOPES = {"": "", "_within": ", one party", "_cross": ", across parties"}
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
    r"mia": (
        "Membership",
        "are synthetic rows closer to a person if the person took part? (Hilprecht 2019)",
    ),
    r"mia_(nearest|log)": ("Membership, {0}", "the same, by the {0} synthetic row (Chen 2020)"),
    r"mia(?:_nearest|_log|)_(\d+)pct_outliers": (
        "Membership, {0} % outliers",
        "the same for people who are unlike the others, the hardest to hide (Zhang 2022)",
    ),
    r"closer_to_train": (
        "Closeness",
        "are synthetic rows closer to people who took part than to others? (Platzer 2021)",
    ),
    r"singling_out_(\w+)": (
        "Singling out, {0}",
        "does a condition on columns that only one synthetic row meets also single out one person? (Giomi 2023)",
    ),
    r"linkability_?(\w*)": (
        "Linking {0}",
        "do two parties' columns of one person lead to the same synthetic row? (Giomi 2023)",
    ),
    r"inference_?(.*)": (
        "Inference of {0}",
        "does the nearest synthetic row reveal a column of a person whose other columns are known? (Giomi 2023)",
    ),
    r"shadow": (
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
    "tstr_cnn_acc": "Small CNN: accuracy",
    "tstr_cnn_bal_acc": "Small CNN: balanced accuracy",
    "tstr_cnn_f1": "Small CNN: F1 (macro)",
    "tstr_cnn_auc": "Small CNN: AUC",
}
PEOPLE = {
    "avd2_people": "Pairs of people’s columns",
    "avd2_events": "Pairs of an event’s columns",
    "avd2_across": "A person’s column and an event’s",
    "avd2_next": "An event’s column and one of the next",
    "avd2_later": "A column and itself two events later",
    "avd1_number": "The number of events",
    "tstr_again_auc": "Gradient boosting: does another event follow?",
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


def figure_name(name: str) -> str:
    """`avd2_cross` → "Pairs of columns, across parties"; `tstr_mlp_auc` → "Neural network"."""
    if match := re.fullmatch(r"avd2_between \((.+) and (.+)\)", name):
        return f"A column of {match[1]} and one of {match[2]}"
    if match := re.fullmatch(r"(\w+) \((.+)\)", name):
        return f"{figure_name(match[1])} ({match[2]})"
    if match := re.fullmatch(r"avd(\d+)(_within|_cross|)", name):
        return SETS.get(match[1], f"Sets of {match[1]}") + SCOPES[match[2]]
    if match := re.fullmatch(r"cmd(_within|_cross|)", name):
        return "All columns, by level numbers" + SCOPES[match[1]]
    if match := re.fullmatch(rf"({'|'.join(STRENGTHS)})(_within|_cross|)", name):
        return STRENGTHS[match[1]] + SCOPES[match[2]]
    if name in ARRAYS or name in PEOPLE:
        return ARRAYS.get(name) or PEOPLE[name]
    if match := re.fullmatch(rf"({'|'.join(SUMS)})_(.+)", name):
        return SUMS[match[1]].format(match[2])
    if name in VALUES:
        return VALUES[name]
    if match := re.fullmatch(r"tstr_([a-z]+)_\w+", name):
        return capital(MODELS.get(match[1], match[1]))
    return name


def attack_name(name: str) -> tuple[str, str]:
    """An attack's name and what it asks."""
    for pattern, (title, asks) in ATTACKS.items():
        if match := re.fullmatch(pattern, name):
            part = match[1] if match.groups() else ""
            part = {"univariate": "1 column", "3": "3 columns"}.get(part, part)
            return title.format(part).strip(), asks.format(part)
    return name, ""
