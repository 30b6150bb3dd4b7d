"""A generator of tables: levels are drawn from probabilities, or by the law that is asked for."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from understudy.answers.answers import Answers
from understudy.answers.rules import keeping
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.features import Features, TableFeatures
from understudy.data.schema import Schema
from understudy.generators.kinds import Asked, Drawing, Learned, drawn
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import not_negative, whole
from understudy.ground.errors import ArtefactError
from understudy.models.cohort.classifier import Mlp
from understudy.models.cohort.training import learned
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.privacy.noise import FastRng

HIDDEN = 96  # units of the network that learns from drawn rows


class Tables(Drawing):
    def sample(self, made: GeneratorParts, n: int, rng: FastRng, asked: Asked) -> pd.DataFrame:
        schema: Any = made.schema
        if not schema.rules:
            return self._sample(made, n, rng, asked)
        return keeping(n, lambda count: self._sample(made, count, rng, asked), schema)

    def _sample(self, made: GeneratorParts, n: int, rng: FastRng, asked: Asked) -> pd.DataFrame:
        """The same, whatever the rules."""
        asked.check()
        if asked.conditioned:
            return self.answers(made).sample(n, rng, where=asked.where, weights=asked.weights, like=asked.like)
        codec: Any = made.levels or Codec(made.schema)  # type: ignore[arg-type]
        if isinstance(made.network, MixtureOfProducts) and asked.draw == "sample":
            not_negative(n=n)
            frame: pd.DataFrame = codec.decode(made.network.levels(n, rng.uniform), rng)
            return frame
        frames = [codec.decode(np.zeros((0, len(codec.sizes)), dtype=np.int32), rng)]
        for _, rows in drawn(made, n, rng):
            frames.append(codec.decode(codec.sample_codes(rows, rng) if asked.draw == "sample" else rows, rng))
        joined: pd.DataFrame = pd.concat(frames[1:] or frames, ignore_index=True)
        return joined

    def answers(self, made: GeneratorParts) -> Answers:
        schema: Any = made.schema
        levels = made.levels
        if levels is not None and levels.schema != schema:  # other rules
            levels = replace(levels, schema=schema)
        points = lambda n, rng: (rows for _, rows in drawn(made, n, rng))  # noqa: E731
        return Answers(made.network, levels or Codec(schema), points, made.release)

    def classifier(self, made: GeneratorParts, target: str, rows: int, seed: int) -> Learned:
        features = TableFeatures(_there(made.schema, target), target)  # type: ignore[arg-type]
        whole(rows=rows)
        some = self.sample(made, rows, FastRng(seed), Asked()).dropna(subset=target)
        return *_learned(features, some, seed), features, f"learned from {rows:,} drawn rows"


def _there(schema: Schema, target: str) -> Schema:
    """The schema, with a target that is never missing."""
    columns = (replace(column, nullable=False) if column.name == target else column for column in schema.columns)
    return replace(schema, columns=tuple(columns))


def _learned(features: Features, drawn: pd.DataFrame, seed: int) -> tuple[Mlp, Tensor]:
    if drawn.empty:
        raise ArtefactError("No drawn row has a value of the target: draw more rows, or predict another column.")
    network = Mlp(math.prod(features.shape), HIDDEN, len(features.labels))
    rows, codes = features.rows(drawn), features.codes(drawn)
    return network, learned(network, lambda some: features.expand(rows[some]), codes, FastRng(seed))
