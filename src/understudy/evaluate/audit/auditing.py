"""Does the code keep its promise? Run it many times with and without one person, and
try to tell which it was.

A protocol claims an ε through its ledger. An audit plays the adversary: it gives every
run a score that should be high where the person took part, and `bounds` turns the
scores into a lower bound on ε. If that is above the claim, something is wrong in the
code, the accounting or the randomness.

Differs from the papers: the person's place stays in the world without them, and counts
for nothing there, since the number of people is public and sets the sampling rate.

Guarantee: a release that keeps its claim is called broken with probability at most 1 −
confidence.
Edges: a claim of no guarantee → ConfigError. When the seconds are over the trials end,
and the result says how many there were.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from understudy.evaluate.audit.bounds import (
    PILOT,
    Errors,
    Numbers,
    Tightness,
    bound_errors,
    consistent_epsilon,
    epsilon_from_rates,
)
from understudy.ground.check import finite, in_range, positive, whole
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.accounting import Spend, epsilon
from understudy.privacy.accounts.budget import Budget, shown_bound
from understudy.privacy.accounts.events import describe
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.noise import SecureRng
from understudy.protocols.core import Ask, Paid, Parties, Party, Reply

SERVER = "the server, who sees every message"
UNREAD = (
    "Rows were made up from the schema, no real one was read: this audits code and "
    "settings, not data."
)
LEARNED = "by a linear rule learned from half of the trials"
MIN_TRIALS = math.ceil(4 / PILOT)  # half of them may go into a learned rule
# those that differ the most; a discriminant of more would learn the noise
_MAX_FEATURES = 256


@dataclass(frozen=True, kw_only=True)
class View:
    """`observed` takes the noise to be of the claimed kind, of any strength;
    `any_noise` takes nothing for granted.
    """

    adversary: str
    observed: float
    any_noise: float
    errors: Errors

    @classmethod
    def from_scores(
        cls,
        adversary: str,
        scores: tuple[Numbers, Numbers],
        claimed: Spend,
        delta: float,
        confidence: float,
    ) -> "View":
        """Bound ε by the scores with the person, and without."""
        errors = bound_errors(*scores, confidence=confidence)
        extreme = bound_errors(
            *scores, aim=epsilon_from_rates(delta), confidence=confidence
        )
        observed = consistent_epsilon(errors, claimed, delta)
        any_noise = extreme.epsilon(delta)
        return cls(
            adversary=adversary, observed=observed, any_noise=any_noise, errors=errors
        )

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {
            "observed": finite(self.observed),
            "errors": self.errors.to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    claimed: float
    delta: float
    confidence: float
    trials: int
    seconds: float
    views: tuple[View, ...]
    notes: tuple[str, ...] = ()
    tight: Tightness | None = None

    @property
    def observed(self) -> float:
        """The measured ε is at least this, with the stated confidence for all
        adversaries together.
        """
        observed = max(view.observed for view in self.views)
        return (
            observed
            if self.tight is None
            else max(observed, min(self.claimed, self.tight.observed(self.delta)))
        )

    @property
    def passed(self) -> bool:
        return self.observed <= self.claimed and not (self.tight and self.tight.broken)

    def __str__(self) -> str:
        lines = [
            f"claimed ε ≤ {math.ceil(1000 * self.claimed) / 1000:g}, observed ≥ "
            f"{shown_bound(self.observed)} ({100 * self.confidence:g} %), at "
            f"δ={self.delta:g}{'' if self.passed else ': THE CLAIM IS BROKEN'}"
        ]
        for view in self.views:
            lines.append(f"  {shown_bound(view.observed):>5}  {view.adversary}")
            lines.append(
                f"         ({shown_bound(view.any_noise)} if the noise may be of any "
                "kind)"
            )
        if self.tight is not None:
            lines.append(
                f"  {shown_bound(self.tight.observed(self.delta)):>5}  {self.tight}"
            )
        lines.append(
            f"  {self.trials:,} trials with the person and {self.trials:,} without, "
            f"{self.seconds:.0f} s"
        )
        if self.passed and not self.observed:
            lines.append(
                "  That shows nothing: these are too few trials. More time "
                "(--seconds) gives a bound."
            )
        lines += [f"  {note}" for note in self.notes]
        lines.append(
            "  A low figure is not proof of safety: it is what these adversaries "
            "reached, this time."
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The result in plain types. An observed ε that is null: no amount of the
        claimed noise explains it.
        """
        figures: dict[str, Any] = {
            "observed": finite(self.observed),
            "passed": self.passed,
        }
        figures["tight"] = self.tight and vars(self.tight)
        return (
            vars(self)
            | figures
            | {"views": [v.to_dict() for v in self.views], "notes": list(self.notes)}
        )


Score = Callable[[Any, list[Reply]], float]  # from the target, and the target's replies


@dataclass(frozen=True, kw_only=True)
class Case:
    """A protocol set up for an audit: one person of one party is there or is not, all
    else is the same.

    `parties(present, trial)` builds fresh ones, with ledgers in memory and randomness
    by the trial's number. `scores` names the adversaries, each with its score; without
    any, a linear rule is learned from `numbers`, which are all paid values unless the
    case knows better. `tight(seed, seconds)`: what `tightness` measures, if it can.
    """

    target: str
    parties: Callable[[bool, int], Mapping[str, Party]]
    train: Callable[[Parties], object]
    scores: Mapping[str, Score] = field(default_factory=dict)
    numbers: Callable[[Any, list[Reply]], list[float]] = lambda party, replies: (
        paid_numbers(replies)
    )
    notes: tuple[str, ...] = ()
    tight: Callable[[int, float], Tightness] | None = None


def rehearsal_options(name: str, budget: Budget, seed: int) -> dict[str, Any]:
    """What a party of an audit has besides rows: a ledger in memory, and randomness by
    a seed.
    """
    ledger = Ledger.rehearsal(holder=name, budget=budget)
    return {
        "ledger": ledger,
        "run": "audit",
        "budget": budget,
        "rng": SecureRng.from_seed(seed),
    }


def audit_protocol(
    case: Case,
    *,
    trials: int = 1000,
    confidence: float = 0.95,
    seconds: float = 300.0,
    seed: int = 0,
    watch: Callable[[int], None] | None = None,
) -> AuditResult:
    """Run a case `trials` times in each world, or until the seconds are over, and bound
    ε by the target's ledger.
    """
    _check_trials(trials, confidence)
    positive(seconds=seconds)
    start = time.monotonic()
    done = 0
    price = 0.0
    claimed: Spend = {}
    rows: dict[bool, list[list[float]]] = {True: [], False: []}
    while done < trials and (done < MIN_TRIALS or time.monotonic() < start + seconds):
        for present in rows:
            parties = case.parties(present, 2 * (seed * trials + done) + present)
            recording = RecordingParties(parties)
            case.train(recording)
            target = parties[case.target]
            replies = recording.replies[case.target]
            rows[present].append(
                [score(target, replies) for score in case.scores.values()]
                or case.numbers(target, replies)
            )
            spend = target.ledger.spend()
            delta = target.ledger.budget.delta
            if not claimed or _price(spend, delta) > price:
                claimed = spend
                price = _price(spend, delta)
        done += 1
        if watch is not None:
            watch(done)
    present_scores = pad_rows(rows[True])
    absent_scores = pad_rows(rows[False])
    if case.scores:
        sides = {
            name: (present_scores[:, i], absent_scores[:, i])
            for i, name in enumerate(case.scores)
        }
    else:
        sides = {f"{SERVER}, {LEARNED}": learned_scores(present_scores, absent_scores)}
    doubt = (1 - confidence) / len(sides)  # shared, so that all views hold together
    return AuditResult(
        claimed=price,
        delta=delta,
        confidence=confidence,
        trials=done,
        seconds=time.monotonic() - start,
        views=tuple(
            View.from_scores(name, scores, claimed, delta, 1 - doubt)
            for name, scores in sides.items()
        ),
        notes=(
            *case.notes,
            *(
                f"claimed for {count:,} × {describe(event)}"
                for event, count in claimed.items()
            ),
        ),
    )


def _check_trials(trials: int, confidence: float) -> None:
    whole(trials=trials)
    in_range(0, 1, confidence=confidence)
    if trials < MIN_TRIALS:
        raise ConfigError(
            f"trials must be at least {MIN_TRIALS}, not {trials}.",
            effect=Effect.NOTHING_COMPUTED,
        )


def _price(claimed: Spend, delta: float) -> float:
    price = epsilon(claimed, delta)
    if not math.isfinite(price):
        raise ConfigError(
            f"no guarantee is claimed at δ={delta:g}, so there is nothing to refute."
        )
    return price


class RecordingParties:
    """Parties in this process, and every reply that the server gets from them."""

    def __init__(self, parties: Mapping[str, Party]) -> None:
        self.parties = dict(parties)
        self.replies: dict[str, list[Reply]] = {name: [] for name in parties}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.parties)

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        asks = (
            dict.fromkeys(self.names, message) if isinstance(message, Ask) else message
        )
        replies = {name: self.parties[name].answer(ask) for name, ask in asks.items()}
        for name, reply in replies.items():
            self.replies[name].append(reply)
        return replies


def paid_numbers(replies: Iterable[Reply]) -> list[float]:
    """Every number in the paid values of these replies, in order."""
    return _numbers(
        [
            v.value
            for reply in replies
            for v in vars(reply).values()
            if isinstance(v, Paid)
        ]
    )


def _numbers(value: object) -> list[float]:
    match value:
        case Tensor():
            return [
                float(number) for number in value.detach().double().flatten().tolist()
            ]
        case Mapping():
            return [number for item in value.values() for number in _numbers(item)]
        case list() | tuple() | bytes():
            return [number for item in value for number in _numbers(item)]
        case int() | float():
            return [float(value)]
    return []


def pad_rows(rows: Sequence[Sequence[float]]) -> Numbers:
    """All rows, the shorter ones filled up with zeros."""
    return (
        np.array([*zip_longest(*rows, fillvalue=0.0)], dtype=float)
        .reshape(-1, len(rows))
        .T
    )


def learned_scores(present: Numbers, absent: Numbers) -> tuple[Numbers, Numbers]:
    """Scores of the second half of the runs, by a linear discriminant of the first
    half.
    """
    width = max(present.shape[1], absent.shape[1])
    present, absent = (
        np.pad(side, ((0, 0), (0, width - side.shape[1]))) for side in (present, absent)
    )
    half = len(present) // 2
    pilot = np.concatenate([present[:half], absent[:half]])
    centre = pilot.mean(0)
    spread = pilot.std(0)
    moves = np.flatnonzero(spread > 1e-12 * np.abs(centre))
    if not len(moves):
        return np.zeros(len(present) - half), np.zeros(len(absent) - half)
    separation = (
        np.abs(present[:half, moves].mean(0) - absent[:half, moves].mean(0))
        / spread[moves]
    )
    best = moves[np.argsort(-separation)[:_MAX_FEATURES]]

    def features(runs: Numbers) -> Numbers:
        return np.asarray((runs[:, best] - centre[best]) / spread[best])

    rule = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    rule.fit(features(pilot), np.repeat([1, 0], half))
    scores = [
        np.asarray(rule.decision_function(features(side[half:])))
        for side in (present, absent)
    ]
    return scores[0], scores[1]
