"""What a holder has in hand between the keys of a joint release and the last of its stages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from understudy.privacy.secure.ring import Ring
from understudy.protocols.core.keyed import Agreement
from understudy.protocols.core.products import Products
from understudy.protocols.joint.stage import Stage, Study, Terms


@dataclass
class Session(Agreement):
    """What a party holds between `Agree` and its last release."""

    terms: dict[str, Terms] = field(default_factory=dict)  # of every stage that was fixed
    stages: dict[str, Stage[Any]] = field(default_factory=dict)  # the same; the last may still be due
    word: bytes = b""  # what the others have yet to show that they were told
    products: Products | None = None  # of the stage that is due
    shares: dict[str, dict[tuple[int, int], Tensor]] = field(default_factory=dict)  # of all stages

    @property
    def ring(self) -> Ring:
        return Ring(self.agree.bits)

    @property
    def noise(self) -> float:
        """Of the release that is due."""
        return float(self.agree.noise[self.released])

    def state_dict(self) -> dict[str, Any]:
        products = self.products
        return {
            "stages": [[name, terms] for name, terms in self.terms.items()],
            "word": self.word,
            "products": None if products is None else products.state_dict(),
            "shares": {
                name: [[*groups, share] for groups, share in shares.items()]
                for name, shares in self.shares.items()
            },
        }

    def load_state_dict(self, held: Mapping[str, Any], study: Study[Any]) -> None:
        """The inverse, but for products, which are begun anew first."""
        for place, (name, terms) in enumerate(held["stages"]):
            self.terms[name] = terms
            self.stages[name] = study.stage(name, terms, self.agree.noise[place], dict(self.stages))
        self.word = held["word"]
        self.shares = {
            name: {(g, h): share for g, h, share in shares} for name, shares in held["shares"].items()
        }
