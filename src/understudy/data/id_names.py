"""Which columns identify somebody or something, by their names: patient_id, PatientID,
subjid, "person id", uuid, mrn.

A table with such a column may hold several rows of one person. Who is protected then, a
person or a row, is for the holder to say; nothing guesses it from rows.

Guarantee: the answer depends on the name alone, which is public.
Edges: an English word that ends in "id" (paid, covid, steroid) is no id. A name that is
not known here is no id, either: the statement of such a run says that it protects rows.
"""

import re
from collections.abc import Iterable

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_]+|\d+")
_IDENTIFIER = re.compile(
    "ids?|idx|identifiers?|guid|uuid|uid|pid|eid|mrn|ssn|nino|seqn|empi|upi|pseudonym"
)
# as the whole of a name
_PERSON = re.compile("customer|participant|patient|person|respondent|subject")
# A number, a code or a key of one of these identifies it: patient number, kundennummer,
# case_no.
_NUMBER = re.compile("no|nr|num|number|nummer|code|key|token|hash")
_SUBJECT = re.compile(
    "account|beneficiary|case|claim|client|customer|donor|employee|insurance|insured|kunden?|member|nhs|participant|passport|pat|patient|patienten|pers|person|personal|record|respondent|resident|security|student|subj|subject|user|versicherten"
)
_SUBJECT_NUMBER = re.compile(f"(?:{_SUBJECT.pattern})(?:{_NUMBER.pattern})")
# English words that end in "id" and stand in tables; the longer ones end others:
# prepaid, corticosteroid.
_SHORT_WORD = re.compile("aid|bid|kid|mid|rid")
_WORD = re.compile(
    ".*(?:acid|amid|android|arid|asteroid|avid|avoid|bifid|carotid|choroid|colloid|covid|cupid|druid|eyelid|fibroid|fluid|forbid|grid|h[ae]+morrhoid|humid|hybrid|valid|keloid|laid|lipid|liquid|lucid|lymphoid|madrid|maid|medicaid|morbid|mucoid|m?yeloid|amyloid|opi?oid|orchid|outbid|overbid|paid|placid|plaid|pyramid|rabid|raid|rapid|rheumatoid|rigid|said|sarcoid|schizoid|sigmoid|skid|slid|solid|squid|steroid|stupid|thyroid|torrid|trapezoid|typhoid|vapid|vivid|void)"
)


def is_id_name(name: object) -> bool:
    """Whether a column of this name holds ids."""
    parts = [part.lower() for part in _PARTS.findall(str(name))]
    while parts and parts[-1].isdigit():  # id2, patient_id_1
        parts.pop()
    if not parts:
        return False
    last = parts[-1]
    if _IDENTIFIER.fullmatch(last) or _SUBJECT_NUMBER.fullmatch(last):
        return True
    if len(parts) == 1 and _PERSON.fullmatch(last):
        return True
    if len(parts) > 1 and _NUMBER.fullmatch(last):
        return _SUBJECT.fullmatch(parts[-2]) is not None
    return (
        last.endswith("id")
        and not _SHORT_WORD.fullmatch(last)
        and not _WORD.fullmatch(last)
    )


def likely_person(ids: list[str]) -> str:
    """Which of these columns most likely says who a person is: one that names people,
    else the first.
    """
    of_people = [
        name
        for name in ids
        if any(_PERSON.match(part.lower()) for part in _PARTS.findall(name))
    ]
    return (of_people or ids)[0]


def id_names(names: Iterable[object]) -> list[str]:
    """Those of the names that are of ids, in their order."""
    return [str(name) for name in names if is_id_name(name)]
