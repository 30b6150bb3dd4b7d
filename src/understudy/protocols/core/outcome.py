"""What a protocol's `train` gives: what it trained, what that cost, and how many people took part."""

from dataclasses import dataclass

from understudy.generators.parts import ClassifierParts, GeneratorParts
from understudy.privacy.accounts.statement import PrivacyStatement


@dataclass(frozen=True)
class Outcome:
    """What a generator or a classifier is made of, and its price."""

    trained: GeneratorParts | ClassifierParts
    privacy: PrivacyStatement
    people: int
