"""The party of `class-means`: a host of people with labelled images or series, each of whom reports once.

Guarantee: everything that ever leaves a person is the number of one codeword (`privacy/local/nearest_codes.py`), ε-LDP
in all of the person's rows, charged before a row is touched. The centre that a direction is taken from is the server's
to say: it may follow from earlier reports or be malice, the price is the same.
Edges: of several rows a person reports about one, drawn evenly and in secret; who has none, or a row that lies on the
centre, reports like any other, about no direction. A centre that is none → MessageError, nothing charged.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.classes import one_label
from understudy.data.described import ArraySchema, public_of
from understudy.data.encoding.features import DeclaredFeatures
from understudy.data.encoding.frame import MOST_FEATURES, Frame
from understudy.data.kinds import ARRAYS, population_of, schema_from
from understudy.ground.errors import ConfigError, MessageError, SchemaError
from understudy.ground.pack import Value
from understudy.ground.settings import WHOLE, Declared, Takes, between, setting, whole_to
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.nearest_codes import STEP, Codebook, NearestCodes
from understudy.privacy.local.reporter import check_epsilon
from understudy.protocols.core import Message, Party
from understudy.protocols.core import settings as usual
from understudy.protocols.people.host import Begun, Call, Hosting, HostParty, Reported
from understudy.protocols.people.survey import TableOpening

CODE = 2  # bytes of a report
_FAR = 1 << 20  # no coefficient of a row, or of a mean of rows, is larger
_MOST_BLOCKS = 1 << 10  # classes


@dataclass(frozen=True, kw_only=True)
class Config(Declared):
    """The prices of a person's `most_holders` compose."""

    epsilon_total: float = setting(
        4.0, Takes("above 0", check_epsilon), "price of a person's one report, and so of the run"
    )
    features: int = setting(
        64,
        whole_to(MOST_FEATURES),
        "how many coefficients of the frame describe a row, from the lowest frequency on",
    )
    share: float = setting(
        0.2,
        between(0, 0.9),
        "share of the people who report on the mean of all; the others on their direction from it",
    )
    batch: int = setting(1 << 12, WHOLE, "people who are asked at a time")
    at_least: int | None = usual.at_least()
    most_holders: int = usual.most_holders()
    seed: int = usual.seed()


@dataclass(frozen=True, kw_only=True)
class Begin(TableOpening, kind="class-means.begin"):
    """The run's settings, and the schema that all parties' rows have."""


@dataclass(frozen=True, kw_only=True)
class Round(Call, kind="class-means.round"):
    """Which of the party's people are to report on where they are, or on their direction from a centre.

    `directions`: on these, in the block of their class. `centre`: int64 (features,), in steps of the frame.
    """

    directions: bool
    centre: Tensor


@dataclass(frozen=True)
class Terms:
    """What both sides compute from settings and schema: the frame, the mechanism, and everybody's codebooks."""

    frame: Frame
    mechanism: NearestCodes
    classes: int
    seed: int

    @classmethod
    def of(cls, config: Config, schema: ArraySchema) -> "Terms":
        one_label(schema, "class-means")
        classes = len(DeclaredFeatures(schema).labels)
        if classes > _MOST_BLOCKS:
            raise ConfigError(f"{classes:,} classes are more than {_MOST_BLOCKS:,}. Nothing was charged.")
        frame = Frame.of(schema, config.features)
        return cls(frame, NearestCodes.best(config.epsilon_total), classes, config.seed)

    @property
    def width(self) -> int:
        """Of a codeword's block: the features, and one more that makes a vector's length 1."""
        return -(-(self.frame.features + 1) // STEP) * STEP

    def codebook(self, party: str, *, directions: bool) -> Codebook:
        """Of a party's people. Another text gives another codebook; its name is in it for that alone."""
        blocks = self.classes if directions else 1
        about = f"{self.seed} {int(directions)} {party}"
        return Codebook(about, self.mechanism.codes, blocks, self.width)


class ClassMeansParty(HostParty):
    """A host of people with labelled images or series."""

    begin_type = Begin
    round_type = Round
    messages: ClassVar[tuple[type[Message], ...]] = (*Party.messages, Begin, Begun, Round, Reported)

    def open(self, ask: Begin) -> Hosting:
        config, rows = Config(**ask.config), self.data
        if not ARRAYS.holds(rows) or rows.classes is None:
            raise ConfigError(
                f"{self.name}: class-means is for images and series with a label. Nothing was charged."
            )
        if public_of(schema_from(ask.schema)) != public_of(rows.schema):
            raise SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")
        self.terms = Terms.of(config, rows.schema)
        return Hosting(population_of(rows), PureDp(config.epsilon_total), 1)

    def check(self, ask: Round) -> None:
        centre, due = ask.centre, (self.terms.frame.features,)
        whole_numbers = isinstance(centre, Tensor) and centre.dtype == torch.int64 and centre.shape == due
        if not whole_numbers or bool(((centre > _FAR) | (centre < -_FAR)).any()):
            raise MessageError(
                f"{self.name}: a centre is {due[0]} whole numbers up to {_FAR:,}. Nothing was charged or sent."
            )
        if type(ask.directions) is not bool:
            raise MessageError(f"{self.name}: directions is true or false. Nothing was charged or sent.")

    def reports(self, ask: Round) -> Value:
        """The number of a codeword for each of these people, one after the other: uint8."""
        vectors, classes = self._vectors(ask)
        book = self.terms.codebook(self.name, directions=ask.directions)
        scores = torch.empty(len(vectors), book.codes)
        seats = torch.searchsorted(self.places, ask.people)  # as the server counts those who take part
        for row, (place, vector) in enumerate(zip(seats.tolist(), vectors, strict=True)):
            scores[row] = torch.from_numpy(book.block(place, int(classes[row])) @ vector)
        named = self.terms.mechanism(scores, self.rng).numpy()
        return torch.from_numpy(named.astype(">u2").view(np.uint8).copy())

    def _vectors(self, ask: Round) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What each person's report is about, of a length of at most 1, and in which block."""
        rows: Any = self.data
        place, some = (found.numpy() for found in self.population.one_row_each(ask.people, self.rng))
        own = self.terms.frame.coefficients(rows.values[place])
        own, width = np.where(some[:, None], own, 0.0), self.terms.width
        out = np.zeros((len(own), width), dtype=np.float32)
        if ask.directions:
            beside = own - ask.centre.numpy()
            norms = np.linalg.norm(beside, axis=1, keepdims=True)
            out[:, : own.shape[1]] = beside / np.maximum(norms, 1.0)
            return out, np.where(some, rows.classes[place], 0).astype(np.int64)
        out[:, : own.shape[1]] = own / self.terms.frame.reach
        out[:, own.shape[1]] = np.sqrt(np.maximum(1 - np.square(out).sum(1), 0))
        return out, np.zeros(len(own), dtype=np.int64)
