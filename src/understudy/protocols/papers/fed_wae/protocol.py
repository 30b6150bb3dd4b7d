"""DP-Fed-WAE: thousands of people with a few rows each train one autoencoder; its
decoder draws synthetic rows.

Jiang, dissertation, TUM 2024, chapter 4: Algorithms 4 and 5, Eq. 4.3–4.6; Jiang, Zhou,
Grossklags, "Privacy-preserving high-dimensional data collection with federated
generative autoencoder" (PoPETs 2022(1)).
Paper → code: T → rounds, N → clients_per_round, E → epochs, η → learning_rate, γ →
global_rate, M_t → `Round.weights`, SIGNDS → reporter "ps", ξ = k/d → top, ε →
epsilon_total, t_r → max_reports, ε_r = ε/t_r → `epsilon_report`, λ → penalty.
Differs from the paper: the encoding of rows is public and fitted on nothing, and so
numbers and dates are cut into the bins of the schema; a sampled row draws each column
from the decoder's odds, where the paper takes the largest (`sample(draw="argmax")`);
EM-MDS, SubMDS and the mean estimators can report, too.

For tables `wake_sleep.py` learns far more from as many reports, and without noise the
plain gradient (`epochs=1` of "sgd", `learning_rate=3.7`) far more than ten epochs of
Adam on two rows: benchmarks/fed_wae says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from understudy.data.encoding.features import Slots, Values
from understudy.data.encoding.population import population_of
from understudy.data.kinds import IMAGES, Rows
from understudy.generators.parts import ClassifierParts, GeneratorParts
from understudy.ground.errors import ConfigError, Effect
from understudy.ground.settings import NOT_NEGATIVE, WHOLE, between, setting
from understudy.models.nets.autoencoder import LocalTraining, fit
from understudy.models.nets.wae import ImageWae, TableWae, paper_sizes
from understudy.models.network import pick_device
from understudy.privacy.noise import FastRng
from understudy.protocols.core import Parties
from understudy.protocols.core.common_rule import common_rule
from understudy.protocols.cross_device.host import BeginTraining, Hosting
from understudy.protocols.cross_device.reporting import MOST_PENALTY, Settings
from understudy.protocols.cross_device.rounds import LearningParty, ReportRounds

_UNIFORM_ROWS = 10_000  # what pre-training without public rows learns from


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """The paper's settings (§4.5.1), beside those of `Settings`. Without `hidden` and
    `latent` they are the paper's for such columns; `channels` is of images.
    """

    reporter: str = "ps"
    rounds: int = 5000
    clients_per_round: int = 10
    optimizer: str = "adam"
    hidden: int | None = setting(None, WHOLE, "width of the hidden layers")
    latent: int | None = setting(
        None, WHOLE, "size of the latent space; without it as in the paper"
    )
    channels: int = setting(8, WHOLE, "channels of the layers for images")
    penalty: float = setting(
        1.0, between(0, MOST_PENALTY), "weight of the penalty term of the loss"
    )
    pretrain: int = setting(
        0, NOT_NEGATIVE, "steps on public rows before anybody is asked"
    )
    max_rows_per_person: int = setting(
        256, WHOLE, "rows of a person that are used in a round"
    )

    def network_for(self, rule: Any) -> TableWae | ImageWae:
        if isinstance(rule, Slots):
            hidden, latent = paper_sizes(rule.codec.sizes)
            return TableWae(
                rule.codec.sizes, self.hidden or hidden, self.latent or latent
            )
        if not isinstance(rule, Values) or not IMAGES.describes(rule.schema):
            raise ConfigError(
                "fed-wae is for tables and images; for series there is fed-stdg.",
                effect=Effect.NOTHING_CHARGED,
            )
        return ImageWae(*rule.schema.grey_shape, self.channels, self.latent or 16)


class FedWaeParty(LearningParty):
    settings: ClassVar[type[Settings]] = Config

    def open(self, ask: BeginTraining) -> Hosting:
        hosting = super().open(ask)
        config = self.config
        self.training = LocalTraining(
            self.network,
            epochs=config.epochs,
            lr=config.learning_rate,
            optimizer=config.optimizer,
            penalty=config.penalty,
            device=self.device,
        )
        return hosting

    # Algorithm 5, LocalUpdate, for a whole cohort
    def local(self, weights: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return self.training(weights, x, mask, self.rng)


# Algorithm 5, "Server executes"
class FedWae(ReportRounds):
    """Train one autoencoder and keep its decoder: `learn` is lines 6–9. `public`:
    nobody's rows, for `pretrain`.
    """

    protocol = "fed-wae"

    def __init__(
        self,
        config: Any,
        parties: Parties,
        schemas: Mapping[str, Any],
        public: Rows | None = None,
    ) -> None:
        public_schema = {} if public is None else {"the public rows": public.schema}
        self.rule = common_rule({**schemas, **public_schema})
        network = config.network_for(self.rule)
        super().__init__(
            config, parties, network, self.first_model(config, network, public)
        )

    def first_model(self, config: Any, network: Any, public: Rows | None) -> Tensor:
        """M_1: drawn, and trained on public rows where the settings say so."""
        rng = FastRng(config.seed)
        weights: Tensor = network.init(rng)
        if not config.pretrain:
            return weights
        rows = self.rule.expand(
            self.uniform(rng) if public is None else population_of(public).rows
        )
        return fit(
            network,
            weights,
            rows,
            rng,
            steps=config.pretrain,
            batch=256,
            lr=config.learning_rate,
            penalty=config.penalty,
            device=pick_device(config.device),
        )

    def uniform(self, rng: FastRng) -> Tensor:
        """Rows drawn evenly from the schema, for who has no public ones."""
        if not isinstance(self.rule, Slots):
            return rng.uniform(_UNIFORM_ROWS, *self.rule.shape).float()
        sizes = torch.tensor(self.rule.codec.sizes)
        return (rng.uniform(_UNIFORM_ROWS, len(sizes)) * sizes).int()

    def parts(
        self, weights: Tensor, card: dict[str, Any]
    ) -> GeneratorParts | ClassifierParts:
        return GeneratorParts(self.network.decoder(weights), self.rule.schema, card)


PROTOCOL = FedWae.record(
    FedWaeParty,
    Config,
    paper=__doc__,
    kinds=("table", "image", "series"),
    public_rows=True,
    audit="reports",
)
