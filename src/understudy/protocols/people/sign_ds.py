"""SignDS-FL: thousands of people train one classifier, and each sends a sign and a few indices.

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
from dataclasses import dataclass
from math import prod
from pathlib import Path

from torch import Tensor

from understudy.data.encoding.features import Features
from understudy.data.encoding.population import Population
from understudy.data.kinds import TABLE
from understudy.data.schema import Schema
from understudy.generators.parts import ClassifierParts
from understudy.ground.errors import ConfigError, PartyError
from understudy.ground.settings import WHOLE, choice, setting
from understudy.models.cohort.classifier import Classifier as Network
from understudy.models.cohort.classifier import LeNet, LogisticRegression, Mlp, from_description
from understudy.models.cohort.training import ClassifierTraining
from understudy.privacy.noise import FastRng
from understudy.protocols.core import Parties, Watcher
from understudy.protocols.core import settings as usual
from understudy.protocols.core.common_rule import common_features
from understudy.protocols.core.loop import Outcome
from understudy.protocols.people.host import Begin, Hosting
from understudy.protocols.people.reporting import form_of, from_message
from understudy.protocols.people.rounds import Answer, LearningParty, Rounds, Settings
from understudy.protocols.protocol import Protocol

MODELS = ("logistic", "mlp", "lenet")


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The paper's settings (§3.5.1), beside those of `Settings`. A table needs a `target`, arrays do not.

    Without a `global_rate` it is 0.05 times the cohort for signs, the cohort for FedSel's single coordinates, and 1
    for means of updates (Eq. 3.1).
    Without a `clip` values are bounded by epochs · learning_rate: on features in [0, 1], gradient descent moves
    no weight of a logistic regression further.
    """

    target: str | None = usual.target()
    model: str = setting("logistic", choice(*MODELS), "the classifier")
    hidden: int = setting(96, WHOLE, "width of the hidden layers")
    evaluate_every: int = setting(10, WHOLE, "rounds between two tests on public held-out rows")

    @property
    def sign_step(self) -> float:
        return 0.05 * self.cohort


def build_network(config: Config, features: Features) -> Network:
    """The classifier that the settings name, for these features."""
    size, classes = prod(features.shape), len(features.labels)
    if classes < 2:
        raise ConfigError("these rows have no classes to learn. Nothing was charged.")
    if config.model == "logistic":
        return LogisticRegression(size, classes)
    if config.model == "mlp":
        return Mlp(size, config.hidden, classes)
    if size != 28 * 28:
        raise ConfigError(
            f"lenet takes images of 28 × 28, not rows of shape {features.shape}. Nothing was charged."
        )
    return LeNet(classes)


class SignDsParty(LearningParty):
    """A host of people who train a classifier."""

    def open(self, ask: Begin) -> Hosting:
        self.config = Config(**ask.config)
        self.network = from_description(ask.network)
        population = self._population(self.config.target)
        if build_network(self.config, population.features) != self.network:
            raise PartyError(
                f"{self.name}: the server's network does not fit these rows. Nothing was charged."
            )
        hosting = self.host(self.config, population, self.config.local(self.network.size))
        self.training = ClassifierTraining(
            self.network, epochs=self.config.epochs, lr=self.config.learning_rate, optimizer=self.config.optimizer,
            device=self.device,
        )  # fmt: skip
        return hosting

    def _population(self, target: str | None) -> Population:
        if TABLE.holds(self.data):
            if target is None:
                raise PartyError(f"{self.name}: the server names no target. Nothing was charged.")
            return Population.from_table(self.data, target)
        if not isinstance(self.data, Population):
            raise PartyError(f"{self.name}: these rows have no classes to learn. Nothing was charged.")
        return self.data

    # Algorithm 1, LocalUpdate, for a whole cohort
    def local(self, weights: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return self.training(weights, x, y, mask)


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
    and when it is interrupted, and `resume=True` continues from there.
    """
    described = {name: schemas[name] for name in parties.names}
    tested = {} if holdout is None else {"the holdout": holdout.features}
    features = common_features(described | tested, config.target)
    network = build_network(config, features)
    reporter = config.local(network.size)
    form = form_of(reporter)
    run = Rounds.open(
        config, parties, network.describe(), network.init(FastRng(config.seed)),
        notes={"history": []}, checkpoint=checkpoint, resume=resume,
    )  # fmt: skip

    def learn(round: int, answers: list[Answer]) -> None:
        run.move([from_message(reports, form, people).total() for reports, people in answers])  # lines 6–10
        if holdout is not None and (round % config.evaluate_every == 0 or round == config.rounds):
            accuracy = ClassifierParts(network, run.weights, features, {}).accuracy(holdout)
            run.notes["history"].append({"round": round, "accuracy": accuracy})

    run.take(learn, reporter.event, watch)
    privacy = run.privacy()
    card = run.card("sign-ds", privacy)
    return Outcome(ClassifierParts(network, run.weights, features, card), privacy, card["people"])


PROTOCOL = Protocol(
    name="sign-ds",
    paper=__doc__,
    config=Config,
    party=SignDsParty,
    train=train,
    same_people=False,
    artefact="model",
    kinds=("table", "image", "series"),
    audit="reports",
)
