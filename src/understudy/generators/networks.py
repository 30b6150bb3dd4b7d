"""The networks that a generator may have, by the kind that a card names. A network is loaded when one is needed."""

from importlib import import_module
from typing import Any

# Kind → where the class is, in `understudy.models`.
NETWORKS = {
    "branched": "nets.gan.BranchedGenerator",
    "mixture": "tables.mixture.MixtureOfProducts",
    "class-decoder": "nets.beta_vae.ClassDecoder",
    "class-image-decoder": "nets.beta_vae.ClassImageDecoder",
    "pool": "pool.Pool",
    "decoder-table": "nets.decoder.TableDecoder",
    "decoder-image": "nets.decoder.ImageDecoder",
    "decoder-series": "nets.rwae.SeriesDecoder",
    "bayes-net": "tables.bayes.BayesNet",
    "copula": "tables.bayes.GaussianCopula",
    "gaussians": "moments.gaussians.CellGaussians",
    "moments": "moments.offered.OfferedMoments",
    "gram": "tables.offered.OfferedGram",
    "chains": "visits.chains.MixtureOfChains",
    "chains-together": "visits.together.ChainsTogether",
    "tied": "tied.network.TiedGaussians",
}


def network_class(kind: str) -> Any:
    """The class of networks of this kind. KeyError where there is none."""
    module, _, name = NETWORKS[kind].rpartition(".")
    return getattr(import_module(f"understudy.models.{module}"), name)
