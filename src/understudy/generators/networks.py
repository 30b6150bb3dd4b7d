"""The networks that a generator may have, by the kind that a card names."""

from typing import Any

from understudy.models.moments import CellGaussians, OfferedMoments
from understudy.models.nets import (
    BranchedGenerator,
    ClassDecoder,
    ClassImageDecoder,
    ImageDecoder,
    SeriesDecoder,
    TableDecoder,
)
from understudy.models.pool import Pool
from understudy.models.tables import BayesNet, GaussianCopula, MixtureOfProducts
from understudy.models.tables.offered import OfferedGram
from understudy.models.tied import TiedGaussians
from understudy.models.visits import ChainsTogether, MixtureOfChains

NETWORKS: dict[str, Any] = {
    "branched": BranchedGenerator,
    "mixture": MixtureOfProducts,
    "class-decoder": ClassDecoder,
    "class-image-decoder": ClassImageDecoder,
    "pool": Pool,
    "decoder-table": TableDecoder,
    "decoder-image": ImageDecoder,
    "decoder-series": SeriesDecoder,
    "bayes-net": BayesNet,
    "copula": GaussianCopula,
    "gaussians": CellGaussians,
    "moments": OfferedMoments,
    "gram": OfferedGram,
    "chains": MixtureOfChains,
    "chains-together": ChainsTogether,
    "tied": TiedGaussians,
}
