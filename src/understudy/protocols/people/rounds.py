"""Rounds of reports: the loop that every protocol over people's updates shares, on both sides of the line.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 1, which DP-Fed-WAE (Algorithm 5) and FedSTDG
(Algorithm 8; Jiang, dissertation, TUM 2024, chapters 4 and 5) repeat with other networks and mechanisms.
Paper → code: T → rounds, N → cohort, E → epochs, η → learning_rate, γ → rate, M_t → weights, Δ_t^i → `updates`.

The server's side is a `Rounds`: in each round it asks a cohort, and the protocol makes the next global model of what
the parties answered.

    def learn(round: int, answers: list[Answer]) -> None:
        run.move([from_message(reports, form, people).total() for reports, people in answers])

    run = Rounds.open(config, parties, network.describe(), network.init(rng))
    run.take(learn, reporter.event, watch)

A party's side is a `LearningParty`, whose subclass says how a person's rows become an update.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from understudy.data.encoding.population import Population
from understudy.ground.check import in_range
from understudy.ground.errors import ArtefactError, PartyError, PrivacyError
from understudy.ground.pack import Value
from understudy.ground.settings import WHOLE, between, choice, setting
from understudy.models.cohort.training import OPTIMIZERS
from understudy.models.device import pick_device
from understudy.privacy.accounts.accounting import DpEvent, Spend
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.privacy.local.reporter import Reporter, cohort
from understudy.protocols.core import Parties, Watcher, public_values, settled
from understudy.protocols.core import settings as usual
from understudy.protocols.core.loop import Checkpoint, Present, run_rounds
from understudy.protocols.people.cohorts import Cohorts
from understudy.protocols.people.host import Begin, Hosting, HostParty, Round, left_out, statement
from understudy.protocols.people.poisoning import POISON, Poison
from understudy.protocols.people.reporting import SELECTION, Reporting, to_message

RATES = (1e-12, 1e12)  # learning rates of any sense, and more
MOST_PENALTY = 1e12
_CHUNK = 2**26  # update values in work at a time


@dataclass(frozen=True, kw_only=True)
class Settings(Reporting):
    """What a protocol's config adds to `Reporting`: how long, with how many, and how people train.

    `global_rate` is γ; a protocol says what it is where none is given. The prices of a person's `most_holders` compose.
    """

    rounds: int = setting(500, WHOLE, "rounds of training")
    cohort: int = setting(250, WHOLE, "people who report in a round")
    epochs: int = setting(10, WHOLE, "local epochs of a person")
    learning_rate: float = setting(0.001, between(*RATES), "learning rate")
    optimizer: str = setting("sgd", choice(*OPTIMIZERS), "local optimiser")
    global_rate: float | None = setting(
        None, between(*RATES), "step of the common model; without it as in the paper"
    )
    poison: Poison | None = setting(None, POISON, "a simulation: people who lie")
    checkpoint_every: int = setting(100, WHOLE, "rounds between two checkpoints")
    at_least: int | None = usual.at_least()
    most_holders: int = usual.most_holders()
    device: str = usual.device()
    seed: int = usual.seed()

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(*RATES, global_rate=self.step)

    @property
    def step(self) -> float:
        """γ. Means of updates are taken as they are (SignDS-FL, Eq. 3.1); of FedSel, which sends one coordinate of
        each, the sum: by the mean over the cohort a coordinate would hardly move.
        """
        default = {**dict.fromkeys(SELECTION, self.sign_step), "fedsel": float(self.cohort)}.get(
            self.reporter, 1.0
        )
        return default if self.global_rate is None else self.global_rate

    @property
    def sign_step(self) -> float:
        """γ for means of signs."""
        return 1.0

    def local(self, dims: int) -> Reporter:
        """The mechanism of a client. Without a `clip`, a value is bounded by epochs · learning_rate."""
        return self.mechanism(dims, clip=self.epochs * self.learning_rate)


class LearningParty(HostParty):
    """A host of people who train the global model on their own rows. Their models and rows stay with it.

    Guarantee: a report is ε-LDP in the content of the person's rows (`privacy/local`), and
    stands in the ledger before a row is touched. It depends on nobody else's rows, not even by rounding: people train
    in batches whose shapes are nobody else's doing (`Population.apart`).
    Edges: a person without rows, or whose update is not finite, reports on a zero update, which is noise alone: a
    server may send weights at which that depends on the rows. Weights that are not finite, or not of this network →
    PartyError, and nobody is charged.
    """

    most_rows: int | None = None  # of a person with more, so many are drawn in each round

    @abstractmethod
    def local(self, weights: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """What training from `weights` on their own rows changes for each of some people: (people, d).

        Rows are as `Population.gather` has them.
        """

    def updates(self, people: Tensor, weights: Tensor) -> Tensor:
        """What training from `weights` on their own rows changes for each of these people: (people, d)."""
        out = torch.zeros(len(people), self.reporter.dims, device=self.device)
        for here, batch in self.population.apart(people, most=self.most_rows, rng=self.rng):
            update = self.local(weights, *batch)
            out = update if bool(here.all()) else torch.where(here.to(out.device)[:, None], update, out)
        return out

    def host(
        self, config: Settings, population: Population, reporter: Reporter, *, size: int | None = None
    ) -> Hosting:
        """What `open` returns, for these settings; `size`: of the weights, where updates are about a part of them.

        PrivacyError where people would lie to a real ledger.
        """
        self.size = reporter.dims if size is None else size
        if config.poison is not None and self.ledger.real:
            raise PrivacyError(
                f"{self.name}: poisoned clients are for rehearsals; this ledger is real. Nothing was sent."
            )
        self.reporter, self.poison, self.device = reporter, config.poison, pick_device(config.device)
        if self.poison is not None:
            self.liars = self.poison.liars(population.people, config.seed)
        return Hosting(population, reporter.event, min(config.cap, config.rounds))

    def check(self, ask: Round) -> None:
        weights = ask.weights
        if weights.dtype != torch.float32 or weights.shape != (self.size,) or not weights.isfinite().all():
            raise PartyError(
                f"{self.name}: the weights are not {self.size:,} finite numbers of 32 bits. "
                "Nothing was charged or sent."
            )
        in_range(*RATES, rate=ask.rate)

    def reports(self, ask: Round) -> Value:
        parts = torch.split(ask.people, max(1, _CHUNK // len(ask.weights)))
        return to_message([self.reporter.report(self.told(part, ask.weights), self.rng) for part in parts])

    def told(self, people: Tensor, weights: Tensor) -> Tensor:
        """The updates that the mechanism gets: finite, and lies where people lie."""
        updates = cohort(self.updates(people, weights))
        if self.poison is not None:
            self.poison.spoil(updates, self.liars[people].to(updates.device), self.rng)
        return updates


class Answer(NamedTuple):
    """What a party's people reported in a round, and how many they are."""

    reports: Any
    people: int


class Rounds:
    """The server's side of a run: the global model, γ, who was asked how often, and what is saved of it.

    `notes` are the protocol's own plain values that a resumed run needs, such as a history, and go on the card;
    `memory` are its tensors, such as an optimiser's, and do not. With a `checkpoint` folder it saves every
    `checkpoint_every` rounds and when it is interrupted, and `resume=True` continues from there, with the settings that
    it began with.
    """

    def __init__(
        self,
        config: Settings,
        parties: Present,
        weights: Tensor,
        begun: Mapping[str, dict[str, Any]],
        notes: Mapping[str, Any],
        store: Checkpoint | None,
    ) -> None:
        self.config, self.weights, self.rate = config, weights, config.step
        self.parties, self.begun, self.store = parties, dict(begun), store
        self.notes: dict[str, Any] = dict(notes)
        self.memory: dict[str, Tensor] = {}
        self.done, self.ended = 0, ""
        self.cohorts = Cohorts(
            {name: info["people"] for name, info in self.begun.items()},
            rounds=config.rounds, cohort=config.cohort, cap=config.cap, seed=config.seed,
        )  # fmt: skip

    @classmethod
    def open(
        cls,
        config: Settings,
        parties: Parties,
        network: Mapping[str, Any],
        weights: Tensor,
        *,
        notes: Mapping[str, Any] | None = None,
        checkpoint: Path | None = None,
        resume: bool = False,
    ) -> "Rounds":
        """Begin at every party, or go on from what was saved."""
        present = Present(parties, config.at_least)
        store = None if checkpoint is None else Checkpoint(checkpoint, present)
        saved = store.load() if store is not None and resume else None
        if saved is None:
            begin = Begin(config=asdict(config), network=dict(network))
            return cls(config, present, weights, public_values(present.ask(begin)), notes or {}, store)
        done, state = saved
        _same_settings(config, state["config"])
        run = cls(config, present, state["weights"], state["begun"], state["notes"], store)
        run.done, run.rate, run.memory = done, state["rate"], state["memory"]
        run.cohorts.asked = state["asked"].numpy()
        return run

    def take(
        self, learn: Callable[[int, list[Answer]], None], event: DpEvent, watch: Watcher | None = None
    ) -> None:
        """Ask a cohort in each round that is left, and let the protocol `learn` from the answers.

        `event` is what one report costs. Ends early, with what there is, when somebody's budget is spent, or too few
        people are left of those who are there.
        """
        self.event = event

        def step(round: int) -> None:
            learn(round, self._ask(round))
            self.done = self.parties.round = round

        def spent() -> Mapping[str, float]:
            uses: dict[str, Spend] = {name: {event: n} for name, n in self.cohorts.most().items()}
            return statement(self.begun, uses).per_party()

        self.ended = run_rounds(
            self.config.rounds, step, done=self.done, save=self._save, every=self.config.checkpoint_every,
            watch=watch, spent=spent,
        )  # fmt: skip

    def move(self, totals: Sequence[Tensor]) -> None:
        """The global model a step of γ along the mean of all claims, from their sum (d,) at each party."""
        mean = torch.stack(list(totals)).sum(0) / self.answered
        self.weights = self.weights + self.rate * mean.to(self.weights.dtype)

    def privacy(self) -> PrivacyStatement:
        """What was paid, by the parties' ledgers."""
        spends: dict[str, Spend] = {
            name: one["anyone"] for name, one in settled(self.parties, at_least=0).items()
        }
        most = self.cohorts.most()
        spends |= {name: {self.event: most[name]} for name in self.begun if name in self.parties.gone}
        return statement(self.begun, spends, gone=self.parties.gone, most_holders=self.config.most_holders)

    def card(self, protocol: str, privacy: PrivacyStatement) -> dict[str, Any]:
        """What is to be said of the run, wherever its artefact goes."""
        asked = self.cohorts.asked
        return {
            "protocol": protocol,
            "config": asdict(self.config),
            "rounds": self.done,
            "ended": self.ended,
            "gone": self.parties.gone,
            "people": len(asked),
            "left_out": left_out(self.begun),
            "dims": len(self.weights),
            "reports": {"all": int(asked.sum()), "of the busiest person": int(asked.max())},
            **self.notes,
            "privacy": privacy.to_dict(),
        }

    def _ask(self, round: int) -> list[Answer]:
        replies: dict[str, Any] = {}
        while not replies:  # all whom chance had picked may be gone
            for name in self.parties.gone:
                self.cohorts.leave(name)
            cohort = self.cohorts.pick(round)
            replies = self.parties.ask(
                {
                    name: Round(round=round, people=who, weights=self.weights, rate=self.rate)
                    for name, who in cohort.items()
                }
            )
        self.answered = sum(len(cohort[name]) for name in replies)
        return [Answer(reply.reports.value, len(cohort[name])) for name, reply in replies.items()]

    def _save(self) -> None:
        if self.store is None or not self.done:
            return
        state = {"weights": self.weights, "rate": self.rate, "notes": self.notes, "memory": self.memory}
        asked = {"asked": torch.from_numpy(self.cohorts.asked)}
        self.store.save(self.done, state | asked | {"begun": self.begun, "config": asdict(self.config)})


def _same_settings(config: Settings, saved: Mapping[str, Any]) -> None:
    """The parties go on with the settings that they began with, so the server must, too."""
    for name, value in asdict(config).items():
        if saved.get(name) != value:
            raise ArtefactError(
                f"The saved run has {name}={saved.get(name)!r}, not {value!r}. Resume it as it was. "
                "Nothing was charged."
            )
