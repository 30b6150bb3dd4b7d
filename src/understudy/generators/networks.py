"""The networks that a generator may have, by the kind that a card names."""

from typing import Any

from understudy.models.moments.gaussians import CellGaussians
from understudy.models.moments.offered import OfferedMoments
from understudy.models.nets.beta_vae import ClassDecoder, ClassImageDecoder
from understudy.models.nets.decoder import ImageDecoder, TableDecoder
from understudy.models.nets.gan import BranchedGenerator
from understudy.models.nets.rwae import SeriesDecoder
from understudy.models.pool import Pool
from understudy.models.tables.bayes import BayesNet, GaussianCopula
from understudy.models.tables.mixture import MixtureOfProducts
from understudy.models.tables.offered import OfferedGram
from understudy.models.tied.network import TiedGaussians
from understudy.models.visits.chains import MixtureOfChains
from understudy.models.visits.together import ChainsTogether

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
