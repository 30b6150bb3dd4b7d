"""Rounds of reports on updates: what the protocols over people's models share, on both
sides of the line.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 1, which DP-Fed-WAE
(Algorithm 5) and FedSTDG (Algorithm 8; Jiang, dissertation, TUM 2024, chapters 4 and 5)
repeat with other networks and mechanisms.
Paper → code: T → rounds, N → clients_per_round, E → epochs, η → learning_rate, γ →
rate, M_t → weights, Δ_t^i → `updates`.

The server's side is a `Rounds`, which asks a cohort in each round and takes a step
along the mean of what they claim; `ReportRounds` where reports come from a local
mechanism.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.population import Population, population_of
from understudy.data.kinds import TABLE
from understudy.generators.parts import ClassifierParts, GeneratorParts
from understudy.ground.check import in_range, whole
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    PartyError,
    PrivacyError,
)
from understudy.ground.pack import Value
from understudy.models.network import pick_device
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.local.reporter import cohort
from understudy.privacy.noise import FastRng
from understudy.protocols.core import Parties
from understudy.protocols.core.common_rule import common_features
from understudy.protocols.cross_device.downlink import moved
from understudy.protocols.cross_device.host import (
    BeginTraining,
    Call,
    Hosting,
    HostParty,
    Round,
)
from understudy.protocols.cross_device.reporting import (
    RATES,
    Settings,
    form_of,
    from_message,
    to_message,
)
from understudy.protocols.cross_device.run import Run

CHUNK = 2**26  # update values in work at a time
# what a party's people reported in a round, and how many they are
Answer = tuple[Any, int]


class LearningParty(HostParty):
    """A host of people who train the global model on their own rows. Their models and
    rows stay with it.
    Guarantee: a report is ε-LDP in the content of the person's rows (`privacy/local`),
    and stands in the ledger before a row is touched. It depends on nobody else's rows,
    not even by rounding: people train in batches whose shapes are nobody else's doing
    (`Population.apart`).
    Edges: a person without rows, or whose update is not finite, reports on a zero
    update, which is noise alone: a server may send weights at which that depends on the
    rows. Weights that are not finite, or not of this network → PartyError, and nobody
    is charged. People who would lie to a real ledger → PrivacyError.
    """

    settings: ClassVar[type[Settings]]
    config: Any

    @abstractmethod
    def local(self, weights: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """What training from `weights` on their rows (`Population.gather`) changes for
        each: (people, d).
        """

    def own_people(self) -> Population:
        return population_of(self.data)

    @property
    def size(self) -> int:
        return int(self.network.size)

    def open(self, ask: BeginTraining) -> Hosting:
        config = self.config = self.settings(**ask.config)
        population = self.own_people()
        self.network = config.network_for(population.features)
        if self.network.describe() != ask.network:
            raise PartyError(
                f"{self.name}: the server's network does not fit these rows.",
                effect=Effect.NOTHING_CHARGED,
            )
        self.poison = config.poison
        self.device = pick_device(config.device)
        if self.poison is not None:
            if self.ledger.real:
                raise PrivacyError(
                    f"{self.name}: poisoned clients are for rehearsals; this ledger "
                    "is real.",
                    effect=Effect.NOTHING_SENT,
                )
            self.liars = self.poison.liars(population.people, config.seed)
        dims = config.dims(self.network)
        self.reporter = config.local(dims)
        return Hosting(
            population, config.event(dims), min(config.max_reports, config.rounds)
        )

    def check(self, ask: Round) -> None:
        weights = ask.weights
        if (
            weights.dtype != torch.float32
            or weights.shape != (self.size,)
            or not weights.isfinite().all()
        ):
            raise PartyError(
                f"{self.name}: the weights are not {self.size:,} finite numbers of 32 "
                "bits.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        in_range(*RATES, rate=ask.rate)

    def reports(self, ask: Round) -> Value:
        parts = torch.split(ask.people, max(1, CHUNK // len(ask.weights)))
        return to_message(
            [
                self.reporter.report(self.told_updates(part, ask.weights), self.rng)
                for part in parts
            ]
        )

    def told_updates(self, people: Tensor, weights: Tensor) -> Tensor:
        """The updates that the mechanism gets: finite, and lies where people lie."""
        updates = cohort(self.updates(people, weights))
        if self.poison is not None:
            self.poison.spoil(updates, self.liars[people].to(updates.device), self.rng)
        return updates

    def updates(self, people: Tensor, weights: Tensor) -> Tensor:
        """What training from `weights` on their own rows changes for each of these
        people: (people, d).
        """
        out = torch.zeros(len(people), self.reporter.dims, device=self.device)
        max_rows = getattr(self.config, "max_rows_per_person", None)
        for in_batch, batch in self.population.apart(
            people, max_rows=max_rows, rng=self.rng
        ):
            update = self.local(weights, *batch)
            out = (
                update
                if bool(in_batch.all())
                else torch.where(in_batch.to(out.device)[:, None], update, out)
            )
        return out


def with_classes(party: HostParty, target: str | None) -> Population:
    """A party's people, of whose rows each has a class."""
    if isinstance(party.data, Population):
        return party.data
    if target is None or not TABLE.holds(party.data):
        raise PartyError(
            f"{party.name}: rows need a class, and no target is named.",
            effect=Effect.NOTHING_CHARGED,
        )
    return Population.from_table(party.data, target)


class Cohorts:
    """Who is asked in each round, at random among those who may still report, and how
    often so far (`asked`). Differs from the papers: people with few reports left are
    kept for later where a plain draw would leave a last round without enough of them.
    Guarantee: nobody is asked more than `max_reports` times, and every round finds a
    full cohort. The draw follows from the seed, the round and who was asked before; how
    people are spread over parties does not matter. Edges: too few people for so many
    reports → ConfigError, which says how many are missing. A party that `leave`s takes
    its people along: they are drawn no more, and a later round may find too few →
    BudgetExceeded.
    """

    def __init__(
        self,
        hosted: Mapping[str, int],
        *,
        rounds: int,
        clients_per_round: int,
        max_reports: int,
        seed: int,
    ) -> None:
        whole(
            rounds=rounds, clients_per_round=clients_per_round, max_reports=max_reports
        )
        self.hosted = dict(hosted)
        self.rounds = rounds
        self.clients_per_round = clients_per_round
        self.max_reports = max_reports
        self.seed = seed
        people = sum(self.hosted.values())
        reports = rounds * clients_per_round
        needed = math.ceil(reports / min(max_reports, rounds))
        if needed > people:
            advice = "Ask fewer."
            if people >= clients_per_round:
                enough = math.ceil(reports / people)
                advice = f"Raise max_reports to {enough}, or ask fewer."
            raise ConfigError(
                f"rounds={rounds} with clients_per_round={clients_per_round} need "
                f"{reports:,} reports, and nobody gives more than "
                f"max_reports={max_reports}: that takes {needed:,} people, and there "
                f"are {people:,}. Missing: {needed - people:,}. {advice}",
                effect=Effect.NOTHING_CHARGED,
            )
        self.asked = np.zeros(people, dtype=np.int32)
        self._here = np.ones(people, dtype=np.bool_)

    def pick(self, round: int) -> dict[str, Tensor]:
        """The cohort of this round, counted from 1, by party. Too few people below the
        `max_reports` → BudgetExceeded.
        """
        rng = np.random.default_rng((self.seed, round))
        later = self.rounds - round
        remaining = np.where(self._here, self.max_reports - self.asked, 0)
        able = np.flatnonzero(remaining > 0)
        if len(able) < self.clients_per_round:
            raise BudgetExceeded(
                f"{len(able):,} people are below max_reports={self.max_reports}, and "
                f"clients_per_round={self.clients_per_round}.",
                effect=Effect.NOTHING_SENT,
            )
        picked = rng.choice(able, self.clients_per_round, replace=False)
        # Whoever has no more reports left than rounds follow is missed later: so many
        # of them can be spared now.
        spare = max(
            0,
            int(np.minimum(remaining, later).sum(dtype=np.int64))
            - later * self.clients_per_round,
        )
        if np.count_nonzero(remaining[picked] <= later) > spare:
            scarce = able[remaining[able] <= later]
            plenty = able[remaining[able] > later]
            n_plenty = min(len(plenty), self.clients_per_round - spare)
            parts = ((plenty, n_plenty), (scarce, self.clients_per_round - n_plenty))
            picked = np.concatenate(
                [rng.choice(part, size, replace=False) for part, size in parts if size]
            )
        picked.sort()
        self.asked[picked] += 1
        bounds = np.cumsum([0, *self.hosted.values()])
        cuts = np.searchsorted(picked, bounds)
        local = {
            name: picked[cuts[i] : cuts[i + 1]] - bounds[i]
            for i, name in enumerate(self.hosted)
        }
        return {
            name: torch.from_numpy(positions)
            for name, positions in local.items()
            if len(positions)
        }

    def leave(self, name: str) -> None:
        """This party is gone. What its people were asked stays counted."""
        if name in self.hosted:
            self._split(self._here)[name][:] = False

    def by_party(self) -> dict[str, NDArray[np.int32]]:
        return self._split(self.asked)

    def _split(self, people: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return dict(
            zip(
                self.hosted,
                np.split(people, np.cumsum(list(self.hosted.values()))[:-1]),
                strict=True,
            )
        )

    def most(self) -> dict[str, int]:
        return {
            name: int(part.max(initial=0)) for name, part in self.by_party().items()
        }


class Rounds(Run):
    """The global model, γ, and who was asked how often. `notes` go on the card,
    `memory` does not; both are saved.
    """

    def __init__(
        self, config: Any, parties: Parties, network: Any, weights: Tensor
    ) -> None:
        super().__init__(config, parties)
        self.network = network
        self.weights = weights
        self.rate = config.step
        self.notes = self.first_notes()
        self.memory: dict[str, Tensor] = {}
        self.rounds = config.rounds
        self.every = config.checkpoint_every

    def first_notes(self) -> dict[str, Any]:
        return {}

    def opening(self) -> BeginTraining:
        return BeginTraining(
            config=asdict(self.config), network=self.network.describe()
        )

    def plan_rounds(self) -> None:
        schedule = {
            key: getattr(self.config, key)
            for key in ("rounds", "clients_per_round", "max_reports", "seed")
        }
        self.cohorts = Cohorts(self.hosted, **schedule)

    def step(self, round: int) -> None:
        replies: dict[str, Any] = {}
        while not replies:  # all whom chance had picked may be gone
            for name in self.parties.gone:
                self.cohorts.leave(name)
            cohort = self.cohorts.pick(round)
            self.prepare(round, cohort)
            settings: dict[str, Any] = {
                "round": round,
                "weights": self.weights,
                "rate": self.rate,
            }
            replies = self.parties.ask(
                {
                    name: self.ask_of(name, Round(**settings, people=who))
                    for name, who in cohort.items()
                }
            )
        self.answered = sum(len(cohort[name]) for name in replies)
        self.learn(
            round,
            [
                (reply.reports.value, len(cohort[name]))
                for name, reply in replies.items()
            ],
        )
        self.done = self.parties.round = round

    def ask_of(self, name: str, ask: Round) -> Call:
        """What this party is asked in a round."""
        return ask

    def prepare(self, round: int, cohort: Mapping[str, Tensor]) -> None:
        """Whatever else these people are asked for before they report."""

    def learn(self, round: int, answers: list[Answer]) -> None:
        self.move([self.total(reports, people) for reports, people in answers])

    @abstractmethod
    def total(self, reports: Any, people: int) -> Tensor:
        """The sum of what so many people of a party claim, as the server reads it:
        (d,).
        """

    def move(self, totals: list[Tensor]) -> None:
        """The global model a step of γ along the mean of all claims, from their sum at
        each party.
        """
        total = torch.stack(totals).sum(0)
        self.weights = moved(self.weights, total, self.answered, self.rate)

    def fit(self) -> Tensor:
        return self.weights

    def to_save(self) -> dict[str, Any]:
        state = {
            "weights": self.weights,
            "rate": self.rate,
            "notes": self.notes,
            "memory": self.memory,
        }
        return state | {"asked": torch.from_numpy(self.cohorts.asked)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.weights = state["weights"]
        self.rate = state["rate"]
        self.notes = state["notes"]
        self.memory = state["memory"]
        self.cohorts.asked = state["asked"].numpy()


class ReportRounds(Rounds):
    def __init__(
        self, config: Any, parties: Parties, network: Any, weights: Tensor
    ) -> None:
        super().__init__(config, parties, network, weights)
        dims = config.dims(network)
        self.reporter = config.local(dims)
        self.event = config.event(dims)
        self.form = form_of(self.reporter)

    def total(self, reports: Any, people: int) -> Tensor:
        return from_message(reports, self.form, people).total()

    @property
    def asked_spend(self) -> dict[str, Spend]:
        return {
            name: {self.event: times} for name, times in self.cohorts.most().items()
        }

    def card_extra(self) -> dict[str, Any]:
        asked = self.cohorts.asked
        reports = {"all": int(asked.sum()), "of the busiest person": int(asked.max())}
        return {"dims": len(self.weights), "reports": reports, **self.notes}


class Classifying(Rounds):
    """Rounds that train a classifier; `holdout` are public rows to test on meanwhile,
    and the card says the outcome. `public` are others, to begin from.
    """

    def __init__(
        self,
        config: Any,
        parties: Parties,
        schemas: Mapping[str, Any],
        holdout: Population | None = None,
        public: Population | None = None,
    ) -> None:
        public_rows = {"the holdout": holdout, "the public rows": public}
        described = {
            name: rows.features
            for name, rows in public_rows.items()
            if rows is not None
        }
        self.features = common_features({**schemas, **described}, config.target)
        self.holdout = holdout
        network = config.network_for(self.features)
        weights = self.first_weights(config, network, public)
        super().__init__(config, parties, network, weights)

    def first_weights(
        self,
        config: Any,
        network: Any,
        public: Population | None,
    ) -> Tensor:
        """M_1, which everybody may know."""
        weights: Tensor = network.init(FastRng(config.seed))
        return weights

    def first_notes(self) -> dict[str, Any]:
        return {"history": []}

    def learn(self, round: int, answers: list[Answer]) -> None:
        super().learn(round, answers)
        config = self.config
        if self.holdout is not None and (
            round % config.evaluate_every == 0 or round == config.rounds
        ):
            parts = ClassifierParts(self.network, self.weights, self.features, {})
            accuracy, loss = parts.tested(self.holdout)
            self.notes["history"].append(
                {"round": round, "accuracy": accuracy, "loss": loss}
            )

    def parts(
        self, weights: Tensor, card: dict[str, Any]
    ) -> ClassifierParts | GeneratorParts:
        return ClassifierParts(self.network, weights, self.features, card)
