"""DP-GenFL: clients train one classifier, each on a mixture of its real rows and rows
that it made up.

Li, Wei, Ma, Shu, "DP-GenFL: A Local Differentially Private Federated Learning System
through Generative Data" (supplementary file), Algorithms A1, B1 and B2.
Paper → code: N clients → people, 30 a round → clients_per_round, T → rounds, γ → share,
(ε_i, δ_i) → epsilon, delta, C → clip_norm, w^(t) → weights, 5 local iterations → steps.
Differs from the paper: real rows get per-sample DP-SGD; the paper clips and noises one
gradient a round. Its GAN sees raw rows without noise, and the term for that in its
Theorem 1 cannot be computed: the faithful mode is charged as what it is, a release
without a guarantee, which only a ledger of a rehearsal accepts. `dp_generator=True`
trains the GAN's critic privately and composes. Class ratios are paid for, and no
validation accuracy is sent. No bound of the paper is used: Eq. C4 reverses Jensen's
inequality (the logarithm is concave, and D_α ≥ KL for α > 1), so the proof of its
Theorem 1 fails, and Remark 3 reverses its assumption σ_R ≥ σ_S. Synthetic rows are made
once, where line 4 of Algorithm B2 stands inside the loop. The paper's CNN for
Fashion-MNIST and CIFAR-10 is `model="cnn"`; the perceptron is the default.

γ=0 is its baseline DP-FL, without a GAN.

Guarantee: one row of one client, add/remove: the paper's unit. Where a client is one
person with many rows, this protects each of them by itself, not the person. With
`dp_generator`, or γ=0, a client's reports together are (ε, δ)-DP.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import dp_accounting as dp
import torch
from torch import Tensor

from understudy.data.encoding.features import Features
from understudy.ground.errors import (
    ConfigError,
    Effect,
    MessageError,
    PartyError,
    PrivacyError,
)
from understudy.ground.pack import Value
from understudy.ground.settings import POSITIVE, TRUTH, WHOLE, between, choice, setting
from understudy.models.cohort.classifier import Cnn, Dense, LogisticRegression, Mlp
from understudy.models.nets.tapped import ConditionalGan
from understudy.models.network import on_device, pick_device
from understudy.privacy.accounts.accounting import (
    DiscreteGaussian,
    DpEvent,
    Spend,
    calibrate,
    epsilon,
    flatten,
)
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.privacy.gradients.limits import WEIGHT, sound_weights, within_limits
from understudy.protocols.core import Ask, Paid, Reply
from understudy.protocols.core import settings as usual
from understudy.protocols.cross_device.host import (
    BeginTraining,
    Call,
    Hosting,
    HostParty,
    Round,
)
from understudy.protocols.cross_device.rounds import Classifying, with_classes
from understudy.protocols.papers.gen_fl.local import (
    Descent,
    draw,
    fit_gan,
    local_models,
    ratio,
)

PER_ROW = "ε protects one row, not a client with several rows"
ADJACENCY = (
    "add or remove one row of one client; that the client reported, and when, is public"
)
UNGUARDED = (
    "synthetic rows: the generator that made them saw raw rows without noise, and the "
    "model learned from them; "
    "the ε of the real rows is in the card and does not cover this",
)
UNGUARDED_WITHOUT_NOISE = ("everything: the run was asked to train without noise",)
MODELS = ("logistic", "mlp", "cnn")


@dataclass(frozen=True, kw_only=True)
class Config(usual.PeopleApart):
    """The paper's settings (Appendix E.2): 80 rounds of 30 of 50 clients, 5 local steps
    at 0.02, MLP of 512. A party builds this anew from what the server sends: its ranges
    (`gradients/limits.py`) hold whoever the server is. Only where `rows_are_people` (a
    client is a site, not a phone) may a ledger of people hold the prices. `epsilon` and
    `delta` are for all that a client may do in the run: `max_reports` reports, or one a
    round where there are fewer rounds, and with `dp_generator` its GAN. `rows` is a
    nominal, public number of rows per client: a row is in a batch with chance
    batch/rows, whatever a client really has; as many synthetic rows are made.
    """

    target: str | None = usual.target()
    model: str = setting("mlp", choice(*MODELS), "the classifier")
    hidden: int = setting(512, within_limits("hidden"), "width of the hidden layers")
    share: float = setting(0.6, between(0, 1), "share of made-up rows in a batch")
    dp_generator: bool = setting(
        False,
        TRUTH,
        "whether the generator is private, too; else it stays at the client",
    )
    rows_are_people: bool = setting(
        False, TRUTH, "each row is a different person, who has no other row"
    )
    epsilon: float = setting(
        4.0, POSITIVE, "price of everything that a client does in the run"
    )
    delta: float = setting(1e-5, between(0, 1), "δ of the price")
    rounds: int = setting(80, within_limits("rounds"), "rounds of training")
    clients_per_round: int = setting(30, WHOLE, "people who report in a round")
    max_reports: int = setting(48, WHOLE, "the most reports of one person")
    steps: int = setting(
        5, within_limits("steps"), "local steps of a client in a round"
    )
    learning_rate: float = setting(
        0.02, within_limits("learning_rate"), "learning rate"
    )
    batch: int = setting(64, within_limits("batch"), "people in a step, on average")
    rows: int = setting(
        1000, within_limits("rows"), "a public, nominal number of rows of a client"
    )
    clip_norm: float = setting(
        1.0, within_limits("clip_norm"), "the longest gradient of one person"
    )
    gan_steps: int = setting(
        500, within_limits("gan_steps"), "steps of a client's generator"
    )
    gan_learning_rate: float = setting(
        0.001,
        within_limits("gan_learning_rate"),
        "learning rate of a client's generator",
    )
    gan_hidden: int = setting(
        128, within_limits("gan_hidden"), "width of a client's generator"
    )
    latent: int = setting(
        16,
        within_limits("latent"),
        "size of the generator's latent space, which the paper does not name",
    )
    ratio_noise: float = setting(
        10.0, within_limits("ratio_noise"), "noise on a client's class counts"
    )
    private: bool = usual.private()
    evaluate_every: int = setting(
        10,
        within_limits("evaluate_every"),
        "rounds between tests on public held-out rows",
    )
    checkpoint_every: int = setting(
        20, within_limits("checkpoint_every"), "rounds between two checkpoints"
    )
    device: str = usual.device()

    @property
    def rate(self) -> float:
        return min(1.0, self.batch / self.rows)

    @property
    def step(self) -> float:
        """γ of the common model: local ones are averaged as they are."""
        return 1.0

    @property
    def reports_per_person(self) -> int:
        """The most that one may give, where rounds are fewer than `max_reports`."""
        return min(self.max_reports, self.rounds)

    @property
    def unguarded(self) -> tuple[str, ...]:
        """What of such a run has no formal guarantee."""
        if not self.private:
            return UNGUARDED_WITHOUT_NOISE
        return UNGUARDED if self.share and not self.dp_generator else ()

    def report_event(self, noise: float) -> DpEvent:
        """What one report costs: `steps` private steps; nothing where γ=1 leaves no
        real row in them.
        """
        return (
            dp.SelfComposedDpEvent(_step_event(self.rate, noise), self.steps)
            if self.share < 1
            else dp.NoOpDpEvent()
        )

    def generation_event(self, noise: float) -> DpEvent:
        """What a client's synthetic rows cost: the class ratio and the GAN. The
        faithful one has no price.
        """
        if not self.share:
            return dp.NoOpDpEvent()
        private = self.private and self.dp_generator
        gan = (
            dp.SelfComposedDpEvent(_step_event(self.rate, noise), self.gan_steps)
            if private
            else dp.NonPrivateDpEvent()
        )
        return dp.ComposedDpEvent([DiscreteGaussian(self.ratio_noise), gan])

    def priced_spend(self, noise: float) -> Spend:
        """All that a client may do in the run, but for a GAN that no noise protects."""
        whole_run = flatten(
            self.report_event(noise), self.reports_per_person
        ) + flatten(self.generation_event(noise))
        return {
            event: count
            for event, count in whole_run.items()
            if not isinstance(event, dp.NonPrivateDpEvent)
        }

    def real_rows_epsilon(self, spends: Iterable[Spend]) -> float | None:
        """What private steps over real rows cost the client with the highest spend;
        None where no step is private. All that was spent counts, but for a generator
        without noise and class ratios.
        """
        if not needed_noise(self):
            return None
        ratios = DiscreteGaussian(self.ratio_noise)
        priced = (
            {
                event: count
                for event, count in spend.items()
                if not isinstance(event, dp.NonPrivateDpEvent) and event != ratios
            }
            for spend in spends
        )
        return max(epsilon(steps, self.delta) for steps in priced)

    def network_for(self, features: Features) -> Dense | Cnn:
        size = math.prod(features.shape)
        classes = len(features.labels)
        if self.model == "cnn":
            if len(features.shape) not in (2, 3):
                raise ConfigError(
                    'model = "cnn" takes images, (height, width) or (height, width, '
                    f"channels), not rows of shape {tuple(features.shape)}."
                )
            height, width, channels = (*features.shape, 1)[:3]
            return Cnn(height, width, channels, classes)
        if self.model == "logistic":
            return LogisticRegression(size, classes)
        return Mlp(size, self.hidden, classes)


def _step_event(rate: float, noise: float) -> DpEvent:
    return (
        dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
        if noise
        else dp.NonPrivateDpEvent()
    )


@lru_cache(maxsize=64)
def needed_noise(config: Config) -> float:
    """The least noise multiplier with which a client's run is within (ε, δ): one for
    the model and for the GAN.
    """
    if not config.private or (config.share == 1 and not config.dp_generator):
        return 0.0
    return calibrate(config.priced_spend, epsilon=config.epsilon, delta=config.delta)


class Make(Call, kind="gen-fl.make"):
    """Clients that are asked for the first time: make their synthetic rows. Their
    places, (n,).
    """


class SyntheticRowsMade(Reply, kind="gen-fl.made"):
    """For how many clients they were made. The rows stay with the clients."""

    clients: Paid


class GenFlParty(HostParty):
    """A host of clients with many rows each, or a single client. A report is made by
    `local_models`: from real rows through `private_sums`, and from synthetic rows,
    which are post-processing of what `generation_event` prices. Whatever rows and
    weights are, a report is finite (`privacy/gradients/limits.py`).
    Edges: a client without rows reports noise; weights of another number, that are not
    float32, or beyond 10⁹ → MessageError, nothing is charged. One who cannot pay for
    synthetic rows and all reports is left out.
    """

    beside = (Make, SyntheticRowsMade)
    description = f"one report each; {PER_ROW}"
    before = "synthetic rows and "

    def open(self, ask: BeginTraining) -> Hosting:
        self.config = config = Config(**ask.config)
        if self.ledger.real and not config.rows_are_people:
            raise PrivacyError(
                f"{self.name}: here ε protects one row of a client, and this ledger "
                "keeps the prices of people. Where every row is another person, say "
                "so: rows_are_people = true.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        population = with_classes(self, config.target)
        self.network = network = config.network_for(population.features)
        if network.describe() != ask.network:
            raise PartyError(
                f"{self.name}: the server's network does not fit these rows.",
                effect=Effect.NOTHING_CHARGED,
            )
        self.noise = needed_noise(config)
        self.device = pick_device(config.device)
        rows = (population.people, config.rows if config.share else 0)
        # whose synthetic rows stand here
        self.has_synthetic = torch.zeros(population.people, dtype=torch.bool)
        self.synthetic = (
            torch.zeros(*rows, network.features),
            torch.zeros(rows, dtype=torch.int64),
        )
        return Hosting(
            population,
            config.report_event(self.noise),
            config.reports_per_person,
            config.generation_event(self.noise),
        )

    def respond(self, ask: Ask) -> Reply:
        if isinstance(ask, Make) and self.begun is not None and self.config.share:
            return self._make(ask)
        return super().respond(ask)

    def composition(self) -> dict[str, Any]:
        stated = {
            "adjacency": ADJACENCY,
            "local": False,
            "unguarded": self.config.unguarded,
        }
        return super().composition() | stated

    def check(self, ask: Round) -> None:
        if sound_weights(ask.weights, self.network.size) is None:
            raise MessageError(
                f"{self.name}: the weights do not fit the network, or are beyond "
                f"{WEIGHT:g}.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        if self.config.share and not bool(
            self.has_synthetic[self.places[ask.people]].all()
        ):
            raise PartyError(
                f"{self.name}: an asked client has no synthetic rows.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    # Algorithm B1
    def _make(self, ask: Make) -> SyntheticRowsMade:
        self._admit(ask.people)
        config = self.config
        new = self.places[ask.people]
        if bool(self.has_synthetic[new].any()):
            raise PartyError(
                f"{self.name}: a client's synthetic rows exist already.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        receipt = self.charge(
            config.generation_event(self.noise),
            people=self.population.ids[new.numpy()],
            description=f"round {ask.round}: synthetic rows of clients that are new; "
            f"{PER_ROW}",
        )
        x, y, mask = self._rows(new)
        classes = self.network.classes
        shares = ratio(
            y, mask, classes, config.ratio_noise if config.private else 0.0, self.rng
        )
        gan = ConditionalGan(
            len(new),
            self.network.features,
            classes,
            latent=config.latent,
            hidden=config.gan_hidden,
            seed=config.seed,
        ).to(self.device)
        noise = self.noise if config.dp_generator else 0.0
        fit_gan(
            gan,
            x,
            y,
            mask,
            shares,
            self._descent(config.gan_steps, noise, config.gan_learning_rate),
            self.rng,
        )
        self.synthetic[0][new], self.synthetic[1][new] = draw(
            gan, shares, config.rows, self.rng
        )
        self.has_synthetic[new] = True
        return SyntheticRowsMade(clients=Paid(len(new), receipt))

    # Algorithm B2, lines 5–12
    def reports(self, ask: Round) -> Value:
        config = self.config
        people = ask.people
        weights = sound_weights(ask.weights, self.network.size)
        assert weights is not None  # `check` has seen to it
        x, y = (on_device(part[people], self.device) for part in self.synthetic)
        changes = local_models(
            self.network,
            on_device(weights, self.device),
            self._rows(people) if config.share < 1 else None,
            (x, y) if config.share else None,
            config.share,
            self._descent(config.steps, self.noise, config.learning_rate),
            self.rng,
        )
        return changes.sum(0).cpu()

    def _descent(self, steps: int, noise: float, learning_rate: float) -> Descent:
        config = self.config
        return Descent(
            steps=steps,
            batch=config.batch,
            rate=config.rate,
            clip_norm=config.clip_norm,
            noise_multiplier=noise,
            learning_rate=learning_rate,
        )

    def _rows(self, people: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, mask = self.population.gather(people)
        return x.flatten(2), y, mask

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None:
            x, y = self.synthetic
            state["made"] = {
                "clients": self.has_synthetic,
                "rows": x[self.has_synthetic],
                "labels": y[self.has_synthetic],
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if "made" in state:
            saved = state["made"]
            self.has_synthetic = saved["clients"]
            (
                self.synthetic[0][self.has_synthetic],
                self.synthetic[1][self.has_synthetic],
            ) = (
                saved["rows"],
                saved["labels"],
            )


# Algorithm B2
class GenFl(Classifying):
    """Train one classifier over the parties' clients, by FedAvg over a cohort in each
    round: `learn` is line 16.
    """

    protocol = "gen-fl"
    adjacency = ADJACENCY
    local = False

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        config = self.config
        self.unguarded = config.unguarded

    def prepare(self, round: int, cohort: Mapping[str, Tensor]) -> None:
        """Clients that are asked for the first time make their synthetic rows, once."""
        times_asked = self.cohorts.by_party()
        new = {
            name: who[times_asked[name][who.numpy()] == 1]
            for name, who in cohort.items()
        }
        if self.config.share and (
            makes := {name: who for name, who in new.items() if len(who)}
        ):
            self.parties.ask(
                {name: Make(round=round, people=who) for name, who in makes.items()}
            )

    def total(self, reports: Any, people: int) -> Tensor:
        if not isinstance(reports, Tensor) or reports.shape != self.weights.shape:
            raise PartyError(
                "a reply does not hold the sum of its clients' updates. It was not "
                "used."
            )
        return reports

    @property
    def asked_spend(self) -> dict[str, Spend]:
        config = self.config
        noise = needed_noise(self.config)
        participations = self.cohorts.most()
        report = config.report_event(noise)
        generation = config.generation_event(noise)
        return {
            name: flatten(report, times) + flatten(generation, min(1, times))
            for name, times in participations.items()
        }

    def rounds_of(self, name: str, spend: Spend) -> int:
        # Made-up rows are paid for in one round: no part of the whole bounds what that
        # round costs.
        return 1 if self.config.share else max(1, self.cohorts.most()[name])

    def card_extra(self) -> dict[str, Any]:
        return {"noise_multiplier": needed_noise(self.config), **self.notes}

    def card(self, privacy: PrivacyStatement) -> dict[str, Any]:
        config = self.config
        real: dict[str, Any] = {
            "epsilon": config.real_rows_epsilon(
                party.insider for party in privacy.parties
            ),
            "delta": config.delta,
        }
        real |= {
            "what": (
                "all private steps over real rows of the client with the highest "
                "spend, by the ledgers"
            )
        }
        synthetic = "no formal guarantee" if privacy.unguarded else "within ε"
        return super().card(privacy) | {"real_rows": real, "synthetic_rows": synthetic}


train = GenFl.train


def _spends(config: Config, budget: Budget) -> Spend | None:
    """What all reports of a client spend, and its synthetic rows; None where some of it
    has no price.
    """
    return None if config.unguarded else config.priced_spend(needed_noise(config))


def _unpriced(config: Config) -> str:
    """The faithful generator sees real rows without noise."""
    if not config.private or not config.unguarded:
        return ""
    return (
        "Each client's generator is trained on its rows without noise, which no "
        "finite ε covers: set dp_generator = true, or share = 0 for no synthetic rows."
    )


PROTOCOL = GenFl.record(
    GenFlParty,
    Config,
    paper=__doc__,
    artefact="model",
    spends=_spends,
    unpriced=_unpriced,
)
