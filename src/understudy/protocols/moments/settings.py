"""The settings of moments, and the one schema that they are of: checked alike by the server and by every holder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from understudy.data.described import ArraySchema, public_of
from understudy.data.encoding.frame import MOST_FEATURES
from understudy.ground.check import a_seed, in_range, not_negative, whole
from understudy.ground.errors import ConfigError, SchemaError
from understudy.models.moments.labels import Labels
from understudy.protocols.moments.stages import MOST_BITS


@dataclass(frozen=True, kw_only=True)
class Config:
    """`features`: the most coefficients of the frame to measure, from the lowest frequency on.

    `upright`: images are first turned upright and centred, by a rule that reads each image alone; how they were
    turned is measured, too (`data/encoding/upright.py`). It is for what leans, and lies, each in its own way on
    an even ground, as handwriting does; series, and images with a declared `norm`, are taken as they are.
    `norms`: share of the budget that buys the bound on a row's norm; 0: the schema's, or the largest possible.
    `shares`: parts of the budget for the counts and means, for the second moments of all rows, and for those of the
    classes; the third may be 0, and all classes then have one covariance.
    `bits`: each class is cut into cells by the signs of this many leading directions, and each cell has a mean and a
    covariance; None: as many as the noise allows.
    `most_holders`: how many holders may hold the same person; the noise hides such a person, too.
    ε holds when up to `colluding` of the holders pool what they know. The run continues without parties that go away
    before the first release as long as `at_least` are left (None: all must stay).
    """

    features: int = 300
    upright: bool = False
    norms: float = 0.0
    shares: tuple[float, float, float] = (0.3, 0.3, 0.4)
    bits: int | None = None
    colluding: int = 1
    at_least: int | None = None
    most_holders: int = 1
    private: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        whole(features=self.features, colluding=self.colluding, most_holders=self.most_holders)
        in_range(1, MOST_FEATURES, features=self.features)
        if self.at_least is not None:
            whole(at_least=self.at_least)
        if self.bits is not None:
            not_negative(bits=self.bits)
            in_range(0, MOST_BITS, bits=self.bits)
        a_seed(seed=self.seed)
        check_norms(self.norms)
        check_shares(self.shares)
        object.__setattr__(self, "shares", tuple(map(float, self.shares)))
        for name, value in (("private", self.private), ("upright", self.upright)):
            if type(value) is not bool:
                raise ConfigError(f"{name} is true or false, not {value!r}.")


def labels_of(schema: ArraySchema) -> Labels:
    """The labels that rows have; without any they are of one class."""
    return Labels(schema.label_sizes or (1,))


def common(schemas: Mapping[str, Any]) -> ArraySchema:
    """The one schema of all parties."""
    for name, schema in schemas.items():
        if getattr(schema, "kind", "table") not in ("image", "series"):
            raise ConfigError(
                f"{name} holds no images and no series, and moments takes nothing else: gram is for tables. "
                "Nothing was charged."
            )
    first, *others = schemas.items()
    for name, schema in others:
        if public_of(schema) != public_of(first[1]):
            raise SchemaError(f"{first[0]} and {name} describe their rows differently. Nothing was charged.")
    found: ArraySchema = first[1]
    return found


def shares_of(norms: float, shares: Any) -> tuple[float, ...]:
    """Of each release: that of norms first, if there is one."""
    return (*([float(norms)] if norms else []), *map(float, shares))


def check_norms(norms: Any) -> None:
    """Of the budget, for a bound on norms: none, or enough that it can be told."""
    if norms != 0 or type(norms) not in (int, float):
        in_range(0.01, 0.5, norms=norms)


def check_shares(shares: Any) -> None:
    """Of the budget, for the three releases: the third may have none."""
    if not isinstance(shares, tuple | list) or len(shares) != 3:
        raise ConfigError(f"shares are three, one for each release, not {shares!r}.")
    in_range(0.05, 0.9, **{"the first share": shares[0], "the second share": shares[1]})
    if shares[2]:
        in_range(0.05, 0.9, **{"the third share": shares[2]})
