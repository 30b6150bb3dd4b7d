"""Class means: a classifier of images or series from one small report of each person, and nobody is trusted.

The people's side of `moments`, as far as local reports reach: second moments of d features would take d² numbers of
each, and noise would hide them; class means stand out of it (`benchmarks/people/moments.py` says where).

A row is a vector of slow cosine coefficients in a public frame. A share of the people report on where they are, which
gives the mean of all. Every other person reports on the direction from that centre in which their row lies, a vector of
length 1 in the block of their class. A report is the number of one codeword, two bytes, of as little error as ε allows
(`privacy/local/nearest_codes.py`). The mean of the codewords in a block is the mean direction of the class times its
share; a row's class is that of the direction it is most along.

Guarantee: all that a person ever sends in the run costs `epsilon_total`, pure, against anyone, the server included,
whatever centre it names.
Edges: labelled images and series alone. A reply that cannot be read, or a report that names no codeword, is refused and
counted on the card, and the others' stay. A run that ends halfway fits what it has; probabilities are not to be
believed, their order is.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.described import ArraySchema, public_of
from understudy.data.encoding.features import DeclaredFeatures
from understudy.data.encoding.frame import UNIT
from understudy.generators.parts import ClassifierParts
from understudy.ground.errors import ConfigError
from understudy.models.cohort.classifier import LogisticRegression
from understudy.models.moments.fit import without_noise
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.protocols.core import Parties
from understudy.protocols.core.loop import Outcome
from understudy.protocols.people.class_means_party import (
    CODE,
    Begin,
    ClassMeansParty,
    Config,
    Round,
    Terms,
)
from understudy.protocols.people.two_rounds import LAW, TwoRounds
from understudy.protocols.protocol import Protocol

__all__ = ["PROTOCOL", "Config", "train"]

_SHORTEST = 0.5  # of the mean squared length of all classes' directions: less is taken for chance
_SURE = 10.0  # how far scores lie apart: their order is all that counts
_PIECE = 1 << 10  # reports at a time


class _Run(TwoRounds):
    """The server's side: whom it asks, and what they reported."""

    protocol, begin = "class-means", Begin
    config: Config

    @classmethod
    def common(cls, schemas: Mapping[str, Any]) -> ArraySchema:
        (first, schema), *others = schemas.items()
        for name, other in others:
            if public_of(other) != public_of(schema):
                raise ConfigError(f"{first} and {name} describe their rows differently. Nothing was charged.")
        found: ArraySchema = replace(schema, note="")
        return found

    def __init__(
        self, config: Config, parties: Parties, schema: ArraySchema, checkpoint: Path | None
    ) -> None:
        self.terms = Terms.of(config, schema)
        super().__init__(config, parties, schema, checkpoint)
        self.heard: dict[int, tuple[Tensor, int, int]] = {}

    def plan_turns(self) -> None:
        self.divide(self.config.share)

    def asks(self, round: int) -> dict[str, Round]:
        """What each party is asked in a turn: the same whenever it is asked for."""
        stage, start = self.turns[round - 1]
        part = slice(start, start + self.config.batch)
        centre = self.centre() if stage else torch.zeros(self.terms.frame.features, dtype=torch.int64)
        return {
            name: Round(round=round, people=who[stage][part], directions=bool(stage), centre=centre)
            for name, who in self.who.items()
            if len(who[stage][part])
        }

    def centre(self) -> Tensor:
        """The mean of all, by the first round, in whole steps; none where nobody was asked."""
        if 0 not in self.heard:
            self.heard[0] = self._sum(0)
        total, reports, _ = self.heard[0]
        frame, length = self.terms.frame, self.terms.mechanism.length
        scale = frame.reach / (length * max(reports, 1))
        mean = without_noise(total[0, : frame.features] * scale, scale * math.sqrt(max(reports, 1)))
        return mean.round().long() if reports else torch.zeros(frame.features, dtype=torch.int64)

    def _sum(self, stage: int) -> tuple[Tensor, int, int]:
        """Over a round's reports: the sum of the named codewords, (blocks, width), how many, and how many are none."""
        books = {name: self.terms.codebook(name, directions=bool(stage)) for name in self.who}
        blocks = self.terms.classes if stage else 1
        total, reports, refused = np.zeros((blocks, self.terms.width)), 0, 0
        for (own, start), answers in zip(self.turns, self.answers, strict=False):
            if own != stage:
                continue
            for name, sent in answers.items():
                people = self.who[name][stage][start : start + self.config.batch]
                if len(sent) != CODE * len(people):
                    refused += len(people)
                    continue
                named = sent.numpy().copy().view(">u2").astype(np.int64)
                good = named < self.terms.mechanism.codes
                refused, reports = refused + int((~good).sum()), reports + int(good.sum())
                places, codes = people.numpy()[good], named[good]
                for some in range(0, len(places), _PIECE):
                    piece = slice(some, some + _PIECE)
                    words = books[name].words(places[piece], codes[piece])
                    total = np.add.reduce(np.concatenate([total[None], words]))  # one after the other
        return torch.from_numpy(total), reports, refused

    def fit(self) -> Tensor:
        """The weights of a linear classifier: of each class its direction from the centre."""
        centre, frame = self.centre().double() / UNIT, self.terms.frame
        total, reports, _ = self.heard[1] = self._sum(1)
        length, many = self.terms.mechanism.length, max(reports, 1)
        means = total[:, : frame.features] / (length * many)
        squared = means.square().sum(1) - frame.features / (length**2 * many)  # without that of noise
        usual = squared.mean().clamp(min=1e-12)
        means = means * (_SURE / squared.clamp(min=_SHORTEST * float(usual)).sqrt())[:, None]
        back = torch.from_numpy(frame.matrix()) * UNIT  # (features, values), rows orthonormal
        weight = means @ back
        named = {"layer1.weight": weight, "layer1.bias": -0.5 * weight.sum(1) - means @ centre}
        return self.network.flat({name: value.float() for name, value in named.items()})

    @property
    def network(self) -> LogisticRegression:
        return LogisticRegression(math.prod(self.schema.shape), self.terms.classes)

    def outcome(self, found: Tensor, privacy: PrivacyStatement, card: dict[str, Any]) -> Outcome:
        model = ClassifierParts(self.network, found, DeclaredFeatures(self.schema), card)
        return Outcome(model, privacy, card["people"])

    def told(self) -> dict[str, Any]:
        mechanism, heard = self.terms.mechanism, self.heard.values()
        return {
            "law": LAW,
            "reports": {
                "all": sum(reports for _, reports, _ in heard),
                "refused": sum(refused for *_, refused in heard),
                "of the busiest person": 1,
            },
            "codewords": {**asdict(mechanism), "length": mechanism.length},
            "bytes": self.bytes,
        }


train = _Run.train


PROTOCOL = Protocol(
    name="class-means",
    paper=__doc__,
    config=Config,
    party=ClassMeansParty,
    train=train,
    same_people=False,
    kinds=("image", "series"),
    artefact="model",
    audit="codes",
)
