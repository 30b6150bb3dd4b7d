"""How rows of each kind are sampled, and a classifier is made of their generator.

Tables: levels by their probabilities, or by the law that is asked for. Images and
series: in declared units; rows of several kinds side by side. People with events, of
one kind or of several: all tables of a person together.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.answers.answers import Answers
from understudy.answers.people_law import people_where
from understudy.answers.rules import keeping
from understudy.data.arrays import Codes
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.features import DeclaredFeatures, Label, TableFeatures
from understudy.data.kinds import IMAGES, kind_of
from understudy.data.visits.reading import visit_frames
from understudy.generators.parts import GeneratorParts
from understudy.generators.sampling import (
    LearnedClassifier,
    Sampler,
    SampleRequest,
    network_rows,
)
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
        self,
        n: int,
        rng: FastRng,
        request: SampleRequest,
    ) -> pd.DataFrame:
        if not self.schema.rules:
            return self._sample(n, rng, request)
        return keeping(n, lambda count: self._sample(count, rng, request), self.schema)

    def _sample(
        self,
        n: int,
        rng: FastRng,
        request: SampleRequest,
    ) -> pd.DataFrame:
        request.check()
        if request.conditioned:
            return self.answers().sample(
                n,
                rng,
                where=request.where,
                weights=request.weights,
                like=request.like,
            )
        network = self.network
        codec: Any = self.generator.levels or Codec(self.schema)
        if isinstance(network, MixtureOfProducts) and request.draw == "sample":
            not_negative(n=n)
            frame: pd.DataFrame = codec.decode(network.levels(n, rng.uniform), rng)
            return frame
        frames = []
        for _, rows in network_rows(self.generator, n, rng):
            if request.draw == "sample":
                rows = codec.sample_codes(rows, rng)
            frames.append(codec.decode(rows, rng))
        if not frames:
            nobody = np.zeros((0, len(codec.sizes)), dtype=np.int32)
            frames.append(codec.decode(nobody, rng))
        joined: pd.DataFrame = pd.concat(frames, ignore_index=True)
        return joined

    def answers(self) -> Answers:
        levels = self.generator.levels
        if levels is not None and levels.schema != self.schema:  # other rules
            levels = replace(levels, schema=self.schema)
        return Answers(
            self.network,
            levels or Codec(self.schema),
            lambda n, rng: (rows for _, rows in network_rows(self.generator, n, rng)),
            self.generator.release,
        )

    def classifier(
        self,
        target: str,
        rows: int,
        seed: int,
    ) -> LearnedClassifier:
        whole(rows=rows)
        columns = (
            replace(column, nullable=False) if column.name == target else column
            for column in self.schema.columns
        )
        schema = replace(self.schema, columns=tuple(columns))
        features = TableFeatures(schema, target)
        sampled = self.sample(rows, FastRng(seed), SampleRequest())
        labelled_rows = sampled.dropna(subset=target)
        if labelled_rows.empty:
            raise ArtefactError(
                "No drawn row has a value of the target: draw more rows, or predict "
                "another column."
            )
        network = Mlp(math.prod(features.shape), HIDDEN, len(features.labels))
        encoded = features.rows(labelled_rows)
        weights = learned(
            network,
            lambda positions: features.expand(encoded[positions]),
            features.codes(labelled_rows),
            FastRng(seed),
        )
        return network, weights, features, f"learned from {rows:,} drawn rows"


class ArraySampler(Sampler):
    def sample(
        self,
        n: int,
        rng: FastRng,
        request: SampleRequest,
    ) -> pd.DataFrame:
        request.check()
        if request.conditioned:
            self.answers()
        frame: pd.DataFrame = self.schema.frame(*labelled(self.generator, n, rng))
        return frame

    @property
    def label(self) -> str | None:
        label: str | None = self.schema.label
        return label

    def classifier(
        self,
        target: str,
        rows: int,
        seed: int,
    ) -> LearnedClassifier:
        labels = [column.name for column in self.schema.targets]
        if not isinstance(self.network, CellGaussians) or not labels:
            return super().classifier(target, rows, seed)
        if target not in labels:
            known = f'the class is "{labels[0]}"'
            if len(labels) > 1:
                known = f"the labels are {', '.join(labels)}"
            raise ConfigError(f'{known}: there is no column "{target}" to predict.')
        features = DeclaredFeatures(self.schema, target if len(labels) > 1 else None)
        rule, weights = bayes_rule(
            self.network, self.schema.label_sizes, labels.index(target)
        )
        return rule, weights, features, "Bayes' rule on the fit"


def labelled(
    generator: GeneratorParts,
    n: int,
    rng: FastRng,
) -> tuple[NDArray[np.float32], Codes | None]:
    """Series or images in [0, 1], (n, *shape), and their classes where the network
    knows them.
    """
    schema: Any = generator.schema
    network = generator.network
    shape: tuple[int, ...] = schema.shape
    values = [np.zeros((0, *shape), dtype=np.float32)]
    classes = [np.zeros(0, dtype=np.int64)]
    knows_classes = isinstance(network, CellGaussians | OfferedMoments)
    for latents, rows in network_rows(generator, n, rng):
        values.append(rows.reshape(-1, *shape).numpy())
        if isinstance(network, CellGaussians | OfferedMoments):
            classes.append(network.classes_of(latents).cpu().numpy())
    return np.concatenate(values), np.concatenate(classes) if knows_classes else None


class MixedSampler(Sampler):
    def sample(
        self,
        n: int,
        rng: FastRng,
        request: SampleRequest,
    ) -> pd.DataFrame:
        request.check()
        if request.conditioned:
            self.answers()
        frame: pd.DataFrame = self.schema.frame(self.parts(n, rng, request.draw))
        return frame

    def parts(
        self,
        n: int,
        rng: FastRng,
        draw: str,
    ) -> dict[str, pd.DataFrame | NDArray[Any]]:
        one_of(("sample", "argmax"), draw=draw)
        parts = self.schema.parts
        widths = [kind_of(part).width(part) for part in parts.values()]
        nobody = torch.zeros(0, sum(widths))
        chunks = [nobody, *(rows for _, rows in network_rows(self.generator, n, rng))]
        columns = torch.split(torch.cat(chunks), widths, 1)
        return {
            name: kind_of(part).decode(part, rows, rng, draw)
            for (name, part), rows in zip(parts.items(), columns, strict=True)
        }


def labelled_images(
    generator: GeneratorParts,
    n: int,
    *,
    seed: int | None = None,
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
        (classes,) = schema.class_table(cast(Codes, codes)).values()
        return schema.unscaled(values), classes.tolist()
    if not isinstance(network, Pool) or not IMAGES.describes(schema):
        raise ConfigError(
            "this generator is no pool of labelled images: use its `sample`."
        )
    images = []
    labels: list[Label] = []
    for latents, rows in network_rows(generator, n, FastRng(seed)):
        images.append(np.asarray(schema.unscaled(rows.numpy())))
        labels += _pool_labels(network, latents, generator.card)
    return np.concatenate(images), labels


def _pool_labels(
    pool: Pool,
    latents: Tensor,
    card: Mapping[str, Any],
) -> list[Label]:
    """The class of each image that a pool draws from these latents."""
    classes = np.array(card.get("classes", []), dtype=object)
    picked = pool.pick(latents)
    labels = np.empty(len(latents), dtype=object)
    for index, member in enumerate(pool.networks):
        drawn_here = picked == index
        if isinstance(member, CellGaussians):
            codes = member.classes_of(latents[drawn_here, 1 : 1 + member.latent])
            labels[drawn_here.numpy()] = classes[codes.numpy()]
        else:
            labels[drawn_here.numpy()] = card["members"][index]["label"]
    listed: list[Label] = labels.tolist()
    return listed


class VisitSampler(Sampler):
    def sample(
        self,
        n: int,
        rng: FastRng,
        request: SampleRequest,
    ) -> pd.DataFrame:
        if len(self.schema.parts) > 1:
            raise ArtefactError(
                "events of several kinds do not stand in one table: see `tables`, or "
                "`understudy sample --out FOLDER`."
            )
        people, events = self.tables(n, rng, request).values()
        rows = people.merge(events, on=self.schema.person, how="left")
        rows.attrs = people.attrs
        return rows

    def tables(
        self,
        n: int,
        rng: FastRng,
        request: SampleRequest,
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
        schema = self.schema
        network = self.network
        if not isinstance(network, MixtureOfChains | ChainsTogether):
            raise ArtefactError(
                "This generator draws no people with events: see `sample`."
            )
        if request.where is not None or schema.rules:
            frames = people_where(
                network,
                schema,
                request.where,
                n,
                rng,
            )
        else:
            codes: Any = network.draw(n, rng.uniform)
            if isinstance(network, MixtureOfChains):
                codes = (codes,)
            drawn = [
                visit_frames(part_codes, part, rng)
                for part, part_codes in zip(schema.parts, codes, strict=True)
            ]
            frames = (drawn[0][0], *(events for _, events in drawn))
        titles = ["events"]
        if len(schema.parts) > 1:
            titles = [part.title for part in schema.parts]
        return dict(zip(("people", *titles), frames, strict=True))


SAMPLERS: Mapping[str, type[Sampler]] = {  # by the kind of a schema
    "table": TableSampler,
    "image": ArraySampler,
    "series": ArraySampler,
    "visits": VisitSampler,
    "several-visits": VisitSampler,
    "mixed": MixedSampler,
}


def sampler_of(generator: GeneratorParts) -> Sampler:
    schema: Any = generator.schema
    return SAMPLERS[schema.kind](generator)
