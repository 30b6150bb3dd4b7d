"""A party of VertiGAN that also releases its part of the parties' joint tables (`coupling.py` says what for)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from understudy.data.kinds import TABLE
from understudy.ground.errors import PartyError
from understudy.privacy.accounts.accounting import Spend
from understudy.protocols.core import Ask, Done, Keep, Message, Public, Reply
from understudy.protocols.gans.coupling import coupling_party
from understudy.protocols.gans.verti_gan_party import Config, Couple, VertiGanParty
from understudy.protocols.joint import messages as joint
from understudy.protocols.joint.messages import Swap
from understudy.protocols.joint.party import AlignedJointParty


class CoupledParty(VertiGanParty):
    """A holder who agreed to a coupling: before its critic begins, a `JointParty` over the same rows has its part in
    the release of the joint tables, for a share of the budget.

    Guarantee: that of both; the critic's noise is the least with which they stay within the budget together.
    Edges: only a holder who agreed builds this party, since a server that deals masks to a party it made up could read
    the rows. After `Begin` of the critic no release is begun: its noise is fixed, and leaves nothing for one.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *dict.fromkeys((*VertiGanParty.messages, Couple, *AlignedJointParty.messages)),
    )

    def __init__(self, *holder: Any, **more: Any) -> None:
        super().__init__(*holder, **more)
        self.side: AlignedJointParty | None = None
        self.share = 0.0

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.side is not None and self.side.pair is not None:
            raise self.unexpected(ask)  # as in `JointParty`
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        if self.begun is None:
            match ask:
                case Couple():
                    self.share = Config(**ask.config).coupling_share
                    return Done(round=Public(0, "the server's own number"))
                case joint.Begin() if self.share:
                    paid, self.side = self.paid_before(), self._side()
                    self.side.paid = paid
                    return self.side.answer(ask)
                case joint.Agree() | Swap() | joint.Release() if self.side is not None:
                    return self.side.answer(ask)
        return super().respond(ask)

    def _side(self) -> AlignedJointParty:
        if not TABLE.holds(self.rows):
            raise PartyError(f"{self.name}: {self.rows.source} is no table, and columns are to be counted.")
        budget = replace(self.budget, epsilon=self.share * self.budget.epsilon)
        return coupling_party(
            self, self.rows, self.ledger, budget, run=self.run, rng=self.rng, folder=self.folder
        )

    def paid_before(self) -> Spend:
        return {} if self.side is None else self.side.paid

    def state_dict(self) -> dict[str, Any]:
        side = {} if self.side is None else {"side": self.side.state_dict()}
        return super().state_dict() | {"share": self.share, **side}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.share, self.side = state["share"], None
        if "side" in state:
            self.side = self._side()
            self.side.load_state_dict(state["side"])
