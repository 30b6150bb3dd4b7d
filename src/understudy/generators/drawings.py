"""How rows of each kind are drawn, and a classifier is made of their generator.

Tables: levels by their probabilities, or by the law that is asked for. Images and
series: in declared units; rows of several kinds side by side. People with events, of
one kind or of several: all tables of a person together.
"""

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from understudy.answers.answers import Answers
from understudy.answers.people_law import people_where
from understudy.answers.rules import keeping
from understudy.data.arrays import Codes
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.features import DeclaredFeatures, Label, TableFeatures
from understudy.data.kinds import IMAGES, kind_of
from understudy.data.visits.reading import visit_frames
from understudy.generators.kinds import Learned, Sampler, SampleRequest, drawn
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import not_negative, one_of, whole
from understudy.ground.errors import ArtefactError, ConfigError
from understudy.models.cohort.classifier import Mlp
from understudy.models.cohort.training import learned
from understudy.models.moments.gaussians import CellGaussians, bayes_rule
from understudy.models.offered import OfferedMoments
from understudy.models.plan import Pool
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.together import ChainsTogether
from understudy.privacy.noise import FastRng

HIDDEN = 96  # units of the network that learns from drawn rows


class TableSampler(Sampler):
    def sample(
        self, made: GeneratorParts, n: int, rng: FastRng, request: SampleRequest
    ) -> pd.DataFrame:
        schema: Any = made.schema
        if not schema.rules:
            return self._sample(made, n, rng, request)
        return keeping(n, lambda count: self._sample(made, count, rng, request), schema)

    def _sample(
        self, made: GeneratorParts, n: int, rng: FastRng, request: SampleRequest
    ) -> pd.DataFrame:
        request.check()
        if request.conditioned:
            return self.answers(made).sample(
                n, rng, where=request.where, weights=request.weights, like=request.like
            )
        codec: Any = made.levels or Codec(made.schema)  # type: ignore[arg-type]
        if isinstance(made.network, MixtureOfProducts) and request.draw == "sample":
            not_negative(n=n)
            frame: pd.DataFrame = codec.decode(made.network.levels(n, rng.uniform), rng)
            return frame
        frames = [codec.decode(np.zeros((0, len(codec.sizes)), dtype=np.int32), rng)]
        for _, rows in drawn(made, n, rng):
            frames.append(
                codec.decode(
                    codec.sample_codes(rows, rng) if request.draw == "sample" else rows,
                    rng,
                )
            )
        joined: pd.DataFrame = pd.concat(frames[1:] or frames, ignore_index=True)
        return joined

    def answers(self, made: GeneratorParts) -> Answers:
        schema: Any = made.schema
        levels = made.levels
        if levels is not None and levels.schema != schema:  # other rules
            levels = replace(levels, schema=schema)
        points = lambda n, rng: (rows for _, rows in drawn(made, n, rng))  # noqa: E731
        return Answers(made.network, levels or Codec(schema), points, made.release)

    def classifier(
        self, made: GeneratorParts, target: str, rows: int, seed: int
    ) -> Learned:
        schema: Any = made.schema
        there = (
            replace(column, nullable=False) if column.name == target else column
            for column in schema.columns
        )
        # of which none is missing
        features = TableFeatures(replace(schema, columns=tuple(there)), target)
        whole(rows=rows)
        some = self.sample(made, rows, FastRng(seed), SampleRequest()).dropna(
            subset=target
        )
        if some.empty:
            raise ArtefactError(
                "No drawn row has a value of the target: draw more rows, or predict "
                "another column."
            )
        network = Mlp(math.prod(features.shape), HIDDEN, len(features.labels))
        told = features.rows(some)
        codes = features.codes(some)
        weights = learned(
            network, lambda places: features.expand(told[places]), codes, FastRng(seed)
        )
        return network, weights, features, f"learned from {rows:,} drawn rows"


class ArraySampler(Sampler):
    def sample(
        self, made: GeneratorParts, n: int, rng: FastRng, request: SampleRequest
    ) -> pd.DataFrame:
        request.check()
        if request.conditioned:
            self.answers(made)
        schema: Any = made.schema
        frame: pd.DataFrame = schema.frame(*labelled(made, n, rng))
        return frame

    def label(self, made: GeneratorParts) -> str | None:
        label: str | None = made.schema.label  # type: ignore[union-attr]
        return label

    def classifier(
        self, made: GeneratorParts, target: str, rows: int, seed: int
    ) -> Learned:
        schema: Any = made.schema
        names = [column.name for column in schema.targets]
        if not isinstance(made.network, CellGaussians) or not names:
            return super().classifier(made, target, rows, seed)
        if target not in names:
            said = (
                f'the class is "{names[0]}"'
                if len(names) == 1
                else f"the labels are {', '.join(names)}"
            )
            raise ConfigError(f'{said}: there is no column "{target}" to predict.')
        features = DeclaredFeatures(schema, target if len(names) > 1 else None)
        network, weights = bayes_rule(
            made.network, schema.label_sizes, names.index(target)
        )
        return network, weights, features, "Bayes' rule on the fit"


def labelled(
    made: GeneratorParts, n: int, rng: FastRng
) -> tuple[NDArray[np.float32], Codes | None]:
    """Series or images in [0, 1], (n, *shape), and their classes where the network
    knows them.
    """
    shape: tuple[int, ...] = made.schema.shape  # type: ignore[union-attr]
    values = [np.zeros((0, *shape), dtype=np.float32)]
    classes = [np.zeros(0, dtype=np.int64)]
    network = made.network
    for z, rows in drawn(made, n, rng):
        values.append(rows.reshape(-1, *shape).numpy())
        if isinstance(network, CellGaussians | OfferedMoments):
            classes.append(network.classes_of(z).cpu().numpy())
    known = isinstance(network, CellGaussians | OfferedMoments)
    return np.concatenate(values), np.concatenate(classes) if known else None


class MixedSampler(Sampler):
    def sample(
        self, made: GeneratorParts, n: int, rng: FastRng, request: SampleRequest
    ) -> pd.DataFrame:
        request.check()
        if request.conditioned:
            self.answers(made)
        schema: Any = made.schema
        frame: pd.DataFrame = schema.frame(self.parts(made, n, rng, request.draw))
        return frame

    def parts(
        self, made: GeneratorParts, n: int, rng: FastRng, draw: str
    ) -> dict[str, pd.DataFrame | NDArray[Any]]:
        one_of(("sample", "argmax"), draw=draw)
        parts: dict[str, Any] = made.schema.parts  # type: ignore[union-attr, assignment]
        widths = [kind_of(part).width(part) for part in parts.values()]
        rows = torch.cat(
            [torch.zeros(0, sum(widths)), *(rows for _, rows in drawn(made, n, rng))]
        )
        return {
            name: kind_of(part).decode(part, own, rng, draw)
            for (name, part), own in zip(
                parts.items(), torch.split(rows, widths, 1), strict=True
            )
        }


def labelled_images(
    generator: GeneratorParts, n: int, *, seed: int | None = None
) -> tuple[NDArray[Any], list[Label]]:
    """`n` images of a pool, (n, height, width) in declared units, and the class of
    each.
    """
    network = generator.network
    schema = generator.schema
    if (
        isinstance(network, CellGaussians)
        and IMAGES.describes(schema)
        and schema.classes
    ):
        values, codes = labelled(generator, n, FastRng(seed))
        return schema.unscaled(values), next(
            iter(schema.class_table(cast(Codes, codes)).values())
        ).tolist()
    if not isinstance(network, Pool) or not IMAGES.describes(schema):
        raise ConfigError(
            "this generator is no pool of labelled images: use its `sample`."
        )
    members = generator.card["members"]
    known = np.array(generator.card.get("classes", []), dtype=object)
    images = []
    labels = []
    for z, rows in drawn(generator, n, FastRng(seed)):
        images.append(np.asarray(schema.unscaled(rows.numpy())))
        picked = network.pick(z)
        own = np.empty(len(z), dtype=object)
        for place, member in enumerate(network.each):
            here = picked == place
            if isinstance(member, CellGaussians):
                own[here.numpy()] = known[
                    member.classes_of(z[here, 1 : 1 + member.latent]).numpy()
                ]
            else:
                own[here.numpy()] = members[place]["label"]
        labels += own.tolist()
    return np.concatenate(images), labels


class VisitSampler(Sampler):
    def sample(
        self, made: GeneratorParts, n: int, rng: FastRng, request: SampleRequest
    ) -> pd.DataFrame:
        schema: Any = made.schema
        if len(schema.parts) > 1:
            raise ArtefactError(
                "events of several kinds do not stand in one table: see `tables`, or "
                "`understudy sample --out FOLDER`."
            )
        people, events = self.tables(made, n, rng, request).values()
        rows = people.merge(events, on=schema.person, how="left")
        rows.attrs = people.attrs
        return rows

    def tables(
        self, made: GeneratorParts, n: int, rng: FastRng, request: SampleRequest
    ) -> dict[str, pd.DataFrame]:
        """People, and their events of each kind."""
        if (
            request.weights is not None
            or request.like is not None
            or request.draw != "sample"
        ):
            raise ConfigError(
                "people with events are drawn by a condition or by none, and in no "
                "other way."
            )
        not_negative(n=n)
        schema: Any = made.schema
        network = made.network
        titles = (
            [part.title for part in schema.parts]
            if len(schema.parts) > 1
            else ["events"]
        )
        if not isinstance(network, MixtureOfChains | ChainsTogether):
            raise ArtefactError(
                "This generator draws no people with events: see `sample`."
            )
        if request.where is not None or schema.rules:
            frames = people_where(network, schema, request.where, n, rng)
        else:
            one = isinstance(network, MixtureOfChains)
            codes: Any = (
                (network.draw(n, rng.uniform),) if one else network.draw(n, rng.uniform)
            )
            each = [
                visit_frames(own, part, rng)
                for part, own in zip(schema.parts, codes, strict=True)
            ]
            frames = (each[0][0], *(events for _, events in each))
        return dict(zip(("people", *titles), frames, strict=True))
