"""Images of a pool's generator with the class of each."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from understudy.data.encoding.features import Label
from understudy.data.kinds import IMAGES
from understudy.generators.generator import Generator
from understudy.generators.kinds import CHUNK
from understudy.ground.errors import ConfigError
from understudy.models.moments.gaussians import CellGaussians
from understudy.models.plan import pieces
from understudy.models.pool import Pool
from understudy.privacy.noise import FastRng


def labelled_images(
    generator: Generator, n: int, *, seed: int | None = None
) -> tuple[NDArray[Any], list[Label]]:
    """`n` images of a pool, (n, height, width) in declared units, and the class of each."""
    network, schema = generator.network, generator.schema
    if isinstance(network, CellGaussians) and IMAGES.describes(schema) and schema.classes:
        drawn, classes = generator.labelled(n, seed=seed)
        return drawn, classes.tolist()
    if not isinstance(network, Pool) or not IMAGES.describes(schema):
        raise ConfigError("this generator is no pool of labelled images: use its `sample`.")
    rng, members, known = FastRng(seed), generator.card["members"], generator.card.get("classes", [])
    images: list[NDArray[Any]] = []
    labels: list[Label] = []
    for count in pieces(network, n, most=CHUNK):
        z = rng.normal(count, network.latent)
        with torch.no_grad():
            images.append(np.asarray(schema.unscaled(network.rows(z).numpy())))
        for place, point in zip(network.pick(z).tolist(), z, strict=True):
            member = network.members[place]
            if isinstance(member, CellGaussians):
                labels.append(known[int(member.classes_of(point[None, 1 : 1 + member.latent]))])
            else:
                labels.append(members[place]["label"])
    return np.concatenate(images), labels
