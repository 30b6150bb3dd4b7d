"""A trained network, the public schema it speaks, and the card that says what it cost.

What a network's output means follows from the schema (`samplers`): for a table,
probabilities of each column's levels; for series and images, values in [0, 1], which
are brought back to the declared units; for parties with several of these, all side by
side. On disk a generator is a folder (`generator_file`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from understudy.answers.answers import Answers
from understudy.answers.raking import Weights
from understudy.data.kinds import ARRAYS, IMAGES, SERIES, TABLE, VISITS, Kind
from understudy.data.reading.one_hot import fold, unfold
from understudy.generators.classifier import Classifier
from understudy.generators.generator_file import read_generator, write_generator
from understudy.generators.parts import GeneratorParts
from understudy.generators.samplers import labelled, sampler_of
from understudy.generators.sampling import SampleRequest
from understudy.ground.errors import ArtefactError, ConfigError
from understudy.ground.html import line
from understudy.privacy.accounts.budget import first_said
from understudy.privacy.noise import FastRng


@dataclass(frozen=True)
class Generator(GeneratorParts):
    """Draws rows that resemble the holders' rows. Sampling is post-processing: it costs
    nothing more.
    """

    @classmethod
    def from_parts(cls, parts: GeneratorParts) -> "Generator":
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
        """`n` synthetic rows in the schema's columns and dtypes. Of a table,
        `draw="sample"` draws each column from its probabilities (a mixture of products
        by Latin hypercubes, whose tables err less than those of independent rows);
        `"argmax"` takes the likeliest level. Series come as a tidy table with a row for
        each step, images with a column for each pixel. Mixed parts come with a row for
        each person; `parts` has them apart. People with events come with a row for each
        event, and with one for a person without events; `visits` has the two tables
        apart. `where` is a condition on a table's rows, as `"sex == 'F' and age >= 70"`
        (`data.conditions`). `weights` asks for shares of values, as `{"outcome":
        {"yes": 0.5, "no": 0.5}}`, `like` for the shares that all columns of a public
        frame have; the rest follows the model. A mixture draws from the law that is
        asked for, however rare; of another network the rows that fit are kept, within a
        bound on the work. `attrs["answer"]` says which, `attrs["probability"]` what the
        model gives the condition. Rows keep the schema's rules (`data.rules`): those
        that do not are drawn again. `attrs["kept"]` is the share of draws that did.
        """
        folded = None if like is None else fold(like, self.schema)
        asked = SampleRequest(where, weights, folded, draw)
        return unfold(
            sampler_of(self).sample(n, FastRng(seed), asked),
            self.schema,
        )

    def tables(
        self,
        n: int,
        *,
        where: str | None = None,
        weights: Weights | None = None,
        seed: int | None = None,
    ) -> dict[str, pd.DataFrame]:
        """The same as the tables that a holder would bring: "people", and their events
        by what these are called, in order; of all other rows one table, without a name.
        `where` is of events as of `visits`; where it speaks of several kinds of them,
        of people one of whose events of each kind, taken together, meet it.
        """
        tables = sampler_of(self).tables(
            n,
            FastRng(seed),
            SampleRequest(where, weights),
        )
        return {name: unfold(frame, self.schema) for name, frame in tables.items()}

    def complete(
        self,
        frame: pd.DataFrame,
        *,
        draws: int = 1,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """Each row of the frame, with what it lacks drawn from the model given what it
        has; with `draws`, so often. What is there stays. A gap gets a value; a column
        that the frame lacks is drawn as the model draws it. A mixture gives its exact
        law; any other network is represented by some thousand of its latent points.
        """
        return unfold(
            self._ask().complete(fold(frame, self.schema), draws, FastRng(seed)),
            self.schema,
        )

    def predict_proba(
        self,
        frame: pd.DataFrame,
        target: str,
        *,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """The probability of each value (or bin) of a column, for each row, by Bayes'
        rule from the columns it has. `seed` matters to networks that are no mixture,
        which are represented by draws.
        """
        return (
            self._ask()
            .predicted(fold(frame, self.schema), target, FastRng(seed))
            .probabilities()
        )

    def expectation(
        self,
        frame: pd.DataFrame,
        target: str,
        *,
        seed: int | None = None,
    ) -> "pd.Series[float]":
        """The mean of a numeric column, for each row, as `predict_proba`."""
        return (
            self._ask()
            .predicted(fold(frame, self.schema), target, FastRng(seed))
            .mean()
        )

    def quantile(
        self,
        frame: pd.DataFrame,
        target: str,
        q: float,
        *,
        seed: int | None = None,
    ) -> "pd.Series[float]":
        """The value below which a numeric column lies with probability `q`, for each
        row, as `predict_proba`.
        """
        return (
            self._ask()
            .predicted(fold(frame, self.schema), target, FastRng(seed))
            .quantile(q)
        )

    def table(
        self,
        *columns: str,
        where: str | None = None,
        rows: float | None = None,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """What the model expects of these columns together: a row for each combination
        of their levels. `share` is its share among the rows that meet the condition;
        with `rows`, `count` is that of so many of them. Bins have their labels; what is
        missing is None. A mixture's table is exact, without drawing; that of another
        network is a mean over latent points (`attrs["answer"]`). Without `rows`, and
        where what was released is known, `count` is the fit's of all people, and beside
        it stand, where these columns were measured together, the `released` noisy
        count, the standard deviation `sd` of its noise, and from `low` to `high` the 95
        % interval of the noise alone. `attrs["bias"]` is what the fit is off by
        besides, by its residuals: the root mean square of a cell. `attrs["released"]`
        says why nothing was released.
        """
        return self._ask().table(columns, where, rows, FastRng(seed))

    def figures(
        self,
        *columns: str,
        where: str | None = None,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """What a table says in single numbers: people, means, quantiles, correlation
        and odds ratio of two columns. Each by the fit, and as released with its bars,
        as `table`. NaN where the noise is too large to tell. The mean of a long-tailed
        column is uncertain beyond the noise, and its interval says so
        (`answers.tails`). ConfigError where what was released is not known.
        """
        return self._ask().figures(columns, where, FastRng(seed))

    def _ask(self) -> Answers:
        """This generator, to be asked. ArtefactError where it draws no table."""
        return sampler_of(self).answers()

    def classifier(
        self,
        target: str | None = None,
        *,
        rows: int = 20_000,
        seed: int = 0,
    ) -> Classifier:
        """Predicts the `target` from everything else. It is made of this generator
        alone, so it costs nothing more. Of a table a network learns from so many drawn
        `rows`; of images and series with a class it is Bayes' rule on the fit, where
        nothing is drawn. A target is predicted as something that is there. Without a
        `target` it is the run's, or the class that the schema names, of several the
        first. The card says how it was made, and what the generator cost.
        """
        sampler = sampler_of(self)
        target = (
            target or sampler.label or dict(self.card.get("config") or {}).get("target")
        )
        if target is None:
            raise ConfigError(
                "which column? The run named no target: say classifier(target)."
            )
        network, weights, features, training = sampler.classifier(target, rows, seed)
        config = {**dict(self.card.get("config") or {}), "target": target}
        card = {key: value for key, value in self.card.items() if key != "release"}
        more = {
            "made": training,
            "price": "none beyond the generator's: nothing but the generator was read",
        }
        return Classifier(
            network,
            weights,
            features,
            card | {"config": config, "classifier": more},
        )

    def parts(
        self,
        n: int,
        *,
        seed: int | None = None,
        draw: str = "sample",
    ) -> dict[str, pd.DataFrame | NDArray[Any]]:
        """`n` synthetic people, party by party: a frame of a table, an (n, *shape)
        array of series or images.
        """
        return sampler_of(self).parts(n, FastRng(seed), draw)

    def visits(
        self,
        n: int,
        *,
        where: str | None = None,
        seed: int | None = None,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """`n` synthetic people, and their events in order: every event has a person in
        the first table. `where` is a condition on people, with their `number_of_events`
        and, where events are ordered, the time of the first, and on events, as `"sex ==
        'F' and cost > 500"`: people one of whose events meets it, with all their
        events. Who has no events meets it where it holds whatever an event is like. It
        is drawn exactly, however rare (`answers.people`); `attrs["probability"]` is
        what the model gives it. All events keep the schema's rules.
        """
        if not VISITS.describes(self.schema):
            raise ArtefactError(
                "This generator draws no people with events: see `sample`."
            )
        people, events = self.tables(n, where=where, seed=seed).values()
        return people, events

    def series(self, n: int, *, seed: int | None = None) -> NDArray[np.float64]:
        """`n` synthetic series in the declared units: (n, length, channels)."""
        return self._values(SERIES, n, seed)

    def images(self, n: int, *, seed: int | None = None) -> NDArray[Any]:
        """`n` synthetic images in the declared units: (n, height, width), in colour (n,
        height, width, 3).
        """
        return self._values(IMAGES, n, seed)

    def _values(self, kind: Kind[Any, Any], n: int, seed: int | None) -> NDArray[Any]:
        if not kind.describes(self.schema):
            raise ArtefactError(
                f"This generator draws no {kind.plural}, but what "
                f"{type(self.schema).__name__} describes."
            )
        return np.asarray(self.schema.unscaled(labelled(self, n, FastRng(seed))[0]))

    def labelled(self, n: int, *, seed: int | None = None) -> tuple[NDArray[Any], Any]:
        """`n` synthetic series or images in the declared units, and the class of each:
        an array, or, where the schema declares several labels, a table with a column
        for each.
        """
        if not ARRAYS.describes(self.schema) or not self.schema.targets:
            raise ArtefactError(
                "This generator draws no series or images with a class."
            )
        values, classes = labelled(self, n, FastRng(seed))
        if classes is None:
            raise ArtefactError(
                "This generator's network knows no classes: it draws rows alone."
            )
        named = self.schema.class_table(classes)
        several = len(named) > 1
        return self.schema.unscaled(values), pd.DataFrame(named) if several else next(
            iter(named.values())
        )

    def __repr__(self) -> str:
        protocol = self.card.get("protocol", "hand")
        return (
            f"<Generator by {protocol} of {', '.join(self.schema.names)}: "
            "sample(n) draws "
            "rows>"
        )

    def _repr_html_(self) -> str:
        rehearsal = first_said(self.card).get("rehearsal", "")
        names = getattr(self.schema, "names", ())
        title = (
            f"Generator by {self.card.get('protocol', 'an unknown protocol')}, "
            f"{len(names)} columns. {rehearsal}"
        ).strip()
        return line(title) + (
            self.sample(5).to_html(index=False) if TABLE.describes(self.schema) else ""
        )

    def save(self, folder: str | Path) -> Path:
        """Write the files. The card goes last: a folder without one is not a
        generator.
        """
        return write_generator(Path(folder), self)

    @classmethod
    def load(cls, folder: str | Path) -> "Generator":
        """The generator in this folder. ArtefactError if it is missing or damaged.
        Guarantee: whoever wrote the folder, memory grows with its files and not with
        what they claim.
        """
        return cls(*read_generator(Path(folder)))
