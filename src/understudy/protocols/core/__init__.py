"""What every protocol is written in: messages, parties, alignment, keys and products over parties, and the loop of
rounds with its checkpoints and outcomes.
"""

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

__all__ = [
    "Ask",
    "Assembly",
    "Done",
    "Keep",
    "Message",
    "Opening",
    "Paid",
    "Parties",
    "Party",
    "Progress",
    "Public",
    "Reply",
    "Return",
    "Settle",
    "Watcher",
    "public_values",
    "settled",
]
