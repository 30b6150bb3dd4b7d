"""Wake-sleep over people: their reports train a decoder, and its synthetic rows train
the encoder at no price.

Hinton, Dayan, Frey, Neal (Science 1995; `models/nets/wae.py`), under the rounds of
DP-Fed-WAE (Jiang, dissertation, TUM 2024, Algorithm 5), with the mean of the last
models as the result (Polyak, Juditsky, SIAM J. Control 1992).
Paper → code: T → rounds, N → clients_per_round, γ → global_rate, ε → epsilon_total, t_r
→ max_reports, ξ = k/2d → top.

Why beside `fed-wae`: there the encoder, half of all weights, and the distance of its
latents from the prior are learned from the same few reports. Here all reports are about
the decoder; its latents are those of the prior by construction, and the encoder learns
from as many dreamt rows as it likes. A report is one coordinate of a plain gradient
with its sign (`privacy/local/selection.py`): reports add up to the mean gradient, where
the sign of a person's own update, as Adam has it, adds up to the median person: a
column that few people have then dies out.

Guarantee: ε-LDP per person, against anyone, the server included: a person's reports
together cost `max_reports` uses of the reporter. The server computes on reports and on
rows that it dreamt, which is post-processing. Edges: tables alone.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.encoding.features import Slots
from understudy.data.kinds import Rows
from understudy.ground.errors import ConfigError, Effect
from understudy.ground.settings import NOT_NEGATIVE, WHOLE, between, setting
from understudy.models.nets.wae import (
    TableWae,
    cut,
    decoder_size,
    encoder_size,
    first_model,
    sleep,
    wake,
)
from understudy.privacy.local.reporter import Reporter
from understudy.privacy.noise import FastRng
from understudy.protocols.cross_device.reporting import RATES, SELECTION, Settings
from understudy.protocols.cross_device.rounds import Answer, LearningParty
from understudy.protocols.papers.fed_wae.protocol import FedWae

# what suits Adult and a9a at ε = 8, with 16,000 reports as with 50,000
# (benchmarks/fed_wae)
_STEP_LENGTH = 27.0


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """What suits tables of 50 to 500 slots and 10⁴ to 10⁵ reports, beside what stands
    in `Settings`.
    """

    reporter: str = "proportional"
    rounds: int = 500
    clients_per_round: int = 100
    epochs: int = 1
    learning_rate: float = 1.0
    hidden: int = setting(32, WHOLE, "width of the hidden layers")
    latent: int = setting(4, WHOLE, "size of the latent space")
    average: float = setting(
        0.5,
        between(0, 1),
        "share of rounds, the last, over which the decoder is averaged",
    )
    dreams: int = setting(5, WHOLE, "batches that teach the encoder in a round")
    first_dreams: int = setting(
        200, NOT_NEGATIVE, "batches that teach the encoder before the first round"
    )
    dream_batch: int = setting(256, WHOLE, "rows of such a batch")
    dream_learning_rate: float = setting(
        0.003, between(*RATES), "learning rate of the encoder"
    )
    max_rows_per_person: int = setting(
        256, WHOLE, "rows of a person that are used in a round"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.epochs, self.learning_rate, self.optimizer) != (1, 1.0, "sgd"):
            raise ConfigError(
                "wake-sleep reports on a plain gradient: epochs, learning_rate and "
                "optimizer cannot be chosen.",
                effect=Effect.NOTHING_CHARGED,
            )

    @property
    def step(self) -> float:
        """γ: of what chooses, a report moves a weight by 27/√(all reports). Means of
        gradients are far longer.
        """
        if self.global_rate is not None:
            return self.global_rate
        return (
            _STEP_LENGTH * math.sqrt(self.clients_per_round / self.rounds)
            if self.reporter in SELECTION
            else 0.05
        )

    @property
    def averaged_from(self) -> int:
        """The round after which decoders enter the mean that is kept."""
        return round(self.rounds * (1 - self.average))

    def dims(self, network: TableWae) -> int:
        return decoder_size(network)

    def local(self, dims: int) -> Reporter:
        return self.mechanism(dims)

    def network_for(self, rule: Any) -> TableWae:
        if not isinstance(rule, Slots):
            raise ConfigError(
                "wake-sleep is for tables; for images there is fed-wae, for series "
                "fed-stdg.",
                effect=Effect.NOTHING_CHARGED,
            )
        return TableWae(rule.codec.sizes, self.hidden, self.latent)


class WakeSleepParty(LearningParty):
    settings = Config

    @property
    def size(self) -> int:
        return int(self.network.size + self.network.latent)

    def local(self, weights: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return wake(self.network, weights, x.to(self.device), mask, self.rng)


class WakeSleep(FedWae):
    protocol = "wake-sleep"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        encoder = encoder_size(self.network)
        decoder = decoder_size(self.network)
        self.memory = {"encoder": torch.zeros(2, encoder), "mean": torch.zeros(decoder)}

    def first_model(
        self, config: Any, network: TableWae, public: Rows | None
    ) -> Tensor:
        """M_1: drawn, with an encoder that has learned from its dreams."""
        model = first_model(network, FastRng(config.seed))
        moments = torch.zeros(2, encoder_size(network))
        return sleep(
            network,
            model,
            moments,
            _dream_rng(config, 0),
            steps_before=0,
            steps=config.first_dreams,
            batch=config.dream_batch,
            rate=config.dream_learning_rate,
        )

    def learn(self, number: int, answers: list[Answer]) -> None:
        """The decoder a step along the reports, the mean of the last ones along with
        it, and the encoder after it.
        """
        config = self.config
        model = self.weights.clone()
        _, decoder, _ = cut(self.network, model)
        totals = torch.stack(
            [self.total(reports, people) for reports, people in answers]
        )
        decoder += self.rate / self.answered * totals.sum(0).to(model.dtype)
        averaged = number - self.config.averaged_from
        if averaged > 0:
            self.memory["mean"] += (decoder - self.memory["mean"]) / averaged
        self.weights = sleep(
            self.network,
            model,
            self.memory["encoder"],
            _dream_rng(config, number),
            steps=config.dreams,
            steps_before=(number - 1) * config.dreams,
            batch=config.dream_batch,
            rate=config.dream_learning_rate,
        )

    def fit(self) -> Tensor:
        """Encoder and the mean of the last decoders; the last one where the run ended
        before them.
        """
        encoder, decoder, _ = cut(self.network, self.weights)
        return torch.cat(
            [
                encoder,
                self.memory["mean"]
                if self.done > self.config.averaged_from
                else decoder,
            ]
        )


def _dream_rng(config: Config, number: int) -> FastRng:
    """The dreams after a round, the same ones when the run is resumed. They are of a
    public model.
    """
    return FastRng(
        int(np.random.SeedSequence((config.seed, number)).generate_state(1)[0])
    )


PROTOCOL = WakeSleep.record(
    WakeSleepParty,
    Config,
    paper=__doc__,
    kinds=("table", "image", "series"),
    audit="reports",
)
