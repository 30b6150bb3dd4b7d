"""What was only rehearsed protects nobody, and says so before all else.

Apart from the statement, so that an artefact is read, drawn from and checked without the accountant.
"""

from collections.abc import Mapping, Sequence
from typing import Any

REHEARSED = {  # why what a party did protects nobody
    "seed": "noise was drawn from a seed, and anyone who finds the seed can remove it",
    "fast": "noise came from a fast generator that is not secure",
    "ledger": "no lasting ledger was charged",
}


def rehearsed(parties: Mapping[str, Sequence[str]]) -> str:
    """Why what these parties did protects nobody, by keys of `REHEARSED`; nothing where there are none."""
    said = []
    for key in dict.fromkeys(key for keys in parties.values() for key in keys):
        whose = [name for name, keys in parties.items() if key in keys]
        said.append(
            REHEARSED.get(key, key) + ("" if len(whose) == len(parties) else f" ({', '.join(whose)})")
        )
    if not said:
        return ""
    return f"Rehearsal: nothing here is private and nothing may be published; {'; '.join(said)}."


def first_said(card: Mapping[str, Any]) -> dict[str, str]:
    """What an artefact says before all else: that it is of a rehearsal, if it is."""
    return {"rehearsal": said} if (said := rehearsal_of(card)) else {}


def rehearsal_of(card: Mapping[str, Any]) -> str:
    """Why what a card describes protects nobody, as its statement says; nothing where it does not say so."""
    privacy = card.get("privacy")
    said = card.get("rehearsal") or (privacy.get("rehearsal") if isinstance(privacy, Mapping) else None)
    return str(said) if said else ""
