"""DP-Fed-WAE: thousands of people with a few rows each train one autoencoder; its decoder draws synthetic rows.

Jiang, dissertation, TUM 2024, chapter 4: Algorithms 4 and 5, Eq. 4.3–4.6; Jiang, Zhou, Grossklags, "Privacy-preserving
high-dimensional data collection with federated generative autoencoder" (PoPETs 2022(1)).
Paper → code: T → rounds, N → cohort, E → epochs, η → learning_rate, γ → global_rate, M_t → `Round.weights`,
SIGNDS → reporter "ps", ξ = k/d → top, ε → epsilon_total, t_r → cap, ε_r = ε/t_r → `epsilon_report`, λ → penalty.
Differs from the paper: the encoding of rows is public and fitted on nothing, and so numbers and dates are cut into the
bins of the schema; a sampled row draws each column from the decoder's odds, where the paper takes the largest
(`sample(draw="argmax")`); EM-MDS, SubMDS and the mean estimators can report, too.

Tables and images go through the same lines; what differs is the network (`models/nets/wae`). Defaults are the paper's.
For tables `wake_sleep.py` learns far more from as many reports, and without noise the plain gradient (`epochs=1` of
"sgd", `learning_rate=3.7`) far more than ten epochs of Adam on two rows: benchmarks/fed_wae says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from understudy.data.described import Rows
from understudy.data.encoding.slots import Slots, Values
from understudy.data.kinds import IMAGES, population_of
from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import ConfigError, PartyError
from understudy.ground.settings import NOT_NEGATIVE, WHOLE, between, setting
from understudy.models.device import pick_device
from understudy.models.nets.autoencoder import LocalTraining, fit
from understudy.models.nets.wae import ImageWae, TableWae, from_description, paper_sizes
from understudy.privacy.noise import FastRng
from understudy.protocols.core import Parties, Watcher
from understudy.protocols.core.common_rule import common_rule
from understudy.protocols.core.loop import Outcome
from understudy.protocols.people.host import Begin, Hosting
from understudy.protocols.people.reporting import form_of, from_message
from understudy.protocols.people.rounds import MOST_PENALTY, Answer, LearningParty, Rounds, Settings
from understudy.protocols.protocol import Protocol

_UNIFORM_ROWS = 10_000  # what pre-training without public rows learns from


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The paper's settings (§4.5.1), beside those of `Settings`.

    Without `hidden` and `latent` they are the paper's for rows of that width; `channels` is of images. `pretrain` steps
    are made on public rows before anybody is asked, or on rows drawn evenly from the schema (§4.6.2). Of a person with
    more than `most_rows` rows so many are drawn in each round.
    """

    reporter: str = "ps"
    rounds: int = 5000
    cohort: int = 10
    optimizer: str = "adam"
    hidden: int | None = setting(None, WHOLE, "width of the hidden layers")
    latent: int | None = setting(None, WHOLE, "size of the latent space; without it as in the paper")
    channels: int = setting(8, WHOLE, "channels of the layers for images")
    penalty: float = setting(1.0, between(0, MOST_PENALTY), "weight of the penalty term of the loss")
    pretrain: int = setting(0, NOT_NEGATIVE, "steps on public rows before anybody is asked")
    most_rows: int = setting(256, WHOLE, "rows of a person that are used in a round")


def build_network(config: Config, rule: Slots | Values) -> TableWae | ImageWae:
    """The autoencoder that the settings name, for these rows."""
    if isinstance(rule, Slots):
        hidden, latent = paper_sizes(*rule.shape)
        return TableWae(rule.codec.sizes, config.hidden or hidden, config.latent or latent)
    if not IMAGES.describes(rule.schema):
        raise ConfigError(
            "fed-wae is for tables and images; for series there is fed-stdg. Nothing was charged."
        )
    return ImageWae(*rule.schema.grey_shape, config.channels, config.latent or 16)


class FedWaeParty(LearningParty):
    """A host of people who train an autoencoder."""

    def open(self, ask: Begin) -> Hosting:
        self.config = Config(**ask.config)
        self.network = from_description(ask.network)
        population = population_of(self.data)
        rule = population.features
        if not isinstance(rule, Slots | Values) or build_network(self.config, rule) != self.network:
            raise PartyError(
                f"{self.name}: the server's network does not fit these rows. Nothing was charged."
            )
        hosting = self.host(self.config, population, self.config.local(self.network.size))
        self.most_rows = self.config.most_rows
        self.training = LocalTraining(
            self.network, epochs=self.config.epochs, lr=self.config.learning_rate, optimizer=self.config.optimizer,
            penalty=self.config.penalty, device=self.device,
        )  # fmt: skip
        return hosting

    # Algorithm 5, LocalUpdate, for a whole cohort
    def local(self, weights: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return self.training(weights, x, mask, self.rng)


# Algorithm 5, "Server executes"
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
    """Train one autoencoder over the parties' people, and keep its decoder.

    `public` are rows that are nobody's secret, for `pretrain`. Ends early, with what it has, when somebody's budget is
    spent. With a `checkpoint` folder it saves every `checkpoint_every` rounds and when it is interrupted, and
    `resume=True` continues from there.
    """
    described = {name: schemas[name] for name in parties.names}
    read = {} if public is None else {"the public rows": public.schema}
    rule = common_rule(described | read)
    network = build_network(config, rule)
    reporter = config.local(network.size)
    form = form_of(reporter)
    weights = _first_model(config, network, rule, public)
    run = Rounds.open(config, parties, network.describe(), weights, checkpoint=checkpoint, resume=resume)

    def learn(round: int, answers: list[Answer]) -> None:
        run.move([from_message(reports, form, people).total() for reports, people in answers])  # lines 6–9

    run.take(learn, reporter.event, watch)
    privacy = run.privacy()
    card = run.card("fed-wae", privacy)
    return Outcome(GeneratorParts(network.decoder(run.weights), rule.schema, card), privacy, card["people"])


def central(config: Config, rows: Rows, *, steps: int = 5000, batch: int = 256) -> GeneratorParts:
    """The reference without any privacy: the same network, trained on all rows in one place.

    Guarantee: none. For comparisons on public rows.
    """
    rule = common_rule({"the rows": rows.schema})
    network, rng = build_network(config, rule), FastRng(config.seed)
    data = rule.expand(population_of(rows).rows)
    weights = fit(
        network, network.init(rng), data, rng, steps=steps, batch=batch, lr=config.learning_rate,
        penalty=config.penalty, device=pick_device(config.device),
    )  # fmt: skip
    card = {
        "protocol": "fed-wae",
        "ended": f"after {steps} central steps",
        "privacy": {"guarantee": "none: all rows lay in one place"},
    }
    return GeneratorParts(network.decoder(weights), rule.schema, card)


def _first_model(
    config: Config, network: TableWae | ImageWae, rule: Slots | Values, public: Rows | None
) -> Tensor:
    """M_1: drawn, and trained on public rows where the settings say so."""
    rng = FastRng(config.seed)
    weights = network.init(rng)
    if not config.pretrain:
        return weights
    if public is not None:
        rows = population_of(public).rows
    elif isinstance(rule, Slots):
        sizes = torch.tensor(rule.codec.sizes)
        rows = (rng.uniform(_UNIFORM_ROWS, len(sizes)) * sizes).int()
    else:
        rows = rng.uniform(_UNIFORM_ROWS, *rule.shape).float()
    return fit(
        network, weights, rule.expand(rows), rng, steps=config.pretrain, lr=config.learning_rate,
        penalty=config.penalty, device=pick_device(config.device),
    )  # fmt: skip


PROTOCOL = Protocol(
    name="fed-wae",
    paper=__doc__,
    config=Config,
    party=FedWaeParty,
    train=train,
    same_people=False,
    kinds=("table", "image", "series"),
    public_rows=True,
    audit="reports",
)
