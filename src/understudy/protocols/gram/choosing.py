"""What gram fits to what was released, on the way and at the end: which pairs and tables to measure once more, and the
mixture. All of it is free.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from understudy.answers.rule_boxes import rule_ties
from understudy.answers.rules import with_rules
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.levels import Levels
from understudy.data.schema import Schema
from understudy.models.device import pick_device
from understudy.models.tables.fit_gram import fit_gram
from understudy.models.tables.loss import Triple
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.noisy_tables import Tables, read_tables
from understudy.models.tables.strongest import strongest_pairs, strongest_triples
from understudy.protocols.gram.measured import Measured
from understudy.protocols.gram.settings import Config
from understudy.protocols.gram.study import Gram


class ServerGram(Gram):
    """The study at the server, which chooses."""

    def __init__(self, config: Config, schemas: Mapping[str, Any]) -> None:
        super().__init__(config, schemas)
        self.schema = with_rules(self.layout.joint, config.rules)
        self.chooser: Chooser = Chooser(config, self.schema)


@dataclass(frozen=True)
class Chooser:
    """By what was released so far, and the settings of the fit."""

    config: Config
    schema: Schema

    def fit(self, measured: Measured, **more: Any) -> MixtureOfProducts:
        """The mixture."""
        config, codec, device = self.config, self.codec(measured), pick_device(self.config.device)
        noise = torch.where(measured.measured, measured.noise, torch.inf)
        if measured.triples:
            more["triples"] = [
                Triple(**{**one, "table": one["table"].to(device)}) for one in measured.triples
            ]
        return fit_gram(
            measured.gram.to(device),
            codec.sizes,
            noise=noise.to(device),
            people=measured.people,
            ties=rule_ties(codec),
            target=None if config.target is None else self.schema.names.index(config.target),
            components=config.components,
            steps=config.steps,
            rate=config.rate,
            seed=config.seed,
            **more,
        )

    def pairs(self, measured: Measured, besides: Tensor) -> Tensor:
        """The strongest pairs of columns besides these, (n, 2)."""
        ties = rule_ties(self.codec(measured))
        return strongest_pairs(self.fit(measured), self.config.refined, besides=besides, ties=ties)

    def tables(self, measured: Measured, among: Tensor, most: int, noise: float) -> Tensor:
        """Among pairs of columns (n, 2) at most so many whose three-way tables with the target tell the most."""
        tables, codec = self.read(measured), self.codec(measured)
        place = self.schema.names.index(self.config.target or "")
        listed = [frozenset(map(self.schema.names.index, names)) for names in self.config.triples]
        return strongest_triples(
            tables, codec.sizes, place, most, among=among.tolist(), noise=noise, besides=listed
        )

    def codec(self, measured: Measured) -> Codec | Levels:
        """The levels on which pairs were counted, with this schema's rules."""
        if measured.levels is None:
            return Codec(self.schema)
        return Levels.from_tensors(self.schema, measured.levels.tensors())

    def read(self, measured: Measured) -> Tables:
        """The tables as the fit reads them."""
        codec, noise = self.codec(measured), torch.where(measured.measured, measured.noise, torch.inf)
        return read_tables(
            measured.gram, codec.sizes, noise=noise, people=measured.people, ties=rule_ties(codec)
        )
