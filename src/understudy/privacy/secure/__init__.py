"""Sums and products over several holders' rows of which nobody sees the parts: pads, dealt masks, sealed channels,
and the set intersection that finds the people they share.
"""

from understudy.privacy.secure.channel import Channel, KeyPair, connect, fingerprint
from understudy.privacy.secure.counts import (
    Moved,
    gram_matrix,
    mirrored,
    movable,
    needed_noise,
    noise,
    noise_on,
    one_hot,
    scaled,
    shared_noise,
    spend_of,
    triple_table,
)
from understudy.privacy.secure.product import Dealer, Factor
from understudy.privacy.secure.ring import Bits, Ring, Words
from understudy.privacy.secure.set_intersection import IdMask, Rows, agree_on_kind, canonical_ids, match_grid
from understudy.privacy.secure.sums import blind, noise_share

__all__ = [
    "Bits",
    "Channel",
    "Dealer",
    "Factor",
    "IdMask",
    "KeyPair",
    "Moved",
    "Ring",
    "Rows",
    "Words",
    "agree_on_kind",
    "blind",
    "canonical_ids",
    "connect",
    "fingerprint",
    "gram_matrix",
    "match_grid",
    "mirrored",
    "movable",
    "needed_noise",
    "noise",
    "noise_on",
    "noise_share",
    "one_hot",
    "scaled",
    "shared_noise",
    "spend_of",
    "triple_table",
]
