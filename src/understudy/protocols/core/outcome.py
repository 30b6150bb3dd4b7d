"""What a protocol's `train` gives: what it trained, what that cost, and how many people took part."""

from dataclasses import dataclass

from understudy.generators.classifier import Classifier
from understudy.generators.generator import Generator
from understudy.privacy.accounts.statement import PrivacyStatement


@dataclass(frozen=True)
class Outcome:
    """A generator, and its price."""

    generator: Generator
    privacy: PrivacyStatement
    people: int


@dataclass(frozen=True)
class ModelOutcome:
    """A classifier, and its price."""

    model: Classifier
    privacy: PrivacyStatement
    people: int
