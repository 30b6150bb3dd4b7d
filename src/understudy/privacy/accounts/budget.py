"""The most that a holder lets anyone learn of one of its people, and how an ε is said;
without the accountant.

What a price means to one person: (ε, δ)-differential privacy bounds the share of right
guesses whether they took part, where being in or out are equally likely, by (e^ε + δ) /
(1 + e^ε) (Kairouz, Oh, Viswanath 2015). Where the mechanism is known, (1 + δ₀) / 2 is
exact, with δ₀ its δ at ε = 0: the distance of the two worlds (`accounting.distance`).
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from understudy.ground.check import one_of, positive
from understudy.ground.errors import ConfigError, PrivacyWarning

AGAINST = ("anyone", "outsider")
# what two worlds that ε holds apart differ in, by what a run protects (the `unit` of
# its schemas)
ADJACENCIES = {
    "person": "add or remove one person, with all their rows",
    "row": "add or remove one row; a person may have several",
    "image": "add or remove one image; a person may have several",
    "series": (
        "add or remove one series, with all its windows; a person may have several"
    ),
    "window": "add or remove one window of a series; a person may have several",
}
ADJACENCY = ADJACENCIES["person"]
PLURALS = {
    "person": "people",
    "row": "rows",
    "image": "images",
    "series": "series",
    "window": "windows",
}
_UNIT = re.compile(rf"\bone ({'|'.join(PLURALS)})\b")
_LEAST = 1e-300  # below it, powers of ten leave the range of a float
REHEARSED = {  # why what a party did protects nobody
    "seed": "noise was drawn from a seed, and anyone who finds the seed can remove it",
    "fast": "noise came from a fast generator that is not secure",
    "ledger": "no lasting ledger was charged",
}
# from what a share of right guesses follows; what is released tells less than one (ε,
# δ) allows
GUESSED_BY = {
    "curve": "(by the whole curve of the noise that was used)",
    "forecast": "(by the whole curve of the noise that is planned)",
    "bound": (
        "(a bound by one ε and δ alone; the noise that is used usually allows less)"
    ),
}
# where an ε alone was given: below one over the number of people, up to a million of
# them
USUAL_DELTA = 1e-6


@dataclass(frozen=True)
class Budget:
    """A limit on ε at a δ, for add/remove one person, over everything that a ledger
    ever records.

    `against="anyone"` binds what the server and the other parties learn, and with them
    everyone. "outsider" binds only what somebody learns who sees the release and
    nothing of the training: for batches drawn from a seed that the server and the
    parties share, where sampling hides nothing from them.
    Edges: δ=0 allows pure mechanisms alone; ε=infinity, for rehearsals on public rows,
    allows everything.
    """

    epsilon: float
    delta: float
    against: str = "anyone"

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            positive(epsilon=self.epsilon)
        if (
            isinstance(self.delta, bool)
            or not isinstance(self.delta, int | float)
            or not 0 <= self.delta < 1
        ):
            raise ConfigError(
                f"delta must be 0 or above and below 1, not {self.delta!r}."
            )
        one_of(AGAINST, against=self.against)

    @classmethod
    def coerce(cls, budget: "Budget | float") -> "Budget":
        """The budget itself; of a number, that ε at the usual δ."""
        return budget if isinstance(budget, Budget) else cls(budget, USUAL_DELTA)

    def __str__(self) -> str:
        return f"ε={self.epsilon:g} at δ={self.delta:g} against {self.against}"

    def warn_of_delta(self, holder: str, people: int) -> None:
        """A PrivacyWarning where δ is so large that it says little."""
        if self.delta * people >= 1:  # so written, nobody at all is no error
            problem = (
                f"{holder}: δ = {self.delta:g} is not below 1/{people:,}: it would "
                "allow publishing one person's row"
            )
            warnings.warn(
                f"{problem} outright. Choose a smaller δ.",
                PrivacyWarning,
                stacklevel=3,
            )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def shown(
    value: float | None,
    digits: int = 4,
    *,
    endless: str = "no guarantee",
) -> str:
    """An ε for a person to read, rounded up: a claim may be too high, never too low.
    None is without end, too.
    """
    if value is None or value == math.inf:
        return endless
    return (
        "0"
        if value <= 0
        else _rounded(max(value, _LEAST), digits, lambda part: math.ceil(part - 1e-9))
    )


def shown_left(value: float, digits: int = 4) -> str:
    """What is left of an ε, rounded down."""
    if value == math.inf:
        return "inf"
    return (
        "0"
        if value < _LEAST
        else _rounded(value, digits, lambda part: math.floor(part + 1e-9))
    )


def shown_bound(value: float | None) -> str:
    """An ε that was reached at least, rounded down; without end where no amount of the
    claimed noise explains it.
    """
    return (
        "∞"
        if value is None or value == math.inf
        else f"{math.floor(1000 * value) / 1000:g}"
    )


def _rounded(value: float, digits: int, whole: Callable[[float], int]) -> str:
    decimals = digits - 1 - math.floor(math.log10(value))
    return f"{whole(value * 10.0**decimals) / 10.0**decimals:g}"


def rehearsed(parties: Mapping[str, Sequence[str]]) -> str:
    """Why what these parties did protects nobody, by keys of `REHEARSED`; nothing where
    there are none.
    """
    reasons = []
    for key in dict.fromkeys(key for keys in parties.values() for key in keys):
        affected = [name for name, keys in parties.items() if key in keys]
        reasons.append(
            REHEARSED.get(key, key)
            + ("" if len(affected) == len(parties) else f" ({', '.join(affected)})")
        )
    return (
        (
            "Rehearsal: nothing here is private and nothing may be published; "
            f"{'; '.join(reasons)}."
        )
        if reasons
        else ""
    )


def first_said(card: Mapping[str, Any]) -> dict[str, str]:
    """What an artefact says before all else: that it is of a rehearsal, if it is."""
    return {"rehearsal": reason} if (reason := rehearsal_of(card)) else {}


def rehearsal_of(card: Mapping[str, Any]) -> str:
    """Why what a card describes protects nobody, as its statement says; nothing where
    it does not say so.
    """
    privacy = card.get("privacy")
    reason = card.get("rehearsal") or (
        privacy.get("rehearsal") if isinstance(privacy, Mapping) else None
    )
    return str(reason) if reason else ""


@dataclass(frozen=True)
class Guess:
    """How often, at most, whoever guesses at one person is right, and `by` which of
    `GUESSED_BY` that follows.
    """

    share: float
    by: str

    def in_words(self, adjacency: str = ADJACENCY) -> str:
        """A sentence, rounded up; it says of what by what the two worlds differ in, and
        from what it follows.
        """
        question = f"between two worlds ({adjacency})"
        if adjacency == ADJACENCY:
            question = "whether one person took part"
        elif adjacency in ADJACENCIES.values():
            question = f"whether one {unit_of(adjacency)} was among the data"
        of_hundred = min(100, math.ceil(self.share * 100 - 1e-9))
        limit = f"right at most {of_hundred} of 100 times, 50 being a coin"
        return f"Whoever guesses {question} is {limit} {GUESSED_BY[self.by]}."


def best_guess(
    epsilon: float | None = None,
    delta: float = 0.0,
    *,
    distance: float | None = None,
    by: str = "curve",
) -> Guess:
    """The best guess at one person that a mechanism of this `distance` allows; without
    one, that (ε, δ) alone allows.

    `distance`: of the two worlds, as `accounting.distance` bounds it; `by`: whether its
    noise was used, or is planned.
    Edges: neither a distance nor a price → a guess that is always right.
    """
    if distance is not None:
        return Guess(min(1.0, (1 + distance) / 2), by)
    if epsilon is None or epsilon == math.inf:
        return Guess(1.0, "bound")
    wrong = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    return Guess(1 - wrong + delta * wrong, "bound")


def stated_guess(statement: Mapping[str, Any], against: str | None = None) -> Guess:
    """The best guess that a run's statement tells; None: against whomever. It follows
    from the noise that was used.
    """
    shares = statement["person"]["right_guesses"]
    share = (
        max(map(float, shares.values())) if against is None else float(shares[against])
    )
    if not 0.5 <= share <= 1.0:
        raise ValueError(f"{share} is no share of right guesses")
    return best_guess(distance=2 * share - 1)


def unit_of(adjacency: str) -> str:
    """What is protected where two worlds differ in this: the key of `PLURALS` that it
    names first.
    """
    match = _UNIT.search(adjacency)
    return match[1] if match else "person"


def promises_no_more(stated: str, expected: str) -> bool:
    """Whether a statement promises at most what a holder knows of its adjacency: the
    same, or rows for people.
    """
    unit = unit_of(stated)
    of_less = ADJACENCIES[unit] if expected == ADJACENCY else in_units(expected, unit)
    return stated in (expected, of_less)


def counted_in(adjacency: str) -> str:
    """What a party's number of people is the number of."""
    return "clients" if "client" in adjacency else PLURALS[unit_of(adjacency)]


def in_units(text: str, unit: str) -> str:
    """A sentence about people as one about what is protected: rows, images, series or
    windows.
    """
    if unit == "person":
        return text
    words = {"person": unit, "people": PLURALS[unit], "whom": "that", "who": "that"}
    replaced = re.sub(
        r"\b(person|people|whom|who)\b",
        lambda word: words[word[0]],
        text,
    )
    return re.sub(r"\b([Aa]) image\b", r"\1n image", replaced)
