"""Does the code keep its promise? Run it many times with and without one person, and try to tell which it was.

A mechanism or a protocol claims an ε through its ledger. An audit plays the adversary: it gives every run a score
that should be high where the person took part, and `bounds` turns the scores into a lower bound on ε. If
that is above the claim, something is wrong in the code, the accounting or the randomness. If not, nothing is
proved: a better adversary might reach more.

Sources: see `bounds`. Differs from the papers: the person's place stays in the world without them, and counts for
nothing there, since the number of people is public and sets the sampling rate.

Guarantee: a release that keeps its claim is called broken with probability at most 1 − confidence.
Edges: a claim of no guarantee → ConfigError. When the seconds are over the trials end, and the result says how
many there were.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from understudy.evaluate.audit.bounds import PILOT, Errors, Numbers, explained, plain, separate
from understudy.evaluate.audit.transcript import Seen, learned, paid_numbers, table
from understudy.ground.check import in_range, positive, whole
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.accounting import Spend, epsilon
from understudy.privacy.accounts.events import describe
from understudy.privacy.noise import Rng, SecureRng
from understudy.protocols.core import Parties, Party, Reply

SERVER = "the server, who sees every message"
LEARNED = "by a linear rule learned from half of the trials"
LEAST_TRIALS = math.ceil(4 / PILOT)  # half of them may go into a learned rule


@dataclass(frozen=True, kw_only=True)
class View:
    """What one adversary reached.

    `observed` takes the noise to be of the claimed kind, in unknown strength; `any_noise` takes nothing for granted.
    """

    adversary: str
    observed: float
    any_noise: float
    errors: Errors

    @classmethod
    def of(
        cls, adversary: str, scores: tuple[Numbers, Numbers], claimed: Spend, delta: float, confidence: float
    ) -> "View":
        """Bound ε by the scores with the person, and without."""
        errors = separate(*scores, confidence=confidence)
        extreme = separate(*scores, aim=plain(delta), confidence=confidence)
        return cls(
            adversary=adversary,
            observed=explained(errors, claimed, delta),
            any_noise=extreme.epsilon(delta),
            errors=errors,
        )

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"observed": _finite(self.observed), "errors": self.errors.to_dict()}


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """A claim, and what each adversary proved against it. `str` for people, `to_dict` for files."""

    claimed: float
    delta: float
    confidence: float
    trials: int
    seconds: float
    views: tuple[View, ...]
    notes: tuple[str, ...] = ()

    @property
    def observed(self) -> float:
        """The measured ε is at least this, with the stated confidence for all adversaries together."""
        return max(view.observed for view in self.views)

    @property
    def passed(self) -> bool:
        """Whether nothing beyond the claim was observed."""
        return self.observed <= self.claimed

    def __str__(self) -> str:
        lines = [
            f"claimed ε ≤ {math.ceil(1000 * self.claimed) / 1000:g}, observed ≥ {_floor(self.observed)} "
            f"({100 * self.confidence:g} %), at δ={self.delta:g}{'' if self.passed else ': THE CLAIM IS BROKEN'}"
        ]
        for view in self.views:
            lines.append(f"  {_floor(view.observed):>5}  {view.adversary}")
            lines.append(f"         ({_floor(view.any_noise)} if the noise may be of any kind)")
        lines.append(
            f"  {self.trials:,} trials with the person and {self.trials:,} without, {self.seconds:.0f} s"
        )
        if self.passed and not self.observed:
            lines.append(
                "  That shows nothing: these are too few trials. More time (--seconds) gives a bound."
            )
        lines += [f"  {note}" for note in self.notes]
        lines.append(
            "  A low figure is not proof of safety: it is what these adversaries reached, this time."
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The result in plain types. An observed ε that is null: no amount of the claimed noise explains it."""
        figures = {"observed": _finite(self.observed), "passed": self.passed}
        return vars(self) | figures | {"views": [v.to_dict() for v in self.views], "notes": list(self.notes)}


def audit_mechanism(
    run: Callable[[Tensor, Rng], Tensor],
    present: Tensor,
    absent: Tensor,
    *,
    claimed: Spend,
    delta: float = 0.0,
    score: Callable[[Tensor], Tensor] | None = None,
    trials: int = 1000,
    confidence: float = 0.95,
    rng: Rng | None = None,
    each_row: bool = False,
) -> AuditResult:
    """Audit one mechanism on two inputs of which it claims that they can hardly be told apart.

    `score` maps the outputs of all trials, stacked on axis 0, to a number each; without it a linear rule is
    learned. `each_row`: every row is answered on its own (local privacy), so that the inputs are one row each and
    all trials are one call.
    """
    _enough(trials, confidence)
    begun, price, rng = time.monotonic(), _price(claimed, delta), rng or SecureRng()

    def outputs(rows: Tensor) -> Tensor:
        if each_row:
            return run(rows.expand(trials, *rows.shape[1:]), rng)
        return torch.stack([run(rows, rng) for _ in range(trials)])

    with_person, without = outputs(present), outputs(absent)
    if score is None:
        name = f"the output, {LEARNED}"
        scores = learned(*(part.flatten(1).double().numpy() for part in (with_person, without)))
    else:
        name = "the output, by a score of the auditor's"
        scores = score(with_person).double().numpy(), score(without).double().numpy()
    return AuditResult(
        claimed=price,
        delta=delta,
        confidence=confidence,
        trials=trials,
        seconds=time.monotonic() - begun,
        views=(View.of(name, scores, claimed, delta, confidence),),
        notes=_words(claimed),
    )


Score = Callable[[Any, list[Reply]], float]  # from the target, and the target's replies


@dataclass(frozen=True, kw_only=True)
class Case:
    """A protocol set up for an audit: one person of one party is there or is not, all else is the same.

    `parties(present, trial)` builds fresh ones, with ledgers in memory and randomness by the trial's number.
    `scores` names the adversaries, each with its score; without any, a linear rule is learned from `numbers`, which
    are all paid values unless the case knows better.
    """

    target: str
    parties: Callable[[bool, int], Mapping[str, Party]]
    train: Callable[[Parties], object]
    scores: Mapping[str, Score] = field(default_factory=dict)
    numbers: Callable[[Any, list[Reply]], list[float]] = lambda party, replies: paid_numbers(replies)
    notes: tuple[str, ...] = ()


def audit_protocol(
    case: Case,
    *,
    trials: int = 1000,
    confidence: float = 0.95,
    seconds: float = 300.0,
    seed: int = 0,
    watch: Callable[[int], None] | None = None,
) -> AuditResult:
    """Run a case `trials` times in each world, or until the seconds are over, and bound ε.

    The claim is what the target's ledger holds after a run. `watch` is told how many trials are done.
    """
    _enough(trials, confidence)
    positive(seconds=seconds)
    begun, done, price = time.monotonic(), 0, 0.0
    claimed: Spend = {}
    rows: dict[bool, list[list[float]]] = {True: [], False: []}
    while done < trials and (done < LEAST_TRIALS or time.monotonic() < begun + seconds):
        for present in rows:
            parties = case.parties(present, 2 * (seed * trials + done) + present)
            seen = Seen(parties)
            case.train(seen)
            target, replies = parties[case.target], seen.replies[case.target]
            rows[present].append(
                [score(target, replies) for score in case.scores.values()] or case.numbers(target, replies)
            )
            spend, delta = target.ledger.spend(), target.ledger.budget.delta
            if not claimed or _price(spend, delta) > price:
                claimed, price = spend, _price(spend, delta)
        done += 1
        if watch is not None:
            watch(done)
    there, gone = table(rows[True]), table(rows[False])
    if case.scores:
        sides = {name: (there[:, i], gone[:, i]) for i, name in enumerate(case.scores)}
    else:
        sides = {f"{SERVER}, {LEARNED}": learned(there, gone)}
    doubt = (1 - confidence) / len(sides)  # shared, so that all views hold together
    return AuditResult(
        claimed=price,
        delta=delta,
        confidence=confidence,
        trials=done,
        seconds=time.monotonic() - begun,
        views=tuple(View.of(name, scores, claimed, delta, 1 - doubt) for name, scores in sides.items()),
        notes=(*case.notes, *_words(claimed)),
    )


def _enough(trials: int, confidence: float) -> None:
    whole(trials=trials)
    in_range(0, 1, confidence=confidence)
    if trials < LEAST_TRIALS:
        raise ConfigError(f"trials must be at least {LEAST_TRIALS}, not {trials}. Nothing was run.")


def _price(claimed: Spend, delta: float) -> float:
    price = epsilon(claimed, delta)
    if not math.isfinite(price):
        raise ConfigError(f"no guarantee is claimed at δ={delta:g}, so there is nothing to refute.")
    return price


def _words(claimed: Spend) -> tuple[str, ...]:
    return tuple(f"claimed for {count:,} × {describe(event)}" for event, count in claimed.items())


def _floor(value: float) -> str:
    """Rounded down, as a lower bound must be."""
    return "∞" if value == math.inf else f"{math.floor(1000 * value) / 1000:g}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
