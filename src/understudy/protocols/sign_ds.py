"""SignDS-FL: thousands of clients train one classifier, and each sends a sign and a few indices.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 1; chapter 3 of Jiang, dissertation, TUM 2024.
Paper → code: T → rounds, N → cohort, E → epochs, η → learning_rate, γ → global_rate, M_t → `Round.weights`,
LDP-DimSel → reporter; k, h and ε stand in `reporting`.
Differs from the paper: every participation of a person is charged, and their number is capped. The paper's ε is
that of one report, and at its settings a client gives 18 to 125; both figures are stated. γ = 0.05 is taken to
go with the sum of the signs: with their mean (line 9) 500 rounds hardly move the model (USPS at ε = 8: 0.44 instead
of 0.92). Its baselines, which send noisy values, are reporters like the others, and so is the plain mean of
bare updates ("none").
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from understudy.check import one_of, positive, whole
from understudy.classifier import Classifier
from understudy.data.features import Features
from understudy.data.population import Population
from understudy.data.schema import Schema
from understudy.data.table import Table
from understudy.errors import ArtefactError, BudgetExceeded, ConfigError, PartyError, PrivacyError
from understudy.models.classifier import Classifier as Network
from understudy.models.classifier import LeNet, LogisticRegression, Mlp, from_description
from understudy.models.cohort import OPTIMIZERS, local_updates
from understudy.models.device import pick_device
from understudy.pack import Value
from understudy.privacy.accounting import Spend
from understudy.privacy.ledger import Ledger
from understudy.privacy.reporter import Report, Reporter
from understudy.privacy.rng import FastRng
from understudy.privacy.statement import PrivacyStatement
from understudy.protocols.base import Parties, Progress, Watcher, settled
from understudy.protocols.checkpoint import Checkpoint
from understudy.protocols.cohorts import Cohorts
from understudy.protocols.horizontal import (
    Begin,
    Hosting,
    HostParty,
    Round,
    common_features,
    statement,
)
from understudy.protocols.poisoning import Poison
from understudy.protocols.reporting import SELECTION, Reporting, form_of, from_message, to_message

SAME_PEOPLE = False  # each person is with one party
ARTEFACT = "model"
MODELS = ("logistic", "mlp", "lenet")
_CHUNK = 2**26  # update values in work at a time


@dataclass(frozen=True, kw_only=True)
class Config(Reporting):
    """The paper's settings (§3.5.1), beside those of `Reporting`. A table needs a `target`, arrays do not.

    Without a `global_rate` it is 0.05 times the cohort for signs, and 1 for means of updates (Eq. 3.1).
    Without a `clip` values
    are bounded by epochs · learning_rate: on features in [0, 1], gradient descent moves no weight of a logistic
    regression further.
    """

    target: str | None = None
    model: str = "logistic"
    hidden: int = 96
    rounds: int = 500
    cohort: int = 250
    epochs: int = 10
    learning_rate: float = 0.001
    optimizer: str = "sgd"
    global_rate: float | None = None
    poison: Poison | None = None
    evaluate_every: int = 10
    checkpoint_every: int = 100
    device: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("hidden", "rounds", "cohort", "epochs", "evaluate_every", "checkpoint_every")
        whole(**{name: getattr(self, name) for name in names})
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ConfigError(f"seed must be a whole number of at least 0, not {self.seed!r}.")
        positive(learning_rate=self.learning_rate, global_rate=self.step)
        one_of(MODELS, model=self.model)
        one_of(OPTIMIZERS, optimizer=self.optimizer)
        if isinstance(self.poison, Mapping):
            object.__setattr__(self, "poison", Poison(**self.poison))

    @property
    def step(self) -> float:
        """γ."""
        default = 0.05 * self.cohort if self.reporter in SELECTION else 1.0
        return default if self.global_rate is None else self.global_rate

    def local(self, dims: int) -> Reporter:
        """The mechanism of a client."""
        return self.mechanism(dims, clip=self.epochs * self.learning_rate)


def build_network(config: Config, features: Features) -> Network:
    """The classifier that the settings name, for these features."""
    size, classes = prod(features.shape), len(features.labels)
    if config.model == "logistic":
        return LogisticRegression(size, classes)
    if config.model == "mlp":
        return Mlp(size, config.hidden, classes)
    if size != 28 * 28:
        raise ConfigError(
            f"lenet takes images of 28 × 28, not rows of shape {features.shape}. Nothing was charged."
        )
    return LeNet(classes)


class SignDsParty(HostParty):
    """A host of clients. Their models and rows stay with it.

    Guarantee: a report is ε-LDP in the content of the client's rows (`privacy/selection`, `privacy/mean`), and
    stands in the ledger before a row is touched.
    Edges: a client without rows, or whose update is not finite, reports on a zero update, which is noise alone.
    """

    def open(self, ask: Begin) -> Hosting:
        self.config = Config(**ask.config)
        if self.config.poison is not None and self.ledger.real:
            raise PrivacyError(
                f"{self.name}: poisoned clients are for rehearsals; this ledger is real. Nothing was sent."
            )
        self.network = from_description(ask.network)
        population = self._population(self.config.target)
        if build_network(self.config, population.features) != self.network:
            raise PartyError(
                f"{self.name}: the server's network does not fit these rows. Nothing was charged."
            )
        self.reporter = self.config.local(self.network.size)
        self.device = pick_device(self.config.device)
        if self.config.poison is not None:
            self.liars = self.config.poison.liars(population.people, self.config.seed)
        return Hosting(population, self.reporter.event, self.config.cap)

    def _population(self, target: str | None) -> Population:
        if isinstance(self.data, Table):
            if target is None:
                raise PartyError(f"{self.name}: the server names no target. Nothing was charged.")
            return Population.from_table(self.data, target)
        return self.data

    # Algorithm 1, LocalUpdate, for a whole cohort
    def reports(self, people: Tensor, weights: Tensor) -> Value:
        parts = torch.split(people, max(1, _CHUNK // self.network.size))
        return to_message([self._report(part, weights) for part in parts])

    def _report(self, people: Tensor, weights: Tensor) -> Report:
        config = self.config
        x, y, mask = self.population.gather(people)
        updates = local_updates(
            self.network, weights, x, y, None if bool(mask.all()) else mask,
            epochs=config.epochs, lr=config.learning_rate, optimizer=config.optimizer, device=self.device,
        )  # fmt: skip
        updates[~updates.sum(1).isfinite()] = 0
        if config.poison is not None:
            config.poison.spoil(updates, self.liars[people].to(self.device), self.rng)
        return self.reporter.report(updates, self.rng)


@dataclass(frozen=True)
class Outcome:
    """What training gives."""

    model: Classifier
    privacy: PrivacyStatement
    people: int


def build_party(name: str, data: Table | Population, ledger: Ledger, **more: Any) -> SignDsParty:
    """A party of this protocol."""
    return SignDsParty(name, data, ledger, **more)


# Algorithm 1, "Server executes"
def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Schema | Features],
    *,
    holdout: Population | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Train one classifier over the parties' people.

    `holdout` are public rows to test on while it trains; what comes out stands in the card. Ends early, with what
    it has, when somebody's budget is spent. With a `checkpoint` folder it saves every `checkpoint_every` rounds
    and when it is interrupted, and `resume=True` goes on from there.
    """
    described = {name: schemas[name] for name in parties.names}
    tested = {} if holdout is None else {"the holdout": holdout.features}
    features = common_features(described | tested, config.target)
    network = build_network(config, features)
    reporter = config.local(network.size)
    form = form_of(reporter)
    weights, done, ended, history = network.init(FastRng(config.seed)), 0, "", []
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    saved = store.load() if store is not None and resume else None
    begun = _begin(config, parties, network) if saved is None else saved[1]["begun"]
    cohorts = Cohorts(
        {name: info["people"] for name, info in begun.items()},
        rounds=config.rounds, cohort=config.cohort, cap=config.cap, seed=config.seed,
    )  # fmt: skip
    if saved is not None:
        done, state = saved
        _same_settings(config, state["config"])
        weights, history, cohorts.asked = state["weights"], state["history"], state["asked"].numpy()

    def save() -> None:
        if store is not None and done:
            state = {"weights": weights, "history": history, "asked": torch.from_numpy(cohorts.asked)}
            store.save(done, state | {"begun": begun, "config": asdict(config)})

    def spent() -> Mapping[str, float]:
        uses: dict[str, Spend] = {name: {reporter.event: n} for name, n in cohorts.most().items()}
        return statement(begun, uses).per_party()

    try:
        while done < config.rounds:
            cohort = cohorts.pick(done + 1)
            replies = parties.ask(
                {name: Round(round=done + 1, people=who, weights=weights) for name, who in cohort.items()}
            )
            totals = [
                from_message(reply.reports.value, form, len(cohort[name])).total()
                for name, reply in replies.items()
            ]
            mean = torch.stack(totals).sum(0) / config.cohort  # lines 6–9
            weights = weights + config.step * mean.to(weights.dtype)  # line 10
            done += 1
            if holdout is not None and (done % config.evaluate_every == 0 or done == config.rounds):
                accuracy = Classifier(network, weights, features, {}).accuracy(holdout)
                history.append({"round": done, "accuracy": accuracy})
            if watch is not None:
                watch(Progress(done, config.rounds, spent))
            if done % config.checkpoint_every == 0:
                save()
    except BudgetExceeded as refusal:
        ended = f"ended after {done} of {config.rounds} rounds: {refusal}"
    except KeyboardInterrupt:
        save()
        raise
    save()
    privacy = statement(begun, {name: spends["anyone"] for name, spends in settled(parties).items()})
    card = {
        "protocol": "sign-ds",
        "config": asdict(config),
        "rounds": done,
        "ended": ended or "after all rounds",
        "people": len(cohorts.asked),
        "reports": {"all": int(cohorts.asked.sum()), "of the busiest person": int(cohorts.asked.max())},
        "history": history,
        "privacy": privacy.to_dict(),
    }
    return Outcome(Classifier(network, weights, features, card), privacy, len(cohorts.asked))


def _begin(config: Config, parties: Parties, network: Network) -> dict[str, dict[str, Any]]:
    """What each party states when it begins."""
    replies = parties.ask(Begin(config=asdict(config), network=network.describe()))
    return {
        name: {key: public.value for key, public in vars(reply).items()} for name, reply in replies.items()
    }


def _same_settings(config: Config, saved: Mapping[str, Any]) -> None:
    """The parties go on with the settings that they began with, so the server must, too."""
    for name, value in asdict(config).items():
        if saved.get(name) != value:
            raise ArtefactError(
                f"The saved run has {name}={saved.get(name)!r}, not {value!r}. Resume it as it was. "
                "Nothing was charged."
            )
