"""DP-FedAvg: holders of different people train one classifier; each round adds up
clipped updates under common noise.

McMahan, Ramage, Talwar, Zhang, "Learning differentially private recurrent language
models" (ICLR 2018), Algorithm 1, with the estimator of a noisy sum over a noisy count.
Paper → code: T → rounds, S → clip, η → learning_rate, θ → weights, Δ_k → an update, z →
the noise of a release.
Differs from the paper: everybody takes part in every round, by one full-batch step of
logistic regression. The noise is the sum of what all holders add under pads, so the
server sees no holder's own sum, and need not be trusted to add it.

Guarantee: a person moves a round's sums by at most `sensitivity`, whatever rows and
weights are. Scores, gradients and sums are of whole numbers: nobody's part depends on
who else is there, not even by rounding.

    python examples/dp_fedavg.py        # a rehearsal: two clinics, made-up rows
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.population import Population
from understudy.generators.parts import ClassifierParts
from understudy.ground.check import in_range
from understudy.ground.errors import Effect, MessageError
from understudy.ground.settings import between, setting, whole_to
from understudy.models.cohort.classifier import LogisticRegression
from understudy.privacy.secure.moments import Positions, Whole, bounded
from understudy.protocols.core import settings as usual
from understudy.protocols.core.common_rule import common_features
from understudy.protocols.core.forecast import Error, figure
from understudy.protocols.core.settings import OverRows
from understudy.protocols.joint import run
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.pricing import BlockSpec, VectorPricing, finest_scale
from understudy.protocols.joint.stage import Holding, Stage, Study, Terms, expect

# What stands for 1, in whole numbers: (features) · INPUT · FAR is below 2⁵³, so every
# score is exact.
INPUT = 1 << 10
WEIGHT = 1 << 16
SLOPE = 1 << 16
FAR = 1 << 24  # the largest weight
MOST_INPUTS = 1 << 16
# what an update as long as `clip` becomes, in whole numbers
SCALES = tuple(1 << bits for bits in range(12, 3, -1))
PIECE = 1 << 11  # people at a time


@dataclass(frozen=True, kw_only=True)
class Config(OverRows):
    """The rounds share the budget evenly."""

    rounds: int = setting(20, whole_to(1_000), "rounds of training")
    clip: float = setting(
        1.0, between(1e-6, 1e6), "the longest update of a person in a round"
    )
    learning_rate: float = setting(1.0, between(1e-6, 1e6), "learning rate")
    target: str | None = usual.target()


class Rows(NamedTuple):
    """A holder's people, each with the rows starts[i] … starts[i + 1]."""

    inputs: Whole  # (rows, features + 1), the last for the bias
    classes: Positions  # (rows,)
    starts: Positions  # (people + 1,)


class Sums(NamedTuple):
    """What a round says: the sum of all updates, in weights, and of how many people."""

    updates: Tensor  # (classes, features + 1)
    people: float


def one_for(scale: int) -> int:
    """What a person adds to the count: it costs the updates little, √(1 + 1/64)."""
    return scale // 8


def reach(scale: int) -> float:
    """By how much a person moves a round: an update of norm `scale`, and the count."""
    return math.hypot(scale, one_for(scale))


# Algorithm 1, UserUpdateFedAvg and FlatClip, for all people of a holder
@dataclass(frozen=True, eq=False)
class Round(Stage[Rows]):
    """One round from these weights: Σ over people of (their clipped update, 1)."""

    weights: Tensor  # int64 (classes, features + 1)
    clip: float
    learning_rate: float
    scale: int  # what `clip` becomes, in whole numbers

    @property
    def blocks(self) -> Mapping[str, BlockSpec]:
        return {
            "sums": BlockSpec(
                (0, 0), (self.weights.numel() + 1,), sensitivity=reach(self.scale)
            )
        }

    def count(self, rows: Rows) -> dict[str, Tensor]:
        slopes = self._slopes(rows)
        people = len(rows.starts) - 1
        total = np.zeros(self.weights.numel() + 1)
        for first in range(0, people, PIECE):
            some = rows.starts[first : first + PIECE + 1]
            total[:-1] += bounded(
                self._updates(rows.inputs, slopes, some), self.clip, self.scale
            ).sum(0)
        total[-1] = people * one_for(self.scale)
        return {"sums": torch.from_numpy(total.astype(np.int64))}

    def _slopes(self, rows: Rows) -> Whole:
        """Probability − truth of every class: whole numbers (rows, classes)."""
        scores = rows.inputs @ self.weights.double().numpy().T / (INPUT * WEIGHT)
        odds = np.exp(scores - scores.max(1, keepdims=True))
        odds /= odds.sum(1, keepdims=True)
        odds[np.arange(len(odds)), rows.classes] -= 1
        slopes: Whole = np.rint(odds * SLOPE)
        return slopes

    def _updates(self, inputs: Whole, slopes: Whole, starts: Positions) -> Whole:
        """A step down the mean gradient of each person's own rows: (people,
        weights).
        """
        # down, and a mean: a − b is minus the number of a person's rows
        steps = [
            (slopes[a:b].T @ inputs[a:b]).flatten() / (a - b)
            for a, b in pairwise(starts)
        ]
        return np.stack(steps) * (self.learning_rate / (SLOPE * INPUT))

    def read(self, sums: Mapping[str, Tensor], noise: Mapping[str, float]) -> Sums:
        updates = sums["sums"][:-1].double().view_as(self.weights)
        people = sums["sums"][-1]
        return Sums(
            updates * (self.clip / self.scale), float(people) / one_for(self.scale)
        )


class FedAvg(Study[Rows]):
    """Over rows: holders whose tables have the same columns. The first round starts
    from zeros.
    """

    family: ClassVar = "dp-fedavg"
    settings: ClassVar = Config
    settled: ClassVar = (
        "rounds",
        "clip",
        "learning_rate",
        "target",
        "max_colluding",
        "max_holders_per_person",
        "private",
    )

    def __init__(self, config: Config, schemas: Mapping[str, Any]) -> None:
        super().__init__(config, schemas)
        self.features = common_features(schemas, config.target)
        self.shape = len(self.features.labels), math.prod(self.features.shape) + 1
        in_range(2, MOST_INPUTS, **{"features and a bias": self.shape[1]})
        self.grid.check_max_holders_per_person(config.max_holders_per_person)

    @cached_property
    def releases(self) -> Mapping[str, str]:
        return {
            f"round {n + 1}": f"clipped updates of round {n + 1}"
            for n in range(self.config.rounds)
        }

    @cached_property
    def pricing(self) -> VectorPricing:
        return VectorPricing(
            self.config.max_colluding,
            self.config.max_holders_per_person,
            (1.0,) * self.config.rounds,
        )

    def people_at(self, rows: Any) -> int:
        return len(np.unique(rows.people))

    def rows(self, holding: Holding) -> Rows:
        held = Population.from_table(holding.rows, self.config.target)
        inputs = np.rint(held.features.expand(held.rows).double().numpy() * INPUT)
        bias = np.full((len(inputs), 1), float(INPUT))
        return Rows(
            np.concatenate([inputs, bias], 1), held.codes.numpy(), held.starts.numpy()
        )

    def stage(
        self, name: str, terms: Terms, noise: float, before: Mapping[str, Stage[Rows]]
    ) -> Round:
        weights = torch.zeros(self.shape, dtype=torch.int64)
        if name != next(iter(self.releases)):
            expect(terms, "weights")
            weights = terms["weights"]
        else:
            expect(terms)
        if (
            not isinstance(weights, Tensor)
            or weights.dtype != torch.int64
            or weights.shape != self.shape
        ):
            raise MessageError(
                f"the weights are not {self.shape} whole numbers.",
                effect=Effect.NOTHING_CHARGED,
            )
        if not -FAR <= int(weights.min()) <= int(weights.max()) <= FAR:
            raise MessageError(
                f"a weight is beyond ±{FAR // WEIGHT}.", effect=Effect.NOTHING_CHARGED
            )
        holders = self.config.max_holders_per_person
        scale = finest_scale(SCALES, noise, reach, max_holders_per_person=holders)
        return Round(weights, self.config.clip, self.config.learning_rate, scale)

    # Algorithm 1, the server
    def terms(self, name: str, measurements: Measurements) -> Terms:
        return (
            {"weights": self.weights(measurements, len(measurements))}
            if len(measurements)
            else {}
        )

    def weights(self, measurements: Measurements, rounds: int) -> Tensor:
        """After so many rounds, of at least one: the average update is the noisy sum
        over the noisy count.
        """
        last = [*measurements][rounds - 1]
        step = measurements[last].updates * (WEIGHT / self.people(measurements, rounds))
        start: Any = measurements.stage(last)
        moved: Tensor = start.weights + step.round().long()
        return moved.clamp(-FAR, FAR)

    def people(self, measurements: Measurements, rounds: int) -> float:
        """As all counts so far have it: they are of the same people."""
        return max(
            1.0,
            math.fsum(measurements[name].people for name in [*measurements][:rounds])
            / rounds,
        )

    def check_fit(self, holdout: Population | None = None) -> None:
        if holdout is not None:
            common_features(
                {**self.schemas, "the holdout": holdout.features}, self.config.target
            )

    def fit(
        self,
        measurements: Measurements,
        privacy: Any,
        look: Any,
        holdout: Population | None = None,
    ) -> Any:
        """One classifier over all holders' people; what it says right of public
        `holdout` rows stands in the card.

        A run that a holder leaves, or whose budget ends, after the first round gives
        what the rounds so far made.
        """
        each = [
            self._classifier(self.weights(measurements, n + 1))
            for n in range(len(measurements))
        ]
        card: dict[str, Any] = {"noise": measurements.record.noise[0]}
        if holdout is not None:
            right = [one.accuracy(holdout) for one in each]
            card["history"] = [
                {"round": n, "accuracy": share} for n, share in enumerate(right, 1)
            ]
        return replace(each[-1], card=card), round(
            self.people(measurements, len(measurements))
        )

    def _classifier(self, weights: Tensor) -> ClassifierParts:
        classes, inputs = self.shape
        flat = torch.cat([weights[:, :-1].flatten(), weights[:, -1]]).float() / WEIGHT
        return ClassifierParts(
            LogisticRegression(inputs - 1, classes), flat, self.features, {}
        )

    def foreseen(self, ahead: Measurements, said: Any) -> dict[str, Any]:
        """What a plan says besides the price."""
        noise = ahead.noise("round 1")
        size = math.prod(self.shape)
        stage = self.stage("round 1", {}, noise, {})
        one = one_for(stage.scale)
        off = ahead.deviations_of("round 1", stage.blocks)["sums"] / one
        people = Error(what="how many people a round has", least=off, largest=off)
        rounds = (
            f"{self.config.rounds:,} rounds: in each the sum of all people's updates "
            f"of {size:,} weights"
        )
        return {
            "facts": (
                f"{rounds}, and their number",
                f"noise {figure(noise)} times what a person moves, in each round",
            ),
            "errors": (people,),
        }


PROTOCOL = run.family(
    FedAvg,
    aligned=False,
    paper=__doc__,
    same_people=False,
    artefact="model",
    audit="joint",
)


def main() -> None:
    import understudy as us
    from understudy.data.samples import toy
    from understudy.runs.registry import PROTOCOLS

    # a protocol of the package has a line in runs/registry.py
    PROTOCOLS[PROTOCOL.name] = PROTOCOL
    rows, schema = toy(rows=4_000)
    tables = {"north": rows[:1_500], "south": rows[1_500:3_000]}
    new = rows[3_000:]
    clinics = us.Federation.rehearsal(
        tables, dict.fromkeys(tables, schema), budget=us.Budget(1, 1e-5)
    )
    result = us.train("dp-fedavg", clinics, target="smoker")
    right = (result.model.predict(new) == new["smoker"].to_numpy()).mean()
    print(
        f"{right:.0%} of new people are told right; {1 - rows['smoker'].mean():.0%} "
        "do not smoke"
    )
    print(result.privacy)


if __name__ == "__main__":
    main()
