"""A trained network, the public schema it speaks, and the card that says what it cost.

What a network's output means follows from the schema: for a table, probabilities of each column's levels, from which
a row is drawn; for series and images, values in [0, 1], which are brought back to the declared units; for parties
with several of these, all side by side. People with many rows are drawn with their events, as two tables.

On disk a generator is a folder (`generator_file`). Its network is rebuilt from a description in the card, by name, from
the short list below.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.answers.answers import Answers
from understudy.answers.people import people_where
from understudy.answers.raking import Weights
from understudy.answers.rules import keeping
from understudy.data.classes import Codes
from understudy.data.described import AnySchema, ArraySchema
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.features import DeclaredFeatures, Features, TableFeatures
from understudy.data.encoding.levels import Levels
from understudy.data.images import ImageSchema
from understudy.data.kinds import MixedSchema
from understudy.data.schema import Schema
from understudy.data.series import SeriesSchema
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.data.visits.frames import visit_frames
from understudy.generators.classifier import Classifier
from understudy.generators.generator_file import read_generator, write_generator
from understudy.generators.networks import NETWORKS
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import not_negative, one_of, whole
from understudy.ground.errors import ArtefactError, ConfigError
from understudy.ground.html import line
from understudy.models.cohort.classifier import Mlp, Quadratic
from understudy.models.cohort.single import learned
from understudy.models.moments.bayes import bayes_rule
from understudy.models.moments.gaussians import CellGaussians
from understudy.models.moments.offered import OfferedMoments
from understudy.models.plan import pieces
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.together import ChainsTogether
from understudy.privacy.accounts.rehearsal import first_said
from understudy.privacy.noise import FastRng

HIDDEN = 96  # units of the network that learns from drawn rows
CHUNK = 16_384  # rows drawn at a time at most, so that memory does not grow with n


@dataclass(frozen=True)
class Generator(GeneratorParts):
    """Draws rows that resemble the holders' rows. Drawing is post-processing: it costs nothing more."""

    @classmethod
    def of(cls, parts: GeneratorParts) -> "Generator":
        """The generator that is made of these."""
        return cls(parts.network, parts.schema, parts.card, parts.levels, parts.release)

    def sample(
        self,
        n: int,
        *,
        where: str | None = None,
        weights: Weights | None = None,
        like: pd.DataFrame | None = None,
        seed: int | None = None,
        draw: str = "sample",
    ) -> pd.DataFrame:
        """`n` synthetic rows in the schema's columns and dtypes.

        Of a table, `draw="sample"` draws each column from its probabilities (a mixture of products by Latin hypercubes,
        whose tables err less than those of independent rows); `"argmax"` takes the likeliest level.
        Series come as a tidy table with a row for each step, images with a column for each pixel. Mixed parts
        come with a row for each person; `parts` has them apart. People with events come with a row for each event, and
        with one for a person without events; `visits` has the two tables apart.

        `where` is a condition on a table's rows, as `"sex == 'F' and age >= 70"` (`data.conditions`). `weights` asks
        for shares of values, as `{"outcome": {"yes": 0.5, "no": 0.5}}`, `like` for the shares that all columns of a
        public frame have; the rest follows the model. A mixture draws from the law that is asked for, however rare;
        of another network the rows that fit are kept, within a bound on the work. `attrs["answer"]` says which,
        `attrs["probability"]` what the model gives the condition.

        Rows keep the schema's rules (`data.rules`): those that do not are drawn again. `attrs["kept"]` is the share of
        draws that did.
        """
        rng = FastRng(seed)
        if not isinstance(self.schema, Schema) or not self.schema.rules:
            return self._sample(n, rng, where, weights, like, draw)
        return keeping(n, lambda count: self._sample(count, rng, where, weights, like, draw), self.schema)

    def _sample(
        self,
        n: int,
        rng: FastRng,
        where: str | None,
        weights: Weights | None,
        like: pd.DataFrame | None,
        draw: str,
    ) -> pd.DataFrame:
        """The same, whatever the rules."""
        if isinstance(self.schema, VisitSchema):
            if weights is not None or like is not None or draw != "sample":
                raise ConfigError(
                    "people with events are drawn by a condition or by none, and in no other way."
                )
            people, events = self._visits(n, rng, where)
            rows = people.merge(events, on=self.schema.person, how="left")
            rows.attrs = people.attrs
            return rows
        if isinstance(self.schema, SeveralVisits):
            raise ArtefactError("events of several kinds do not stand in one table: see `several_visits`.")
        if where is not None or weights is not None or like is not None:
            if draw != "sample":
                raise ConfigError(f"rows that are asked for are drawn, so draw={draw!r} has no meaning here.")
            return self._ask().sample(n, rng, where=where, weights=weights, like=like)
        if isinstance(self.schema, MixedSchema):
            return self.schema.frame(self._parts(n, rng, draw))
        one_of(("sample", "argmax"), draw=draw)
        if not isinstance(self.schema, Schema):
            return self.schema.frame(*self._labelled(n, rng))
        codec = self.levels or Codec(self.schema)
        if isinstance(self.network, MixtureOfProducts) and draw == "sample":
            not_negative(n=n)
            return codec.decode(self.network.levels(n, rng.uniform), rng)
        frames = [codec.decode(np.zeros((0, len(codec.sizes)), dtype=np.int32), rng)]
        frames += [_drawn(codec, rows, rng, draw) for rows in self._rows(n, rng)]
        return pd.concat(frames[1:] or frames, ignore_index=True)

    def complete(self, frame: pd.DataFrame, *, draws: int = 1, seed: int | None = None) -> pd.DataFrame:
        """Each row of the frame, with what it lacks drawn from the model given what it has; with `draws`, so often.

        What is there stays. A gap gets a value; a column that the frame lacks is drawn as the model draws it. A mixture
        gives its exact law; any other network is represented by some thousand of its latent points.
        """
        return self._ask().complete(frame, draws, FastRng(seed))

    def predict_proba(self, frame: pd.DataFrame, target: str, *, seed: int | None = None) -> pd.DataFrame:
        """The probability of each value (or bin) of a column, for each row, by Bayes' rule from the columns it has.

        `seed` matters to networks that are no mixture, which are represented by draws.
        """
        return self._ask().predict_proba(frame, target, FastRng(seed))

    def expectation(self, frame: pd.DataFrame, target: str, *, seed: int | None = None) -> "pd.Series[float]":
        """The mean of a numeric column, for each row, as `predict_proba`."""
        return self._ask().expectation(frame, target, FastRng(seed))

    def quantile(
        self, frame: pd.DataFrame, target: str, q: float, *, seed: int | None = None
    ) -> "pd.Series[float]":
        """The value below which a numeric column lies with probability `q`, for each row, as `predict_proba`."""
        return self._ask().quantile(frame, target, q, FastRng(seed))

    def table(
        self, *columns: str, where: str | None = None, rows: float | None = None, seed: int | None = None
    ) -> pd.DataFrame:
        """What the model expects of these columns together: a row for each combination of their levels.

        `share` is its share among the rows that meet the condition; with `rows`, `count` is that of so many of them.
        Bins have their labels; what is missing is None. A mixture's table is exact, without drawing; that of another
        network is a mean over latent points (`attrs["answer"]`).

        Without `rows`, and where what was released is known, `count` is the fit's of all people, and beside it stand,
        where these columns were measured together, the `released` noisy count, the standard deviation `sd` of its
        noise, and from `low` to `high` the 95 % interval of the noise alone. `attrs["bias"]` is what the fit is off by
        besides, by its residuals: the root mean square of a cell. `attrs["released"]` says why nothing was released.
        """
        return self._ask().table(columns, where, rows, FastRng(seed))

    def figures(self, *columns: str, where: str | None = None, seed: int | None = None) -> pd.DataFrame:
        """What a table says in single numbers: people, means, the correlation and the odds ratio of two columns.

        Each by the fit, and as released with its bars, as `table`. NaN where the noise is too large to tell.
        ConfigError where what was released is not known.
        """
        return self._ask().figures(columns, where, FastRng(seed))

    def _ask(self) -> Answers:
        """This generator, to be asked. ArtefactError where it draws no table."""
        if not isinstance(self.schema, Schema):
            raise ArtefactError(
                f"Only a generator of tables answers questions, and {type(self.schema).__name__} describes none."
            )
        levels = self.levels
        if levels is not None and levels.schema != self.schema:  # other rules
            levels = replace(levels, schema=self.schema)
        return Answers(self.network, levels or Codec(self.schema), self._rows, self.release)

    def classifier(self, target: str | None = None, *, rows: int = 20_000, seed: int = 0) -> Classifier:
        """Predicts the `target` from everything else. It is made of this generator alone, so it costs nothing more.

        Of a table a network learns from so many drawn `rows`; of images and series with a class it is Bayes' rule on
        the fit, where nothing is drawn. A target is predicted as something that is there. Without a `target` it is the
        run's, or the class that the schema names, of several the first. The card says how it was made, and what the
        generator cost.
        """
        known = self.schema.label if isinstance(self.schema, SeriesSchema | ImageSchema) else None
        target = target or known or dict(self.card.get("config") or {}).get("target")
        if target is None:
            raise ConfigError("which column? The run named no target: say classifier(target).")
        if isinstance(self.schema, Schema):
            features: Features = TableFeatures(_there(self.schema, target), target)
            whole(rows=rows)
            network: Mlp | Quadratic
            network, weights = _learned(features, self.sample(rows, seed=seed).dropna(subset=target), seed)
            made = f"learned from {rows:,} drawn rows"
        elif isinstance(self.network, CellGaussians) and isinstance(self.schema, ArraySchema) and known:
            names = [column.name for column in self.schema.targets]
            if target not in names:
                said = f'the class is "{known}"' if len(names) == 1 else f"the labels are {', '.join(names)}"
                raise ConfigError(f'{said}: there is no column "{target}" to predict.')
            features = DeclaredFeatures(self.schema, target if len(names) > 1 else None)
            made = "Bayes' rule on the fit"
            network, weights = bayes_rule(self.network, self.schema.label_sizes, names.index(target))
        else:
            raise ArtefactError(
                "A classifier is made of a generator that draws a table, or images or series with a class."
            )
        config = {**dict(self.card.get("config") or {}), "target": target}
        card = {key: value for key, value in self.card.items() if key != "release"}
        more = {"made": made, "price": "none beyond the generator's: nothing but the generator was read"}
        return Classifier(network, weights, features, card | {"config": config, "classifier": more})

    def parts(
        self, n: int, *, seed: int | None = None, draw: str = "sample"
    ) -> dict[str, pd.DataFrame | NDArray[Any]]:
        """`n` synthetic people, party by party: a frame of a table, an (n, *shape) array of series or images."""
        return self._parts(n, FastRng(seed), draw)

    def _parts(self, n: int, rng: FastRng, draw: str) -> dict[str, pd.DataFrame | NDArray[Any]]:
        one_of(("sample", "argmax"), draw=draw)
        if not isinstance(self.schema, MixedSchema):
            raise ArtefactError("This generator's parties all hold tables: see `sample`.")
        parts = self.schema.parts
        widths = [_width(part) for part in parts.values()]
        rows = torch.cat([torch.zeros(0, sum(widths)), *self._rows(n, rng)])
        return {
            name: _drawn(Codec(part), own, rng, draw)
            if isinstance(part, Schema)
            else part.unscaled(own.reshape(-1, *part.shape).numpy())
            for (name, part), own in zip(parts.items(), torch.split(rows, widths, 1), strict=True)
        }

    def visits(
        self, n: int, *, where: str | None = None, seed: int | None = None
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """`n` synthetic people, and their events in order: every event has a person in the first table.

        `where` is a condition on people, with their `number_of_events` and, where events are ordered, the time of the
        first, and on events, as `"sex == 'F' and cost > 500"`: people one of whose events meets it, with all their
        events. Who has no events meets it where it holds whatever an event is like. It is drawn exactly, however rare
        (`answers.people`); `attrs["probability"]` is what the model gives it. All events keep the schema's rules.
        """
        return self._visits(n, FastRng(seed), where)

    def several_visits(
        self, n: int, *, where: str | None = None, seed: int | None = None
    ) -> dict[str, pd.DataFrame]:
        """`n` synthetic people, as "people", and each holder's events of them, by what these are called, in order.

        `where` is a condition as of `visits`; where it speaks of several kinds of events, people one of whose events of
        each kind, taken together, meet it. All events keep the schema's rules.
        """
        if not isinstance(self.schema, SeveralVisits) or not isinstance(self.network, ChainsTogether):
            raise ArtefactError("This generator draws no events of several kinds: see `visits` and `sample`.")
        frames = self._people(n, FastRng(seed), where)
        return dict(zip(("people", *(part.title for part in self.schema.parts)), frames, strict=True))

    def _visits(self, n: int, rng: FastRng, where: str | None) -> tuple[pd.DataFrame, pd.DataFrame]:
        if not isinstance(self.schema, VisitSchema) or not isinstance(self.network, MixtureOfChains):
            raise ArtefactError("This generator draws no people with events: see `sample`.")
        people, events = self._people(n, rng, where)
        return people, events

    def _people(self, n: int, rng: FastRng, where: str | None) -> tuple[pd.DataFrame, ...]:
        """People, and their events of each kind."""
        not_negative(n=n)
        schema, network = self.schema, self.network
        assert isinstance(schema, VisitSchema | SeveralVisits)
        assert isinstance(network, MixtureOfChains | ChainsTogether)
        if where is not None or schema.rules:
            return people_where(network, schema, where, n, rng)
        drawn = (
            network.draw(n, rng.uniform)
            if isinstance(network, ChainsTogether)
            else (network.draw(n, rng.uniform),)
        )
        each = [visit_frames(codes, part, rng) for part, codes in zip(schema.parts, drawn, strict=True)]
        return (each[0][0], *(events for _, events in each))

    def series(self, n: int, *, seed: int | None = None) -> NDArray[np.float64]:
        """`n` synthetic series in the declared units: (n, length, channels)."""
        if not isinstance(self.schema, SeriesSchema):
            raise ArtefactError(
                f"This generator draws no series, but what {type(self.schema).__name__} describes."
            )
        return self.schema.unscaled(self._values(n, FastRng(seed)))

    def images(self, n: int, *, seed: int | None = None) -> NDArray[Any]:
        """`n` synthetic images in the declared units: (n, height, width), in colour (n, height, width, 3)."""
        if not isinstance(self.schema, ImageSchema):
            raise ArtefactError(
                f"This generator draws no images, but what {type(self.schema).__name__} describes."
            )
        return self.schema.unscaled(self._values(n, FastRng(seed)))

    def labelled(self, n: int, *, seed: int | None = None) -> tuple[NDArray[Any], Any]:
        """`n` synthetic series or images in the declared units, and the class of each: an array, or, where the schema
        declares several labels, a table with a column for each.
        """
        if not isinstance(self.schema, SeriesSchema | ImageSchema) or self.schema.target is None:
            raise ArtefactError("This generator draws no series or images with a class.")
        values, classes = self._labelled(n, FastRng(seed))
        if classes is None:
            raise ArtefactError("This generator's network knows no classes: it draws rows alone.")
        named = self.schema.class_table(classes)
        several = len(named) > 1
        return self.schema.unscaled(values), pd.DataFrame(named) if several else next(iter(named.values()))

    def _labelled(self, n: int, rng: FastRng) -> tuple[NDArray[np.float32], Codes | None]:
        """Series or images in [0, 1], (n, *shape), and their classes where the network knows them."""
        shape = self.schema.shape  # type: ignore[union-attr]
        values, classes = [np.zeros((0, *shape), dtype=np.float32)], [np.zeros(0, dtype=np.int64)]
        for z, rows in self._drawn(n, rng):
            values.append(rows.reshape(-1, *shape).numpy())
            if isinstance(self.network, CellGaussians | OfferedMoments):
                classes.append(self.network.classes_of(z).cpu().numpy())
        known = isinstance(self.network, CellGaussians | OfferedMoments)
        return np.concatenate(values), np.concatenate(classes) if known else None

    def _values(self, n: int, rng: FastRng) -> NDArray[np.float32]:
        """Series or images in [0, 1]: (n, *shape)."""
        return self._labelled(n, rng)[0]

    def _rows(self, n: int, rng: FastRng) -> Iterator[Tensor]:
        """What the network makes of `n` latent points, some at a time."""
        for _, rows in self._drawn(n, rng):
            yield rows

    def _drawn(self, n: int, rng: FastRng) -> Iterator[tuple[Tensor, Tensor]]:
        """Latent points, some at a time, and what the network makes of them."""
        not_negative(n=n)
        device = next(self.module.parameters()).device
        for count in pieces(self.network, n, most=CHUNK):
            z = rng.normal(count, self.network.latent, device=device)
            with torch.no_grad():
                yield z, self.network.rows(z).cpu()

    def _repr_html_(self) -> str:
        said = first_said(self.card).get("rehearsal", "")
        names = getattr(self.schema, "names", ())
        title = f"Generator by {self.card.get('protocol', 'an unknown protocol')}, {len(names)} columns. {said}".strip()
        return line(title) + (self.sample(5).to_html(index=False) if isinstance(self.schema, Schema) else "")

    def save(self, folder: str | Path) -> Path:
        """Write the files. The card goes last: a folder without one is not a generator."""
        return write_generator(Path(folder), self)

    @classmethod
    def load(cls, folder: str | Path) -> "Generator":
        """The generator in this folder. ArtefactError if it is missing or damaged.

        Guarantee: whoever wrote the folder, memory grows with its files and not with what they claim.
        """
        return cls(*read_generator(Path(folder), NETWORKS))


def _there(schema: Schema, target: str) -> Schema:
    """The schema, with a target that is never missing."""
    columns = (
        replace(column, nullable=False) if column.name == target else column for column in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def _learned(features: Features, drawn: pd.DataFrame, seed: int) -> tuple[Mlp, Tensor]:
    if drawn.empty:
        raise ArtefactError(
            "No drawn row has a value of the target: draw more rows, or predict another column."
        )
    network = Mlp(math.prod(features.shape), HIDDEN, len(features.labels))
    rows, codes = features.rows(drawn), features.codes(drawn)
    return network, learned(network, lambda some: features.expand(rows[some]), codes, FastRng(seed))


def _drawn(codec: Codec | Levels, rows: Tensor, rng: FastRng, draw: str) -> pd.DataFrame:
    """A table from probabilities (n, width)."""
    return codec.decode(codec.sample_codes(rows, rng) if draw == "sample" else rows, rng)


def _width(part: AnySchema) -> int:
    """How many of a network's outputs are this part's."""
    return Codec(part).width if isinstance(part, Schema) else math.prod(part.shape)
