"""A choice among settings at a stated price: train every candidate, score each on the
holders' rows under noise, keep the best.

    us.train("vd-gan-pate", federation, tune={"threshold": [0.02, 0.05, 0.2]})

Jiang, dissertation (TUM 2024), §8.2 asks for it. Papernot, Steinke, "Hyperparameter
tuning with Rényi differential privacy" (ICLR 2022) pay two to three runs for any number
of them, if that number is random and nobody sees more than the best one. Here the
server sees what every candidate releases, so that price would not hold against it: all
candidates are paid for, and the choice besides. The figure is the same against
everybody, an outsider who sees the best one alone included.

The score of a candidate at a holder is how many of its people stand in a wrong cell,
the mean over pairs of its columns of ½·Σ|N(c) − n·q(c)|: N is the holder's table of two
columns with each person's rows weighing 1 together, n its sum, q that of rows drawn
from the candidate. Noisy scores are added over holders; the least wins. What a
candidate says across holders of different columns is scored by none.

Guarantee: a person moves each score by at most 1, since ½·Σ|w(c) − q(c)| ≤ 1, and by
at most 1/64 more as scores are counted in parts of 64. Each holder's ledger is charged
for its scores before they are computed; where prices of joint releases stand for all
holders, for those of all that a person may be with. The budgets of candidates and
scores compose within the holder's own: by adding them up, or by the accountant where
settings alone say what a candidate spends.
Edges: a protocol whose people report themselves, a classifier, `private = false`,
shared samples, a budget without end or a ledger with less left than the run may cost →
ConfigError, nothing is charged. A run that is stopped goes on with the candidate that
it stopped at. A candidate that a party refuses ends the run; what was trained before it
stays paid.
"""

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from understudy.data.encoding.codec import Codec
from understudy.data.kinds import TABLE
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.ground.durable import replace_json
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.accounting import Spend, epsilon, gaussian_of
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.privacy.noise import (
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    Rng,
    rounded_up,
)
from understudy.privacy.noise.discrete import CountNoise
from understudy.protocols.protocol import Protocol
from understudy.runs.federation import Federation, Holder
from understudy.runs.registry import protocol_named
from understudy.runs.result import Result

Tune = Mapping[str, Sequence[Any]]

MAX_CANDIDATES = 16  # each has less than a sixteenth of ε to learn with
# of ε: at ε = 1 noise of some hundred people on a score of three candidates
SCORE_SHARE = 0.1
PARTS = 64  # of a person, in which scores are counted
SAMPLED_ROWS = 20_000  # that stand for a candidate
MAX_PAIRS = 200  # of a holder's columns, drawn without regard to rows
_STEPS = 12  # of the search for a candidate's ε: to 1/4000 of it


@dataclass(frozen=True)
class Shares:
    """What of a holder's budget a candidate may cost, and the noise of its scores, of
    which a person moves so many.
    """

    candidate: Budget
    scores: Budget
    noise: CountNoise
    moved: int

    @classmethod
    def from_budget(
        cls,
        budget: Budget,
        *,
        candidates: int,
        holders_of_person: int,
        spends: Callable[[Budget], Spend | None],
    ) -> "Shares":
        """The shares of a budget. `spends`: what a candidate of a budget spends, where
        that is known.
        """
        moved = candidates * holders_of_person
        delta = budget.delta / (candidates + 1)
        scores = replace(budget, epsilon=SCORE_SHARE * budget.epsilon, delta=delta)
        noise = _score_noise(scores, moved)
        added = replace(scores, epsilon=(budget.epsilon - scores.epsilon) / candidates)

        def fits(candidate_epsilon: float) -> bool:
            spend = spends(replace(added, epsilon=candidate_epsilon))
            if spend is None:
                return False
            total = Counter({noise.event: moved})
            for event, count in spend.items():
                total[event] += candidates * count
            return epsilon(total, budget.delta) <= budget.epsilon

        low = added.epsilon
        high = budget.epsilon
        for _ in range(_STEPS if delta else 0):
            middle = math.sqrt(low * high)
            if fits(middle):
                low = middle
            else:
                high = middle
        return cls(replace(added, epsilon=low), scores, noise, moved)


def _score_noise(budget: Budget, moved: int) -> CountNoise:
    """Noise for scores in parts, of which a person moves so many by a whole person and
    the rounding.
    """
    sensitivity = PARTS + 1
    if not budget.delta:
        scale = Fraction(sensitivity * moved) / Fraction(budget.epsilon)
        return DiscreteLaplaceNoise(rounded_up(float(scale)), sensitivity)
    multiplier = gaussian_of(budget.epsilon, budget.delta).noise_multiplier
    scale = multiplier * sensitivity * math.sqrt(moved)
    return DiscreteGaussianNoise(rounded_up(scale), sensitivity)


def candidates_of(tune: Tune) -> list[dict[str, Any]]:
    """Every combination of the listed values."""
    for name, values in tune.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ConfigError(
                f'tune: "{name}" must be a list of values, not {values!r}.',
                effect=Effect.NOTHING_READ_OR_CHARGED,
            )
    found = [
        dict(zip(tune, values, strict=True))
        for values in itertools.product(*tune.values())
    ]
    if not 2 <= len(found) <= MAX_CANDIDATES:
        raise ConfigError(
            f"tune: a choice is among 2 to {MAX_CANDIDATES} candidates, and these are "
            f"{len(found)}.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    return found


def shares_of(
    record: Protocol,
    budgets: Mapping[str, Budget],
    candidates: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any],
    *,
    same_people: bool,
) -> dict[str, Shares]:
    """Each holder's shares. ConfigError where these settings cannot be chosen so."""
    configs = [record.configured({**settings, **one}) for one in candidates]
    for config in configs:
        _require_central(record, config)
    if any(budget.epsilon == math.inf for budget in budgets.values()):
        raise ConfigError(
            "tune: a budget without end has no shares.",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    config = configs[0]
    holders_of_person = 1
    if record.one_release or record.study is not None:
        holders_of_person = (
            len(budgets)
            if same_people
            else getattr(config, "max_holders_per_person", 1)
        )

    def dearest(budget: Budget) -> Spend | None:
        """Of all candidates the same, as settings that are tuned move no price."""
        found = [record.spends(config, budget) for config in configs]
        return found[0] if all(spend == found[0] for spend in found) else None

    return {
        name: Shares.from_budget(
            budget,
            candidates=len(candidates),
            holders_of_person=holders_of_person,
            spends=dearest,
        )
        for name, budget in budgets.items()
    }


def _require_central(record: Protocol, config: Any) -> None:
    own_price = {"epsilon", "epsilon_total"} & set(record.settings)
    reason = ""
    if own_price or record.artefact != "generator":
        reason = (
            f"{record.name} is no method of a generator whose price is its holders' "
            "budget. Where people report themselves, a score would need their trust"
        )
    elif getattr(config, "private", True) is False:
        reason = "private = false costs no finite price"
    elif getattr(config, "sampling", "") == "shared":
        reason = 'sampling = "shared" has two prices, and a choice has one'
    if reason:
        raise ConfigError(f"tune: {reason}.", effect=Effect.NOTHING_READ_OR_CHARGED)


def train_tuned(
    train_one: Callable[..., Result],
    protocol: str,
    federation: Federation,
    tune: Tune,
    settings: Mapping[str, Any],
    *,
    run: str,
    folder: Path | None,
    resume: bool,
) -> Result:
    """The best of all candidates, with the price of all. `train_one` trains one."""
    record = protocol_named(protocol)
    candidates = candidates_of(tune)
    holders = federation.holders
    shares = shares_of(
        record,
        {name: holder.budget for name, holder in holders.items()},
        candidates,
        settings,
        same_people=federation.same_people is not False,
    )
    for holder in holders.values():
        _require_room(holder, resume=resume)
    results = []
    for number, candidate in enumerate(candidates):
        own_folder = None if folder is None else folder / "candidates" / str(number)
        results.append(
            train_one(
                protocol,
                _part(federation, shares, number),
                folder=own_folder,
                resume=resume and own_folder is not None and own_folder.exists(),
                run=f"{run}-{number}",
                **{**settings, **candidate},
            )
        )
    samples = [
        result.generator.sample(SAMPLED_ROWS, seed=number)
        for number, result in enumerate(results)
    ]
    scores = {
        name: _released_scores(holder, shares[name], samples, run=run, folder=folder)
        for name, holder in holders.items()
    }
    totals = np.sum(list(scores.values()), axis=0)
    chosen = int(totals.argmin())
    choice = {
        "candidates": candidates,
        "chosen": chosen,
        "people in a wrong cell, noisy": {
            name: [round(score / PARTS, 2) for score in own]
            for name, own in scores.items()
        },
        "deviation of the noise": {
            name: round(math.sqrt(own.noise.variance) / PARTS, 2)
            for name, own in shares.items()
        },
    }
    statement = _statement([result.privacy for result in results], holders, shares, run)
    best = results[chosen]
    card = {
        **best.generator.card,
        "privacy": statement.to_dict(),
        "tuned": choice,
    }
    return replace(
        best,
        artefact=replace(best.generator, card=card),
        privacy=statement,
        run=run,
        federation=federation,
    )


def _require_room(holder: Holder, *, resume: bool) -> None:
    """ConfigError where all candidates could not be paid for."""
    table = holder.table
    if not TABLE.holds(table) or not _scored(table.schema):
        raise ConfigError(
            f"tune: {holder.name} has no table with bounds or categories to score by.",
            effect=Effect.NOTHING_CHARGED,
        )
    left = holder.ledger.remaining()
    if not resume and left < holder.budget.epsilon:
        raise ConfigError(
            f"tune: the ledger of {holder.name} has ε={left:.4g} left, and all "
            f"candidates together may cost {holder.budget}.",
            effect=Effect.NOTHING_CHARGED,
        )


def _part(federation: Federation, shares: Mapping[str, Shares], number: int) -> Any:
    """The federation for one candidate: other noise, and its share of the budgets."""
    parts = [
        replace(
            holder,
            budget=shares[name].candidate,
            seed=None if holder.seed is None else holder.seed + 7919 * (number + 1),
        )
        for name, holder in federation.holders.items()
    ]
    return Federation.from_holders(parts, same_people=federation.same_people)


def _released_scores(
    holder: Holder,
    shares: Shares,
    samples: Sequence[pd.DataFrame],
    *,
    run: str,
    folder: Path | None,
) -> list[int]:
    """A score for each candidate in parts of a person, the lower the better, noisy.

    Guarantee: as the module's. What was released once stands in the folder, and is
    not paid for again.
    """
    kept = None if folder is None else folder / "candidates" / f"{holder.name}.json"
    if kept is not None and kept.exists():
        return list(json.loads(kept.read_text()))
    rng: Rng = holder.rng()
    holder.ledger.charge(
        shares.noise.event,
        run=run,
        count=shares.moved,
        description=f"scores of {len(samples)} candidates",
    )
    table = holder.table
    assert TABLE.holds(table)  # `_require_room`
    exact = torch.tensor([misplaced_parts(table, rows) for rows in samples])
    noisy: list[int] = shares.noise(exact, rng).tolist()
    if kept is not None:
        replace_json(kept, noisy)
    return noisy


def misplaced_parts(table: Table, synthetic: pd.DataFrame) -> int:
    """How many people stand in a wrong cell, the mean over pairs of columns, in parts:
    a person moves it by at most `PARTS` + 1.
    """
    schema = table.schema.select(_scored(table.schema))
    codec = Codec(schema)
    real = table.encoded(codec.codes).astype(np.int64)
    drawn = codec.codes(synthetic[list(schema.names)]).astype(np.int64)
    _, person = np.unique(table.people, return_inverse=True)
    weights = 1.0 / np.bincount(person)[person]
    distances = [
        _misplaced(
            real[:, pair], weights, drawn[:, pair], [codec.sizes[j] for j in pair]
        )
        for pair in _pairs(len(codec.sizes))
    ]
    return round(PARTS * float(np.mean(distances)))


def _misplaced(
    real: NDArray[np.int64],
    weights: NDArray[np.float64],
    drawn: NDArray[np.int64],
    sizes: Sequence[int],
) -> float:
    """½·Σ|N(c) − n·q(c)| over the cells of these columns."""
    cells = math.prod(sizes)
    counts = np.bincount(np.ravel_multi_index(real.T, sizes), weights, cells)
    shares = np.bincount(np.ravel_multi_index(drawn.T, sizes), None, cells) / len(drawn)
    return 0.5 * float(np.abs(counts - counts.sum() * shares).sum())


def _scored(schema: Schema) -> list[str]:
    """Columns whose levels are known without rows."""
    return [
        column.name
        for column in schema.columns
        if not getattr(column, "unbounded", False)
    ]


def _pairs(columns: int) -> list[list[int]]:
    """Pairs of columns, or the one column that there is."""
    if columns == 1:
        return [[0]]
    pairs = [list(pair) for pair in itertools.combinations(range(columns), 2)]
    order = np.random.default_rng(0).permutation(len(pairs))
    return [pairs[place] for place in sorted(order[:MAX_PAIRS])]


def _statement(
    stated: Sequence[PrivacyStatement],
    holders: Mapping[str, Holder],
    shares: Mapping[str, Shares],
    run: str,
) -> PrivacyStatement:
    """The price of all candidates and of the choice among them."""
    parties = []
    for own in zip(*(statement.parties for statement in stated), strict=True):
        name = own[0].name
        score = Counter({shares[name].noise.event: shares[name].moved})
        parties.append(
            replace(
                own[0],
                budget=holders[name].budget,
                outsider=sum((Counter(party.outsider) for party in own), score),
                insider=sum((Counter(party.insider) for party in own), score),
                rounds=1,
                uses_of_rounds=(),
            )
        )
    return replace(
        stated[0],
        parties=tuple(parties),
        run=run,
        unguarded=_together(statement.unguarded for statement in stated),
        outside=_together(statement.outside for statement in stated),
    )


def _together(parts: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(parts)))
