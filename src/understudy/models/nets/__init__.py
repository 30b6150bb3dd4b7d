"""The papers' networks: GANs, autoencoders, decoders, recurrent ones, and what trains them. No rows, no privacy, no
loop.
"""

from understudy.models.nets.autoencoder import LocalTraining, fit
from understudy.models.nets.beta_vae import (
    BetaVae,
    ClassDecoder,
    ClassImageDecoder,
    ImageVae,
    TableVae,
    decoder_shapes,
    sides_of,
)
from understudy.models.nets.cgan import ConditionalGan
from understudy.models.nets.decoder import ImageDecoder, TableDecoder
from understudy.models.nets.gan import BlockSoftmax, BranchedGenerator, Critic, Output, Values, width_of
from understudy.models.nets.image_gan import ImageCritic
from understudy.models.nets.rmsprop import RmsProp
from understudy.models.nets.rwae import Rwae, SeriesDecoder
from understudy.models.nets.sparse import densify, sparsify
from understudy.models.nets.wae import ImageWae, TableWae, from_description, paper_sizes
from understudy.models.nets.wake_sleep import cut, decoder_size, encoder_size, first_model, sleep, wake

__all__ = [
    "BetaVae",
    "BlockSoftmax",
    "BranchedGenerator",
    "ClassDecoder",
    "ClassImageDecoder",
    "ConditionalGan",
    "Critic",
    "ImageCritic",
    "ImageDecoder",
    "ImageVae",
    "ImageWae",
    "LocalTraining",
    "Output",
    "RmsProp",
    "Rwae",
    "SeriesDecoder",
    "TableDecoder",
    "TableVae",
    "TableWae",
    "Values",
    "cut",
    "decoder_shapes",
    "decoder_size",
    "densify",
    "encoder_size",
    "first_model",
    "fit",
    "from_description",
    "paper_sizes",
    "sides_of",
    "sleep",
    "sparsify",
    "wake",
    "width_of",
]
