"""Sums and products over several holders' rows of which nobody sees the parts: pads, dealt masks, sealed channels,
the set intersection that finds the people they share, and tables or moments in two shares, with the check that they
are such.
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
from understudy.privacy.secure.envelope import OVERHEAD, seal, unseal
from understudy.privacy.secure.field import Field, Numbers
from understudy.privacy.secure.moment_shares import (
    MomentShare,
    Vectors,
    first_moments,
    second_moments,
    split_moments,
)
from understudy.privacy.secure.moment_sketch import MomentSketch
from understudy.privacy.secure.product import Dealer, Factor
from understudy.privacy.secure.ring import Bits, Ring, Words
from understudy.privacy.secure.set_intersection import IdMask, Rows, agree_on_kind, canonical_ids, match_grid
from understudy.privacy.secure.sketch import Sketch
from understudy.privacy.secure.sums import blind, noise_share
from understudy.privacy.secure.table_shares import (
    REPEATS,
    Cells,
    Share,
    first_share,
    randomness,
    second_share,
    split,
)

__all__ = [
    "OVERHEAD",
    "REPEATS",
    "Bits",
    "Cells",
    "Channel",
    "Dealer",
    "Factor",
    "Field",
    "IdMask",
    "KeyPair",
    "MomentShare",
    "MomentSketch",
    "Moved",
    "Numbers",
    "Ring",
    "Rows",
    "Share",
    "Sketch",
    "Vectors",
    "Words",
    "agree_on_kind",
    "blind",
    "canonical_ids",
    "connect",
    "fingerprint",
    "first_moments",
    "first_share",
    "gram_matrix",
    "match_grid",
    "mirrored",
    "movable",
    "needed_noise",
    "noise",
    "noise_on",
    "noise_share",
    "one_hot",
    "randomness",
    "scaled",
    "seal",
    "second_moments",
    "second_share",
    "shared_noise",
    "spend_of",
    "split",
    "split_moments",
    "triple_table",
    "unseal",
]
