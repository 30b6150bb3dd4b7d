"""Class means: a classifier of images or series from one small report of each person,
and nobody is trusted.

A row is a vector of slow cosine coefficients in a public frame. A share of the people
report on where they are, which gives the mean of all. Every other person reports on the
direction from that centre in which their row lies, a vector of length 1 in the block of
their class. A report is the number of one codeword, two bytes, of as little error as ε
allows (`privacy/local/naming.py`). The mean of the codewords in a block is the mean
direction of the class times its share; a row's class is that of the direction it is
most along.

Guarantee: all that a person ever sends in the run costs `epsilon_total`, pure, against
anyone, the server included, whatever centre it names. The price is in the ledger before
a row is touched.
Edges: labelled images and series alone. Of several rows a person reports about one,
drawn evenly and in secret; who has none, or a row that lies on the centre, reports like
any other, about no direction. A reply that cannot be read, or a report that names no
codeword, is refused and counted on the card, and the others' stay. A run that ends
halfway fits what it has; probabilities are not to be believed, their order is.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.data.encoding.features import DeclaredFeatures
from understudy.data.encoding.frame import MOST_FEATURES, UNIT, Frame
from understudy.data.encoding.population import population_of
from understudy.data.kinds import ARRAYS, ArraySchema, one_label, schema_from
from understudy.data.schema import public_of
from understudy.generators.parts import ClassifierParts, GeneratorParts
from understudy.ground.errors import ConfigError, Effect, MessageError, SchemaError
from understudy.ground.pack import Value
from understudy.ground.settings import WHOLE, Takes, between, setting, whole_to
from understudy.models.cohort.classifier import LogisticRegression
from understudy.models.moments.fit import without_noise
from understudy.privacy.accounts.accounting import PureDp
from understudy.privacy.local.naming import STEP, Codebook, NearestCodes
from understudy.privacy.local.reporter import check_epsilon
from understudy.protocols.core import Parties
from understudy.protocols.core.common_rule import all_alike
from understudy.protocols.core.settings import PeopleApart
from understudy.protocols.cross_device.host import Call, Hosting, HostParty
from understudy.protocols.cross_device.run import TableOpening, TwoRounds

CODE = 2  # bytes of a report
_FAR = 1 << 20  # no coefficient of a row, or of a mean of rows, is larger
_MOST_BLOCKS = 1 << 10  # classes
# of the mean squared length of all classes' directions: less is taken for chance
_SHORTEST = 0.5
_SURE = 10.0  # how far scores lie apart: their order is all that counts
_PIECE = 1 << 10  # reports at a time


@dataclass(frozen=True, kw_only=True)
class Config(PeopleApart):
    """The prices of a person's `max_holders_per_person` compose."""

    epsilon_total: float = setting(
        4.0,
        Takes("above 0", check_epsilon),
        "price of a person's report and of the run",
    )
    features: int = setting(
        64,
        whole_to(MOST_FEATURES),
        "coefficients of the frame for a row, the slowest first",
    )
    share: float = setting(
        0.2,
        between(0, 0.9),
        "share of people for the mean; others report directions from it",
    )
    batch: int = setting(1 << 12, WHOLE, "people who are asked at a time")


class BeginMeans(TableOpening, kind="class-means.begin"):
    """The run's settings, and the schema that all parties' rows have."""


class MeansRound(Call, kind="class-means.round"):
    """Which of the party's people are to report on where they are, or on their
    direction from a centre.

    `directions`: on these, in the block of their class.
    """

    directions: bool
    centre: Tensor


class Terms:
    """What both sides compute of settings and schema: frame, mechanism, codebooks;
    `width`: features and one.
    """

    def __init__(self, config: Config, schema: ArraySchema) -> None:
        one_label(schema, "class-means")
        self.classes = len(DeclaredFeatures(schema).labels)
        self.seed = config.seed
        if self.classes > _MOST_BLOCKS:
            raise ConfigError(
                f"{self.classes:,} classes are more than {_MOST_BLOCKS:,}.",
                effect=Effect.NOTHING_CHARGED,
            )
        self.frame = Frame.from_schema(schema, config.features)
        self.mechanism = NearestCodes.best(config.epsilon_total)
        self.width = -(-(self.frame.features + 1) // STEP) * STEP

    def codebook(self, party: str, *, directions: bool) -> Codebook:
        """Of a party's people. Another text gives another codebook; its name is in it
        for that alone.
        """
        blocks = self.classes if directions else 1
        about = f"{self.seed} {int(directions)} {party}"
        return Codebook(
            about,
            self.mechanism.codes,
            blocks,
            self.width,
        )


class ClassMeansParty(HostParty):
    """A host of people with labelled images or series. Guarantee: everything that ever
    leaves a person is the number of one codeword. The centre that a direction is taken
    from is the server's to say: it may follow from earlier reports or be malice, the
    price is the same. Edges: a centre that is none → MessageError, nothing charged.
    """

    begin_type = BeginMeans
    round_type = MeansRound

    def open(self, ask: BeginMeans) -> Hosting:
        config = Config(**ask.config)
        rows = self.data
        if not ARRAYS.holds(rows) or rows.classes is None:
            raise ConfigError(
                f"{self.name}: class-means is for images and series with a label.",
                effect=Effect.NOTHING_CHARGED,
            )
        if public_of(schema_from(ask.schema)) != public_of(rows.schema):
            raise SchemaError(
                f"{self.name}: the run is about another schema.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        self.terms = Terms(config, rows.schema)
        return Hosting(population_of(rows), PureDp(config.epsilon_total), 1)

    def check(self, ask: MeansRound) -> None:
        centre = ask.centre
        shape = (self.terms.frame.features,)
        whole_numbers = (
            isinstance(centre, Tensor)
            and centre.dtype == torch.int64
            and centre.shape == shape
        )
        if not whole_numbers or bool(((centre > _FAR) | (centre < -_FAR)).any()):
            raise MessageError(
                f"{self.name}: a centre is {shape[0]} whole numbers up to {_FAR:,}.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        if type(ask.directions) is not bool:
            raise MessageError(
                f"{self.name}: directions is true or false.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    def reports(self, ask: MeansRound) -> Value:
        """The number of a codeword for each of these people, one after the other:
        uint8.
        """
        vectors, classes = self._vectors(ask)
        book = self.terms.codebook(self.name, directions=ask.directions)
        scores = torch.empty(len(vectors), book.codes)
        # as the server counts those who take part
        positions = torch.searchsorted(self.places, ask.people)
        for row, (position, vector) in enumerate(
            zip(positions.tolist(), vectors, strict=True)
        ):
            scores[row] = torch.from_numpy(
                book.block(position, int(classes[row])) @ vector
            )
        codewords = self.terms.mechanism(scores, self.rng).numpy()
        return torch.from_numpy(codewords.astype(">u2").view(np.uint8).copy())

    def _vectors(
        self, ask: MeansRound
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What each person's report is about, of a length of at most 1, and in which
        block.
        """
        rows: Any = self.data
        indices, has_row = (
            values.numpy()
            for values in self.population.one_row_each(ask.people, self.rng)
        )
        coefficients = self.terms.frame.coefficients(rows.values[indices])
        coefficients = np.where(has_row[:, None], coefficients, 0.0)
        width = self.terms.width
        out = np.zeros((len(coefficients), width), dtype=np.float32)
        if ask.directions:
            directions = coefficients - ask.centre.numpy()
            norms = np.linalg.norm(directions, axis=1, keepdims=True)
            out[:, : coefficients.shape[1]] = directions / np.maximum(norms, 1.0)
            return out, np.where(has_row, rows.classes[indices], 0).astype(np.int64)
        out[:, : coefficients.shape[1]] = coefficients / self.terms.frame.reach
        out[:, coefficients.shape[1]] = np.sqrt(
            np.maximum(1 - np.square(out).sum(1), 0)
        )
        return out, np.zeros(len(coefficients), dtype=np.int64)


class _ClassMeansRun(TwoRounds):
    protocol = "class-means"
    begin = BeginMeans
    config: Config

    @classmethod
    def common(cls, schemas: Mapping[str, Any]) -> ArraySchema:
        all_alike({name: public_of(schema) for name, schema in schemas.items()})
        unannotated: ArraySchema = replace(next(iter(schemas.values())), note="")
        return unannotated

    def __init__(
        self,
        config: Config,
        parties: Parties,
        schemas: Mapping[str, Any],
    ) -> None:
        super().__init__(config, parties, schemas)
        self.terms = Terms(config, self.schema)
        self.heard: dict[int, tuple[Tensor, int, int]] = {}

    def plan_rounds(self) -> None:
        self.divide(self.config.share)

    def asks(self, round: int) -> dict[str, MeansRound]:
        stage, _, people = self.turn(round)
        centre = (
            self.centre()
            if stage
            else torch.zeros(self.terms.frame.features, dtype=torch.int64)
        )
        settings: dict[str, Any] = {
            "round": round,
            "directions": bool(stage),
            "centre": centre,
        }
        return {
            name: MeansRound(**settings, people=who) for name, who in people.items()
        }

    def centre(self) -> Tensor:
        """The mean of all, by the first round, in whole steps; none where nobody was
        asked.
        """
        if 0 not in self.heard:
            self.heard[0] = self._sum(0)
        total, reports, _ = self.heard[0]
        frame = self.terms.frame
        length = self.terms.mechanism.length
        scale = frame.reach / (length * max(reports, 1))
        mean = without_noise(
            total[0, : frame.features] * scale, scale * math.sqrt(max(reports, 1))
        )
        return (
            mean.round().long()
            if reports
            else torch.zeros(frame.features, dtype=torch.int64)
        )

    def _sum(self, stage: int) -> tuple[Tensor, int, int]:
        """Over a round's reports: the sum of the named codewords, (blocks, width), how
        many, and how many are none.
        """
        books = {
            name: self.terms.codebook(name, directions=bool(stage)) for name in self.who
        }
        blocks = self.terms.classes if stage else 1
        total = np.zeros((blocks, self.terms.width))
        reports = 0
        refused = 0
        for turn, name, sent in self.sent(stage):
            people = self.turn(turn)[2][name]
            if len(sent) != CODE * len(people):
                refused += len(people)
                continue
            codewords = sent.numpy().copy().view(">u2").astype(np.int64)
            good = codewords < self.terms.mechanism.codes
            refused = refused + int((~good).sum())
            reports = reports + int(good.sum())
            positions = people.numpy()[good]
            codes = codewords[good]
            for some in range(0, len(positions), _PIECE):
                piece = slice(some, some + _PIECE)
                words = books[name].words(positions[piece], codes[piece])
                # one after the other
                total = np.add.reduce(np.concatenate([total[None], words]))
        return torch.from_numpy(total), reports, refused

    def fit(self) -> Tensor:
        """The weights of a linear classifier: of each class its direction from the
        centre.
        """
        centre = self.centre().double() / UNIT
        frame = self.terms.frame
        total, reports, _ = self.heard[1] = self._sum(1)
        length = self.terms.mechanism.length
        n_reports = max(reports, 1)
        means = total[:, : frame.features] / (length * n_reports)
        # without that of noise
        squared = means.square().sum(1) - frame.features / (length**2 * n_reports)
        usual = squared.mean().clamp(min=1e-12)
        means = (
            means
            * (_SURE / squared.clamp(min=_SHORTEST * float(usual)).sqrt())[:, None]
        )
        # (features, values), rows orthonormal
        from_coefficients = torch.from_numpy(frame.matrix()) * UNIT
        weight = means @ from_coefficients
        parameters = {
            "layer1.weight": weight,
            "layer1.bias": -0.5 * weight.sum(1) - means @ centre,
        }
        return self.network.flat(
            {name: value.float() for name, value in parameters.items()}
        )

    @property
    def network(self) -> LogisticRegression:
        return LogisticRegression(math.prod(self.schema.shape), self.terms.classes)

    def parts(
        self, weights: Tensor, card: dict[str, Any]
    ) -> GeneratorParts | ClassifierParts:
        return ClassifierParts(
            self.network,
            weights,
            DeclaredFeatures(self.schema),
            card,
        )

    def card_extra(self) -> dict[str, Any]:
        mechanism, (_, reports, refused) = (
            self.terms.mechanism,
            zip(*self.heard.values(), strict=True),
        )
        codewords = {**asdict(mechanism), "length": mechanism.length}
        return {**self.counted(sum(reports), sum(refused)), "codewords": codewords}


train = _ClassMeansRun.train
PROTOCOL = _ClassMeansRun.record(
    ClassMeansParty,
    Config,
    paper=__doc__,
    kinds=("image", "series"),
    artefact="model",
    audit="codes",
)
