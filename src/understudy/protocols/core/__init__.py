"""What every protocol is written in: messages, parties, alignment, keys and products over parties, and the loop of
rounds with its checkpoints and outcomes.
"""

from understudy.protocols.core.alignment import AlignedParty, Found, align_grid, align_people, watch_alignment
from understudy.protocols.core.base import (
    Ask,
    Assembly,
    Done,
    Keep,
    Message,
    Opening,
    Paid,
    Parties,
    Party,
    Progress,
    Public,
    Reply,
    Return,
    Settle,
    Watcher,
    public_values,
    settled,
)
from understudy.protocols.core.checkpoint import Checkpoint
from understudy.protocols.core.common_rule import common_features
from understudy.protocols.core.keyed import Beginnings, Greeted, KeyedParty, Keys, Stated
from understudy.protocols.core.loop import run_rounds
from understudy.protocols.core.outcome import ModelOutcome, Outcome
from understudy.protocols.core.present import Present, remarks
from understudy.protocols.core.products import (
    Cells,
    Chunk,
    Dealing,
    Delivery,
    Products,
    Swap,
    Swapped,
    chunks_of,
    heard,
    relayed,
    said,
    swap_all,
)

__all__ = [
    "AlignedParty",
    "Ask",
    "Assembly",
    "Beginnings",
    "Cells",
    "Checkpoint",
    "Chunk",
    "Dealing",
    "Delivery",
    "Done",
    "Found",
    "Greeted",
    "Keep",
    "KeyedParty",
    "Keys",
    "Message",
    "ModelOutcome",
    "Opening",
    "Outcome",
    "Paid",
    "Parties",
    "Party",
    "Present",
    "Products",
    "Progress",
    "Public",
    "Reply",
    "Return",
    "Settle",
    "Stated",
    "Swap",
    "Swapped",
    "Watcher",
    "align_grid",
    "align_people",
    "chunks_of",
    "common_features",
    "heard",
    "public_values",
    "relayed",
    "remarks",
    "run_rounds",
    "said",
    "settled",
    "swap_all",
    "watch_alignment",
]
