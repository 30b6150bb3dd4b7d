"""The page's words: names of figures, models, scores and attacks (`words.toml`), and
figures as text. An unknown name is itself.

Figures have digits that a reader can hold in mind, and a privacy price is never rounded
down.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.evaluate.figure import FigureKey
from understudy.ground.check import pluralize, readable
from understudy.ground.durable import read_toml
from understudy.privacy.accounts.budget import shown

if TYPE_CHECKING:
    from jinja2 import Environment

SETS = {1: "Single columns", 2: "Pairs of columns"}
SCOPES = {"": "", "within": ", one party", "cross": ", across parties"}
_WORDS: dict[str, Any] = read_toml(Path(__file__).with_name("words.toml"))
OMITTED: list[list[str]] = _WORDS["omitted"]  # from a published page, and why
KINDS: dict[str, str] = _WORDS["kinds"]  # of rows that are no table
MARKED: dict[str, str] = _WORDS["marks"]
# of findings about people and their events
SUBJECTS: dict[str, str] = _WORDS["subjects"]
MODELS: dict[str, str] = _WORDS["models"]
FIGURES: dict[str, str] = _WORDS["figures"]
STRENGTHS: dict[str, str] = _WORDS["strengths"]
SCORES: dict[str, list[str]] = _WORDS["scores"]  # a name, and what it means
ATTACKS: dict[str, list[str]] = _WORDS["attacks"]  # a name, and what it asks
MEASURES: dict[str, str] = _WORDS["measures"]
CNN: dict[str, str] = _WORDS["cnn"]
PEOPLE: dict[str, str] = _WORDS["people"]
SUMS: dict[str, str] = _WORDS["sums"]
CLOSENESS: dict[str, str] = _WORDS["closeness"]


def template_environment(*folders: Path, **values: Any) -> "Environment":
    """The pages in these folders; every text in them is escaped, and none turns a line
    around.
    """
    import jinja2  # which a command starts without

    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: readable(value) if type(value) is str else value,
    )
    pages.globals |= values
    return pages


def figure_name(key: FigureKey) -> str:
    """`avd2_cross` → "Pairs of columns, across parties"; `tstr_mlp_auc` → "Neural
    network".
    """
    if key.part == "between":
        return PEOPLE[key.part].format(*key.subjects)
    plain = _plain(key)
    return f"{plain} ({' and '.join(key.subjects)})" if key.subjects else plain


def _plain(key: FigureKey) -> str:
    if key.measure == "tstr":
        if key.part == "again":
            return "Gradient boosting: does another event follow?"
        if key.part == "cnn":
            return f"Small CNN: {CNN[key.score]}"
        return capitalize(MODELS.get(key.part, key.part))
    if key.measure in SUMS:
        return SUMS[key.measure].format(key.column)
    if key.measure == "lag":
        return (
            f"“{key.column}” and itself, {pluralize(key.columns or 0, 'event')} later"
        )
    if key.part in PEOPLE:
        return PEOPLE[key.part]
    words = STRENGTHS | FIGURES
    sets = SETS.get(key.columns, f"Sets of {key.columns}") if key.columns else key.name
    return (
        words[key.measure] + SCOPES[key.part]
        if key.measure in words
        else sets + SCOPES[key.part]
    )


def attack_name(key: FigureKey) -> tuple[str, str]:
    title, asks = ATTACKS.get(key.measure, [key.name, ""])
    if key.measure == "singling_out":
        title += (
            f", {'1 column' if key.part == 'univariate' else f'{key.part} columns'}"
        )
    elif key.outliers is not None:
        title += f", {key.outliers} % outliers"
        asks = (
            "the same for people who are unlike the others, the hardest to hide "
            "(Zhang 2022)"
        )
    elif key.measure == "mia" and key.part:
        title += f", {key.part}"
        asks = f"the same, by the {key.part} synthetic row (Chen 2020)"
    elif qualifier := key.column or key.part:
        title += f" {qualifier}"
    return f"{title} ({' and '.join(key.subjects)})" if key.subjects else title, asks


def at_price(epsilon: float | None, delta: float | None = None) -> str:
    """ "ε = 1.2 at δ = 10⁻⁵" in a piece that no line break parts."""
    price = f"ε\u00a0=\u00a0{shown(epsilon)}"
    return price if delta is None else f"{price} at δ\u00a0=\u00a0{power_of_ten(delta)}"


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where there is none."""
    return (
        "–"
        if value is None
        else f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")
    )


def shorten_middle(text: str, max_letters: int) -> str:
    """A text of at most so many letters: names tend to differ at their ends, so the
    middle goes.
    """
    if len(text) <= max_letters:
        return text
    end = max_letters // 2
    return f"{text[: max_letters - end - 1]}…{text[-end:]}"


def percent(share: float) -> str:
    """A share in whole per cent; what is there but rounds to nothing is said to be
    there.
    """
    return "<1" if 0 < share < 0.005 else f"{100 * share:.0f}"


def accuracy_words(quality: Mapping[str, Any]) -> str:
    """An offer's figure: "right about 83 % (81 to 85 %) of its own people". The
    interval is rounded outwards.
    """
    low = math.floor(100 * quality["low"])
    high = math.ceil(100 * quality["high"])
    return (
        f"right about {percent(quality['accuracy'])}\u00a0% ({low} to {high}\u00a0%) "
        "of its own people"
    )


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def power_of_ten(delta: float) -> str:
    """δ as a power of ten: 10⁻⁵, 2·10⁻⁶, 0."""
    if not delta:
        return "0"
    digits, _, power = f"{delta:.2e}".partition("e")
    digits = f"{float(digits):g}"
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def p_value(p: float | None) -> str:
    """How likely something is by luck; small chances are rounded up, and a dash stands
    where none was computed.
    """
    if p is None:
        return "–"
    if p < 0.001:
        return "<0.001"
    if p < 0.1:
        return f"{math.ceil(p * 1000 - 1e-9) / 1000:.3f}"
    return f"{p:.2f}"


def format_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return (
                f"{count:.0f} {unit}"
                if unit == "B" or count >= 100
                else f"{count:.1f} {unit}"
            )
        count /= 1000
    return f"{count:,.1f} GB"


def join_words(items: Sequence[str]) -> str:
    return (
        " and ".join([", ".join(items[:-1]), items[-1]])
        if len(items) > 1
        else "".join(items)
    )


def capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
