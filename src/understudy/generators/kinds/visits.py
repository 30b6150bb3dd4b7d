"""A generator of people with events, of one kind or of several: all tables of a person are drawn together."""

from typing import Any

import pandas as pd

from understudy.answers.people_law import people_where
from understudy.data.visits.reading import visit_frames
from understudy.generators.kinds import Asked, Drawing
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import not_negative
from understudy.ground.errors import ArtefactError, ConfigError
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.together import ChainsTogether
from understudy.privacy.noise import FastRng


class People(Drawing):
    def sample(self, made: GeneratorParts, n: int, rng: FastRng, asked: Asked) -> pd.DataFrame:
        schema: Any = made.schema
        if len(schema.parts) > 1:
            raise ArtefactError(
                "events of several kinds do not stand in one table: see `tables`, or `understudy sample --out FOLDER`."
            )
        people, events = self.tables(made, n, rng, asked).values()
        rows = people.merge(events, on=schema.person, how="left")
        rows.attrs = people.attrs
        return rows

    def tables(self, made: GeneratorParts, n: int, rng: FastRng, asked: Asked) -> dict[str, pd.DataFrame]:
        """People, and their events of each kind."""
        if asked.weights is not None or asked.like is not None or asked.draw != "sample":
            raise ConfigError("people with events are drawn by a condition or by none, and in no other way.")
        not_negative(n=n)
        schema: Any = made.schema
        network = made.network
        titles = [part.title for part in schema.parts] if len(schema.parts) > 1 else ["events"]
        if not isinstance(network, MixtureOfChains | ChainsTogether):
            raise ArtefactError("This generator draws no people with events: see `sample`.")
        if asked.where is not None or schema.rules:
            frames = people_where(network, schema, asked.where, n, rng)
        else:
            one = isinstance(network, MixtureOfChains)
            codes: Any = (network.draw(n, rng.uniform),) if one else network.draw(n, rng.uniform)
            each = [visit_frames(own, part, rng) for part, own in zip(schema.parts, codes, strict=True)]
            frames = (each[0][0], *(events for _, events in each))
        return dict(zip(("people", *titles), frames, strict=True))
