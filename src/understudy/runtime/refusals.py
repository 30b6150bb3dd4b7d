"""Errors that are told to the other side: what it may know of one, and how it is raised there."""

import json

from understudy.ground import errors
from understudy.ground.errors import (
    AlignmentError,
    BudgetExceeded,
    MessageError,
    PartyError,
    PrivacyError,
    UnderstudyError,
)

# Texts that our own code writes for the other side. Any other may quote a value or a file of the holder's.
_SPOKEN = (BudgetExceeded, MessageError, AlignmentError, PartyError)
_LONGEST = 500


def spoken_bytes(party: str, error: Exception) -> bytes:
    """An error as the other side may know it: no row values, no paths."""
    kind = type(error).__name__ if isinstance(error, UnderstudyError) else "PartyError"
    if isinstance(error, _SPOKEN):
        text = str(error) if str(error).startswith(party) else f"{party}: {error}"
    elif isinstance(error, PrivacyError):
        text = f"{party}: its ledger or its privacy checks stopped the answer. Nothing was sent."
    else:
        text = f"{party}: failed inside ({type(error).__name__}). Nothing was sent; its own log says more."
    return json.dumps({"kind": kind, "text": text[:_LONGEST]}).encode()


def refusal(party: str, body: bytes | bytearray) -> UnderstudyError:
    """A party's refusal as the error that it was. What it says is a peer's text: short, and printable."""
    try:
        said = json.loads(body[:4096])
        kind, text = str(said["kind"]), str(said["text"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return MessageError(f"{party}: refused, and said nothing that can be read.")
    found = getattr(errors, kind, None)
    if not (isinstance(found, type) and issubclass(found, UnderstudyError)):
        found = PartyError
    text = "".join(letter if letter.isprintable() else " " for letter in text[:_LONGEST])
    return found(text if text.startswith(party) else f"{party}: {text}")
