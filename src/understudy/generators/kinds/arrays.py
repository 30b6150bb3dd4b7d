"""Generators of images or series, brought back to the declared units, and of rows of several kinds side by side."""

from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from understudy.data.arrays import Codes
from understudy.data.encoding.features import DeclaredFeatures, Label
from understudy.data.kinds import IMAGES, kind_of
from understudy.generators.kinds import Asked, Drawing, Learned, drawn
from understudy.generators.parts import GeneratorParts
from understudy.ground.check import one_of
from understudy.ground.errors import ConfigError
from understudy.models.moments.bayes import bayes_rule
from understudy.models.moments.gaussians import CellGaussians
from understudy.models.moments.offered import OfferedMoments
from understudy.models.pool import Pool
from understudy.privacy.noise import FastRng


class Arrays(Drawing):
    def sample(self, made: GeneratorParts, n: int, rng: FastRng, asked: Asked) -> pd.DataFrame:
        asked.check()
        if asked.conditioned:
            self.answers(made)
        schema: Any = made.schema
        frame: pd.DataFrame = schema.frame(*labelled(made, n, rng))
        return frame

    def label(self, made: GeneratorParts) -> str | None:
        label: str | None = made.schema.label  # type: ignore[union-attr]
        return label

    def classifier(self, made: GeneratorParts, target: str, rows: int, seed: int) -> Learned:
        schema: Any = made.schema
        names = [column.name for column in schema.targets]
        if not isinstance(made.network, CellGaussians) or not names:
            return super().classifier(made, target, rows, seed)
        if target not in names:
            said = f'the class is "{names[0]}"' if len(names) == 1 else f"the labels are {', '.join(names)}"
            raise ConfigError(f'{said}: there is no column "{target}" to predict.')
        features = DeclaredFeatures(schema, target if len(names) > 1 else None)
        network, weights = bayes_rule(made.network, schema.label_sizes, names.index(target))
        return network, weights, features, "Bayes' rule on the fit"


def labelled(made: GeneratorParts, n: int, rng: FastRng) -> tuple[NDArray[np.float32], Codes | None]:
    """Series or images in [0, 1], (n, *shape), and their classes where the network knows them."""
    shape: tuple[int, ...] = made.schema.shape  # type: ignore[union-attr]
    values, classes = [np.zeros((0, *shape), dtype=np.float32)], [np.zeros(0, dtype=np.int64)]
    network = made.network
    for z, rows in drawn(made, n, rng):
        values.append(rows.reshape(-1, *shape).numpy())
        if isinstance(network, CellGaussians | OfferedMoments):
            classes.append(network.classes_of(z).cpu().numpy())
    known = isinstance(network, CellGaussians | OfferedMoments)
    return np.concatenate(values), np.concatenate(classes) if known else None


class SideBySide(Drawing):
    def sample(self, made: GeneratorParts, n: int, rng: FastRng, asked: Asked) -> pd.DataFrame:
        asked.check()
        if asked.conditioned:
            self.answers(made)
        schema: Any = made.schema
        frame: pd.DataFrame = schema.frame(self.parts(made, n, rng, asked.draw))
        return frame

    def parts(self, made: GeneratorParts, n: int, rng: FastRng, draw: str) -> dict[str, pd.DataFrame | NDArray[Any]]:
        one_of(("sample", "argmax"), draw=draw)
        parts: dict[str, Any] = made.schema.parts  # type: ignore[union-attr, assignment]
        widths = [kind_of(part).width(part) for part in parts.values()]
        rows = torch.cat([torch.zeros(0, sum(widths)), *(rows for _, rows in drawn(made, n, rng))])
        return {
            name: kind_of(part).decode(part, own, rng, draw)
            for (name, part), own in zip(parts.items(), torch.split(rows, widths, 1), strict=True)
        }


def labelled_images(generator: GeneratorParts, n: int, *, seed: int | None = None) -> tuple[NDArray[Any], list[Label]]:
    """`n` images of a pool, (n, height, width) in declared units, and the class of each."""
    network, schema = generator.network, generator.schema
    if isinstance(network, CellGaussians) and IMAGES.describes(schema) and schema.classes:
        values, codes = labelled(generator, n, FastRng(seed))
        return schema.unscaled(values), next(iter(schema.class_table(cast(Codes, codes)).values())).tolist()
    if not isinstance(network, Pool) or not IMAGES.describes(schema):
        raise ConfigError("this generator is no pool of labelled images: use its `sample`.")
    members, known = generator.card["members"], np.array(generator.card.get("classes", []), dtype=object)
    images, labels = [], []
    for z, rows in drawn(generator, n, FastRng(seed)):
        images.append(np.asarray(schema.unscaled(rows.numpy())))
        picked, own = network.pick(z), np.empty(len(z), dtype=object)
        for place, member in enumerate(network.each):
            here = picked == place
            if isinstance(member, CellGaussians):
                own[here.numpy()] = known[member.classes_of(z[here, 1 : 1 + member.latent]).numpy()]
            else:
                own[here.numpy()] = members[place]["label"]
        labels += own.tolist()
    return np.concatenate(images), labels
