"""What ties one party's columns to another's in VertiGAN: their joint two-way tables,
measured once, as a second loss.

VertiGAN's critics each see one party, so any coupling of the parties' distributions is
optimal to them. Here the blocks X_iᵀX_k of the Gram matrix across parties
(`gram/stages.py`) are released once, before the first round, and in every round the
generator's gradient is the critics' plus that of a distance between the two-way tables
of its own outputs and the released ones.

    d = Σ (PᵀP/n − target)² · precision over the cells across parties,
    P (n, width) the generator's odds on n latents

Target and precision are those of `models/tables/fit_gram.read_tables`, in its basis:
noisy cells, drawn to what is likely. The second gradient is scaled to `weight` times
the length of the critics' one, and fades out as the mean square residual, in units of
the noise, comes down to 1, what noise alone would leave.

Budget. `share` of a party's ε goes into the release, which alone costs (share·ε, δ);
the critic's noise is then the least with which both together stay within (ε, δ). The
release is one for all parties and every ledger holds it, so a person's price over all
parties counts it once for each of them: more than it is.
Guarantee: the release is that of `joint.party`, with its edges: the server deals the
masks of products.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from understudy.data.encoding.codec import Codec
from understudy.data.kinds import TABLE
from understudy.data.schema import Schema
from understudy.ground.errors import ConfigError, Effect, PartyError
from understudy.models.kernels.clients import along
from understudy.models.nets.gan import BranchedGenerator
from understudy.models.tables.noisy_tables import read_tables
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.noise import FastRng
from understudy.protocols.core import Ask, Done, Keep, Message, Parties, Public, Reply
from understudy.protocols.core.alignment import AlignedParty
from understudy.protocols.gram.fit import MeasuredGram
from understudy.protocols.gram.protocol import Gram
from understudy.protocols.gram.settings import Config as GramConfig
from understudy.protocols.joint import messages as joint
from understudy.protocols.joint.measurements import Measurements, Record
from understudy.protocols.joint.messages import Swap
from understudy.protocols.joint.party import AlignedJointParty
from understudy.protocols.joint.server import measure
from understudy.protocols.joint.stage import DEALT as DEALT
from understudy.protocols.papers.verti_gan.party import Config, Couple, VertiGanParty
from understudy.protocols.papers.vertical_gans.server import GanServer


class AcrossTables(Gram):
    """The blocks of the joint Gram matrix across parties, as a part of a run of
    VertiGAN, whose settings it is told.
    """

    family: ClassVar[str] = "verti-gan"
    settings: ClassVar[type[Any]] = Config
    settled: ClassVar[tuple[str, ...]] = ("private", "coupling", "coupling_share")
    across: ClassVar[bool] = True

    def __init__(self, config: Config, schemas: Mapping[str, Any]) -> None:
        without_tables = sorted(schemas.keys() - TABLE.among(schemas).keys())
        if without_tables:
            raise ConfigError(
                f'{without_tables[0]} holds no table, and coupling="gram" counts '
                "columns.",
                effect=Effect.NOTHING_CHARGED,
            )
        tables = GramConfig(fine=0.0, private=config.private, products="dealt")
        super().__init__(tables, schemas)
        self.whole_run = config

    def told_settings(self) -> dict[str, Any]:
        return asdict(self.whole_run)


class CoupledParty(VertiGanParty):
    """A holder who agreed to a coupling: before its critic begins, a `JointParty` over
    the same rows has its part in the release of the joint tables, for a share of the
    budget.
    Guarantee: that of both; the critic's noise is the least with which they stay within
    the budget together.
    Edges: only a holder who agreed builds this party, since a server that deals masks
    to a party it made up could read the rows. After `VertiGanBegin` no release is
    begun: the critic's noise is fixed, and leaves nothing for one.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *dict.fromkeys((*VertiGanParty.messages, Couple, *AlignedJointParty.messages)),
    )

    def __init__(self, *holder: Any, **more: Any) -> None:
        super().__init__(*holder, **more)
        self.side: AlignedJointParty | None = None
        self.share = 0.0

    def answer(self, ask: Ask) -> Reply:
        if (
            isinstance(ask, Keep)
            and self.side is not None
            and self.side.pair is not None
        ):
            raise self.unexpected(ask)  # as in `JointParty`
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        if self.begun is None:
            match ask:
                case Couple():
                    self.share = Config(**ask.config).coupling_share
                    return Done(round=Public(0, "the server's own number"))
                case joint.Begin() if self.share:
                    paid = self.paid_before()
                    self.side = self._side()
                    self.side.paid = paid
                    return self.side.answer(ask)
                case joint.Agree() | Swap() | joint.Release() if self.side is not None:
                    return self.side.answer(ask)
        return super().respond(ask)

    def _side(self) -> AlignedJointParty:
        if not TABLE.holds(self.rows):
            raise PartyError(
                f"{self.name}: {self.rows.source} is no table, and columns are to be "
                "counted."
            )
        side = AlignedJointParty(
            AcrossTables,
            self.name,
            self.rows,
            self.ledger,
            run=self.run,
            rng=self.rng,
            folder=self.folder,
            budget=replace(self.budget, epsilon=self.share * self.budget.epsilon),
        )
        side.price_terms = lambda: None  # type: ignore[method-assign]  # the critic's charges say it for both
        side.load_state_dict({"alignment": AlignedParty.state_dict(self)["alignment"]})
        return side

    def composition(self) -> dict[str, Any]:
        return super().composition() | {"unguarded": DEALT}

    def paid_before(self) -> Spend:
        return {} if self.side is None else self.side.paid

    def state_dict(self) -> dict[str, Any]:
        side = {} if self.side is None else {"side": self.side.state_dict()}
        return super().state_dict() | {"share": self.share, **side}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.share = state["share"]
        self.side = None
        if "side" in state:
            self.side = self._side()
            self.side.load_state_dict(state["side"])


def release_tables(
    config: Config, server: GanServer, resume: bool, parties: Parties
) -> None:
    """The parties align their people and release their joint tables, which the server
    holds from then on.
    """
    parties.ask(Couple(config=asdict(config)))
    secret = None if server.store is None else server.store.secret(resume=resume)
    measurements = measure(AcrossTables(config, server.schemas), parties, secret=secret)
    server.extra_state = {"measured": dict(vars(measurements.record))}


class Coupling:
    def __init__(
        self,
        measured: MeasuredGram,
        schemas: Mapping[str, Schema],
        *,
        weight: float,
        device: torch.device,
    ) -> None:
        sizes = [size for schema in schemas.values() for size in Codec(schema).sizes]
        noise = torch.where(measured.measured, measured.noise, torch.inf)
        tables = read_tables(measured.gram.double(), sizes, noise=noise)
        self.weight = weight
        self.target, self.measured = (
            t.float().to(device) for t in (tables.target, tables.measured)
        )
        self.precision, self.noise_weight = (
            t.float().to(device) for t in (tables.precision, tables.weight)
        )
        self.basis = tables.basis.float().to(device)
        self.cells = max(int(torch.count_nonzero(tables.weight)), 1)

    @classmethod
    def from_server(cls, config: Config, server: GanServer) -> "Coupling":
        """From what the server holds since the release, in this run or in one that is
        resumed.
        """
        study = AcrossTables(config, server.schemas)
        measured = MeasuredGram.from_releases(
            Measurements(study, Record(**server.extra_state["measured"]))
        )
        tables = cast(dict[str, Schema], server.schemas)
        return cls(
            measured, tables, weight=config.coupling_weight, device=server.device
        )

    def add_gradient(self, network: BranchedGenerator, seed: int, batch: int) -> None:
        """Add the second gradient to the critics', which is in the parameters already.
        No host waits for a number.
        """
        device = self.target.device
        probabilities = network.rows(
            FastRng(seed).normal(batch, network.latent, device=device)
        )
        with torch.no_grad():
            turned = probabilities @ self.basis
            pairs = turned.T @ turned / batch
            residual = (
                (pairs - self.measured).square() * self.noise_weight
            ).sum() / self.cells
            slope = turned @ ((pairs - self.target) * self.precision) @ self.basis.T
        parameters = [p for p in network.parameters() if p.grad is not None]
        coupling_gradient = torch.autograd.grad(
            along([probabilities], [slope]), parameters
        )
        critics = _length([p.grad for p in parameters if p.grad is not None])
        scale = (
            self.weight
            * (residual - 1).clamp(0, 1)
            * critics
            / _length(coupling_gradient).clamp_min(1e-30)
        )
        for parameter, part in zip(parameters, coupling_gradient, strict=True):
            assert parameter.grad is not None
            parameter.grad = parameter.grad + scale * part


def _length(parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return torch.stack([part.square().sum() for part in parts]).sum().sqrt()
