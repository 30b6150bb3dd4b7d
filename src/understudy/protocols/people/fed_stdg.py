"""FedSTDG: people with a few series each train one recurrent autoencoder; its decoder draws synthetic series.

Jiang, dissertation, TUM 2024, chapter 5: Algorithms 6 (SubMDS), 7 (MagRR) and 8, Eq. 5.4–5.10.
Paper → code: T → rounds, N → cohort, E → epochs, η → learning_rate, γ → global_rate, r → decay, T_pat → patience,
t_pat → `notes["waited"]`, M_t → `Round.weights`, ε = ε_idx + ε_mag → `epsilon_report`, ε_mag/ε → magnitude_share,
k/d → top, ρ → rate, ς* → share, SubMDS → reporter "sub-mds"; SignDS-S, -E and -M are "ps", "naive" and "em-mds".
Differs from the paper: every participation of a person is charged, and their number is capped. The paper's ε is that of
one update, and at its settings a person gives more than a hundred (Stock); both figures are stated. Where no number of
indices reaches ς*, as at ε = 0.5, one index is sent: the likeliest choice to hit of all. Scaling is by public bounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from understudy.data.described import Rows
from understudy.data.encoding.slots import Slots, Values
from understudy.data.kinds import SERIES, population_of
from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import ConfigError, PartyError
from understudy.ground.pack import Value
from understudy.ground.settings import NOT_NEGATIVE, TRUTH, WHOLE, between, setting
from understudy.models.device import pick_device
from understudy.models.nets.autoencoder import LocalTraining, fit
from understudy.models.nets.rwae import Rwae
from understudy.privacy.accounts.accounting import DpEvent, PureDp
from understudy.privacy.local.em_mds import MagRr, RateDecay
from understudy.privacy.local.reporter import Reporter
from understudy.privacy.local.selection import Ps
from understudy.privacy.noise import FastRng
from understudy.protocols.core import Parties, Watcher
from understudy.protocols.core.common_rule import common_rule
from understudy.protocols.core.loop import Outcome
from understudy.protocols.people.host import ADJACENCY, Begin, Hosting, Round
from understudy.protocols.people.reporting import SELECTION, form_of, from_message, to_message
from understudy.protocols.people.rounds import MOST_PENALTY, Answer, LearningParty, Rounds, Settings
from understudy.protocols.protocol import Protocol

SEARCHED = ("em-mds", "naive", "sub-mds")  # send as many indices as keep the wanted share
_CHUNK = 2**26  # update values in work at a time
_CENTRAL_STEPS = 10_000  # about the local steps of a run, seen from the model: 1000 rounds of 10 epochs


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The paper's settings (§5.6.1), beside those of `Settings`.

    `adaptive` lets MagRR lower γ, for `magnitude_share` of every report's ε; without a word it does so wherever signs
    are sent. γ begins at 25 then, and stays at 5 otherwise. `pretrain` steps are made on public series before anybody
    is asked. Of a person with more than `most_rows` series so many are drawn in each round.
    """

    reporter: str = "sub-mds"
    rounds: int = 1000
    cohort: int = 50
    optimizer: str = "adam"
    top: float | None = 0.05
    adaptive: bool | None = setting(
        None, TRUTH, "whether γ is lowered by a noisy flag; without it, where signs are sent"
    )
    magnitude_share: float = setting(0.1, between(0, 1), "share of a report's ε for that flag")
    decay: float = setting(0.5, between(1e-06, 1), "what γ is multiplied by when it is lowered")
    patience: int = setting(50, WHOLE, "rounds before γ is lowered again")
    hidden: int = setting(32, WHOLE, "width of the hidden layers")
    latent: int = setting(16, WHOLE, "size of the latent space; without it as in the paper")
    penalty: float = setting(1.0, between(0, MOST_PENALTY), "weight of the penalty term of the loss")
    pretrain: int = setting(0, NOT_NEGATIVE, "steps on public rows before anybody is asked")
    most_rows: int = setting(256, WHOLE, "rows of a person that are used in a round")

    def __post_init__(self) -> None:
        if self.adaptive and self.reporter not in SELECTION:
            raise ConfigError(
                f'adaptive is for reporters that send signs, not "{self.reporter}". Nothing was charged.'
            )
        super().__post_init__()
        if self.adapts and not 0 < self.magnitude_share < 1:
            raise ConfigError(
                f"magnitude_share must lie between 0 and 1, so that both parts of a report get some of its "
                f"epsilon, not {self.magnitude_share!r}."
            )
        _ = self.magnitude  # a part of epsilon that is too small is found here

    @property
    def adapts(self) -> bool:
        """Whether MagRR lowers γ."""
        return self.reporter in SELECTION if self.adaptive is None else self.adaptive

    @property
    def sign_step(self) -> float:
        return 25.0 if self.adapts else 5.0

    @property
    def magnitude(self) -> MagRr | None:
        """MagRR, with ε_mag."""
        epsilon = self.magnitude_share * self.epsilon_report
        return MagRr(epsilon=epsilon, decay=self.decay) if self.adapts else None

    @property
    def epsilon_indices(self) -> float:
        """ε_idx."""
        return (1 - self.magnitude_share if self.adapts else 1) * self.epsilon_report

    def local(self, dims: int) -> Reporter:
        """The mechanism for a client's indices, under ε_idx. `event` prices a whole report."""
        if self.reporter == "none":
            return super().local(dims)
        part = replace(self, epsilon=self.epsilon_indices, epsilon_total=None, adaptive=False)
        inputs = round(self.rate * dims) if self.reporter == "sub-mds" else dims
        top = max(1, round(self.top_share * dims))
        if self.reporter in SEARCHED and self.chosen is None and top < inputs:
            single = Ps(dims=inputs, top=top, epsilon=part.epsilon_report)  # no choice hits more often
            part = replace(part, share=min(self.share, single.share * (1 - 1e-9)))
        return part.mechanism(dims, clip=self.epochs * self.learning_rate)

    def event(self, dims: int) -> DpEvent:
        """What one report costs: indices and flag together (sequential composition)."""
        return PureDp(self.epsilon_report) if self.adapts else self.local(dims).event


def build_network(config: Config, rule: Slots | Values) -> Rwae:
    """The autoencoder that the settings name, for these series."""
    if not SERIES.describes(rule.schema):
        raise ConfigError(
            "fed-stdg is for series; for tables and images there is fed-wae. Nothing was charged."
        )
    return Rwae(*rule.schema.shape, config.hidden, config.latent)


class FedStdgParty(LearningParty):
    """A host of people who train a recurrent autoencoder.

    Guarantee: as every learning party's; a report's flag (MagRR) and its indices together cost ε.
    """

    def open(self, ask: Begin) -> Hosting:
        self.config = Config(**ask.config)
        self.network = Rwae.from_description(ask.network)
        population = population_of(self.data)
        rule = population.features
        if not isinstance(rule, Slots | Values) or build_network(self.config, rule) != self.network:
            raise PartyError(
                f"{self.name}: the server's network does not fit these series. Nothing was charged."
            )
        hosting = self.host(self.config, population, self.config.local(self.network.size))
        self.most_rows = self.config.most_rows
        self.training = LocalTraining(
            self.network, epochs=self.config.epochs, lr=self.config.learning_rate, optimizer=self.config.optimizer,
            penalty=self.config.penalty, device=self.device,
        )  # fmt: skip
        return hosting._replace(event=self.config.event(self.network.size))

    # Algorithm 8, LocalUpdate, for a whole cohort
    def local(self, weights: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return self.training(weights, x, mask, self.rng)

    def reports(self, ask: Round) -> Value:
        magnitude = self.config.magnitude
        if magnitude is None:
            return super().reports(ask)
        reports, flags = [], []
        for part in torch.split(ask.people, max(1, _CHUNK // len(ask.weights))):
            updates = self.told(part, ask.weights)
            reports.append(self.reporter.report(updates, self.rng))  # line 20
            flags.append(magnitude.flags(updates, ask.rate, self.rng).cpu())  # line 21
        return to_message(reports) | {"flags": torch.cat(flags)}


# Algorithm 8, "Server executes"
def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Any],
    *,
    public: Rows | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Train one recurrent autoencoder over the parties' people, and keep its decoder.

    `public` are series that are nobody's secret, for `pretrain`. Ends early, with what it has, when somebody's budget
    is spent. With a `checkpoint` folder it saves every `checkpoint_every` rounds and when it is interrupted, and
    `resume=True` continues from there.
    """
    described = {name: schemas[name] for name in parties.names}
    read = {} if public is None else {"the public series": public.schema}
    rule = common_rule(described | read)
    network = build_network(config, rule)
    reporter = config.local(network.size)
    form, weights = form_of(reporter), _first_model(config, network, public)
    run = Rounds.open(
        config, parties, network.describe(), weights, notes={"waited": 0, "rates": [[1, config.step]]},
        checkpoint=checkpoint, resume=resume,
    )  # fmt: skip

    def learn(round: int, answers: list[Answer]) -> None:
        if config.adapts:
            _decay(run, config, round, torch.cat([_flags(reports, people) for reports, people in answers]))
        # lines 7–9, 12
        run.move([from_message(reports, form, people).total() for reports, people in answers])

    run.take(learn, config.event(network.size), watch)
    privacy = replace(run.privacy(), adjacency=_adjacency(rule.schema))
    card = run.card("fed-stdg", privacy) | _said(config, reporter)
    return Outcome(GeneratorParts(network.decoder(run.weights), rule.schema, card), privacy, card["people"])


def central(config: Config, rows: Rows, *, steps: int = _CENTRAL_STEPS, batch: int = 256) -> GeneratorParts:
    """The reference without any privacy: the same network, trained on all series in one place.

    Guarantee: none. For comparisons on public series.
    """
    rule = common_rule({"the series": rows.schema})
    network, rng = build_network(config, rule), FastRng(config.seed)
    weights = _fit(config, network, network.init(rng), rows, rng, steps, batch)
    card = {
        "protocol": "fed-stdg",
        "ended": f"after {steps} central steps",
        "privacy": "no guarantee: series in one place",
    }
    return GeneratorParts(network.decoder(weights), rule.schema, card)


def _adjacency(schema: Any) -> str:
    """What one person is in this run's figures, which the schema decides."""
    if not schema.windows_are_people:
        return ADJACENCY
    return (
        f"replace the content of all reports on one window of {schema.length} steps; a person behind several windows "
        "is not covered by these figures, but by their sum"
    )


def _decay(run: Rounds, config: Config, round: int, flags: Tensor) -> None:
    """Lines 10 and 11: γ for this round's step and from now on (MagRR.ServerAggr)."""
    state = RateDecay(rate=run.rate, decay=config.decay, patience=config.patience, waited=run.notes["waited"])
    if state.step(flags) != run.rate:
        run.rate = state.rate
        run.notes["rates"].append([round, state.rate])
    run.notes["waited"] = state.waited


def _flags(reports: Any, people: int) -> Tensor:
    """A party's flags, as the server reads them."""
    flags = reports.get("flags") if isinstance(reports, dict) else None
    if not isinstance(flags, Tensor) or flags.dtype != torch.bool or flags.shape != (people,):
        raise PartyError(f"a reply does not hold a flag for each of {people:,} people. It was not used.")
    return flags


def _said(config: Config, reporter: Reporter) -> dict[str, Any]:
    """What the card says of a report, beside its price."""
    share = getattr(reporter, "share", None)
    if share is None:
        return {}
    sent = {"indices": getattr(reporter, "chosen", 1), "of them expected in the top set": share}
    if config.adapts:
        parts = {
            "of indices": config.epsilon_indices,
            "of flag": config.epsilon_report - config.epsilon_indices,
        }
        sent["epsilon"] = parts
    return {"report": sent}


def _first_model(config: Config, network: Rwae, public: Rows | None) -> Tensor:
    """M_1: drawn, and trained on public series where the settings say so (§5.6.2, "Pre-training")."""
    rng = FastRng(config.seed)
    weights = network.init(rng)
    if not config.pretrain:
        return weights
    if public is None:
        raise ConfigError("pretrain needs public series to train on. Nothing was charged.")
    return _fit(config, network, weights, public, rng, config.pretrain, 256)


def _fit(
    config: Config, network: Rwae, weights: Tensor, rows: Rows, rng: FastRng, steps: int, batch: int
) -> Tensor:
    return fit(
        network, weights, population_of(rows).rows, rng, steps=steps, batch=batch, lr=config.learning_rate,
        penalty=config.penalty, device=pick_device(config.device),
    )  # fmt: skip


PROTOCOL = Protocol(
    name="fed-stdg",
    paper=__doc__,
    config=Config,
    party=FedStdgParty,
    train=train,
    same_people=False,
    kinds=("table", "image", "series"),
    public_rows=True,
    audit="reports",
)
