"""SignDS-FL: thousands of people train one classifier, and each sends a sign and a few
indices.

Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022), Algorithm 1; chapter 3 of Jiang,
dissertation, TUM 2024.
Paper → code: T → rounds, N → clients_per_round, E → epochs, η → learning_rate, γ →
global_rate, M_t → `Round.weights`, LDP-DimSel → reporter; k, h and ε stand in
`reporting`.
Differs from the paper: every participation of a person is charged, and their number is
capped. The paper's ε is that of one report, and at its settings a client gives 18 to
125; both figures are stated. γ = 0.05 is taken to go with the sum of the signs: with
their mean (line 9) 500 rounds hardly move the model (USPS at ε = 8: 0.44 instead of
0.92). M_1 may be trained on public rows, as the article proposes (§6.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor

from understudy.data.encoding.features import Features
from understudy.data.encoding.population import Population
from understudy.ground.errors import ConfigError, Effect
from understudy.ground.settings import WHOLE, choice, setting
from understudy.models.cohort.classifier import Classifier as Network
from understudy.models.cohort.classifier import LeNet, LogisticRegression, Mlp
from understudy.models.cohort.training import ClassifierTraining, learned
from understudy.privacy.noise import FastRng
from understudy.protocols.core import Ask, Reply
from understudy.protocols.core import settings as usual
from understudy.protocols.cross_device.downlink import Held, Moved, Steps
from understudy.protocols.cross_device.host import BeginTraining, Call, Hosting, Round
from understudy.protocols.cross_device.reporting import Settings
from understudy.protocols.cross_device.rounds import (
    Classifying,
    LearningParty,
    ReportRounds,
    with_classes,
)

MODELS = ("logistic", "mlp", "lenet")
# 100 passes at it are within .03 of the best of .002–.05 and 10–300 passes:
# scikit-learn's digits, 50 and 200 public rows, logistic regression and perceptron
_PUBLIC_RATE = 0.01


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The paper's settings (§3.5.1), beside those of `Settings`. A table needs a
    `target`, arrays do not.
    """

    target: str | None = usual.target()
    model: str = setting("logistic", choice(*MODELS), "the classifier")
    hidden: int = setting(96, WHOLE, "width of the hidden layers")
    public_epochs: int = setting(
        100,
        WHOLE,
        "passes over public rows, where there are any, before the first round",
    )
    downlink: str = setting(
        "weights",
        choice("weights", "changes"),
        "what a holder is sent of the model: its weights, or what was added since it "
        "was asked last, where that is shorter",
    )
    evaluate_every: int = setting(
        10, WHOLE, "rounds between tests on public held-out rows"
    )

    @property
    def sign_step(self) -> float:
        return 0.05 * self.clients_per_round

    def network_for(self, features: Features) -> Network:
        size = prod(features.shape)
        classes = len(features.labels)
        if classes < 2:
            raise ConfigError(
                "these rows have no classes to learn.", effect=Effect.NOTHING_CHARGED
            )
        if self.model == "logistic":
            return LogisticRegression(size, classes)
        if self.model == "mlp":
            return Mlp(size, self.hidden, classes)
        if size != 28 * 28:
            raise ConfigError(
                f"lenet takes images of 28 × 28, not rows of shape {features.shape}.",
                effect=Effect.NOTHING_CHARGED,
            )
        return LeNet(classes)


class SignDsParty(LearningParty):
    settings = Config
    beside = (Moved,)

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.held = Held()

    def respond(self, ask: Ask) -> Reply:
        if isinstance(ask, Moved) and self.begun is not None:
            ask = self.held.ask(self.name, ask)
        reply = super().respond(ask)
        if isinstance(ask, Round) and self.config.downlink == "changes":
            self.held.keep(ask)
        return reply

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | self.held.to_save()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.held.restore(state)

    def own_people(self) -> Population:
        return with_classes(self, self.config.target)

    def open(self, ask: BeginTraining) -> Hosting:
        hosting = super().open(ask)
        config = self.config
        self.training = ClassifierTraining(
            self.network,
            epochs=config.epochs,
            lr=config.learning_rate,
            optimizer=config.optimizer,
            device=self.device,
        )
        return hosting

    # Algorithm 1, LocalUpdate, for a whole cohort
    def local(self, weights: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return self.training(weights, x, y, mask)


# Algorithm 1, "Server executes"
class SignDs(Classifying, ReportRounds):
    """Train one classifier over the parties' people: `learn` is lines 6–10. `public`:
    nobody's rows, from which the model begins.
    """

    protocol = "sign-ds"
    public_rows: int = 0

    @cached_property
    def steps(self) -> Steps:
        return Steps()

    def first_weights(
        self,
        config: Any,
        network: Any,
        public: Population | None,
    ) -> Tensor:
        if public is None:
            return super().first_weights(config, network, public)
        self.public_rows = len(public.rows)
        return learned(
            network,
            lambda batch: self.features.expand(public.rows[batch]),
            public.codes,
            FastRng(config.seed),
            epochs=config.public_epochs,
            rate=_PUBLIC_RATE,
        )

    def ask_of(self, name: str, ask: Round) -> Call:
        return self.steps.ask(name, ask) if self.saves_downlink else ask

    def move(self, totals: list[Tensor]) -> None:
        if self.saves_downlink:
            total = torch.stack(totals).sum(0)
            # one more than the last that was done
            self.steps.take(self.done + 1, total, self.answered, self.rate)
        super().move(totals)

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.steps.forget()

    @property
    def saves_downlink(self) -> bool:
        """Whether a step is a sum of signs at a few dimensions."""
        signs = self.form.indices is not None and self.form.values.dtype == torch.int8
        return self.config.downlink == "changes" and signs and self.form.scale == 1

    def card_extra(self) -> dict[str, Any]:
        begun = {"public_rows": self.public_rows} if self.public_rows else {}
        return super().card_extra() | begun


train = SignDs.train
PROTOCOL = SignDs.record(
    SignDsParty,
    Config,
    paper=__doc__,
    artefact="model",
    kinds=("table", "image", "series"),
    public_rows=True,
    audit="reports",
)
