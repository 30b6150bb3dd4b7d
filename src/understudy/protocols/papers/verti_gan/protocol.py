"""VertiGAN: holders of different columns of the same people train one generator.

Jiang, Zhang, Zhou, Grossklags, "Distributed GAN-based privacy-preserving publication of
vertically-partitioned data" (PoPETs 2023(2)), Algorithms 1 and 2, §5, §7.2.
Paper → code: T_global → rounds, T_d → critic_steps, B → batch, C → clip_norm, λ →
penalty, G⁰ and Gⁱ → the common layers and a branch of `BranchedGenerator`, Dⁱ →
`Critic`, τ → `VertiGanRound.seed`, and `VertiGanRound.batches` for batches.
Differs from the paper: the signs of WGAN-GP and a linear critic (Eq. 8–13 are printed
reversed); the sampling rate is B/N; every party draws its own secret Poisson batches,
so that subsampling amplifies against the server and the other parties too.
`sampling="shared"` reproduces the common batches and states both prices; what they
follow from is a secret of the server and the parties, drawn anew for every round and
kept by nobody, so that no outsider can know a batch. A party may hold one image or one
series of each person instead of a table (§7.1): images get a convolutional branch and
critic (`models/nets/gan.py`), a series is a row of values to the usual ones.

What it can learn: each party's own joint distribution. `coupling="gram"`, which is not
the paper's, buys the parties' joint two-way tables for a share of the budget and adds
them to the loss (`coupling.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils import parameters_to_vector

from understudy.data.kinds import AnySchema, Rows
from understudy.models.nets.gan import densify
from understudy.models.network import pick_device
from understudy.privacy.accounts.accounting import Spend, planned_gaussians
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core import Parties, Watcher
from understudy.protocols.core.alignment import align_people
from understudy.protocols.core.loop import Outcome
from understudy.protocols.papers.verti_gan.party import (
    SECRET_BYTES,
    Config,
    Couple,
    VertiGanBegin,
    VertiGanParty,
    VertiGanRound,
)
from understudy.protocols.papers.vertical_gans.party import split_like
from understudy.protocols.papers.vertical_gans.server import GanServer
from understudy.protocols.protocol import Protocol

__all__ = [
    "PROTOCOL",
    "Config",
    "Couple",
    "VertiGanBegin",
    "VertiGanParty",
    "VertiGanRound",
    "train",
]


def build_party(
    name: str, table: Rows, ledger: Ledger, *, coupled: bool = False, **more: Any
) -> VertiGanParty:
    return (party_classes()[1] if coupled else VertiGanParty)(
        name, table, ledger, **more
    )


def party_classes() -> tuple[type[VertiGanParty], type[VertiGanParty]]:
    """The paper's party, and one that couples: it brings what a joint release needs."""
    from understudy.protocols.papers.vertical_gans.coupling import CoupledParty

    return VertiGanParty, CoupledParty


# Algorithm 1
def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, AnySchema],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
    align: Callable[[Parties], object] = align_people,
) -> Outcome:
    server = GanServer(
        config,
        parties,
        schemas,
        checkpoint=checkpoint,
        device=pick_device(config.device),
    )
    network = server.network
    settings = asdict(config)

    if config.coupling == "gram":
        from understudy.protocols.papers.vertical_gans.coupling import (
            DEALT,
            Coupling,
            release_tables,
        )

        align = partial(release_tables, config, server, resume)
        server.unguarded = DEALT
    if config.sampling == "shared":
        server.common = config.critic_steps
    server.begin(
        lambda name: VertiGanBegin(
            config=settings, network=network.describe(only=name)
        ),
        resume=resume,
        align=align,
    )

    coupling = (
        Coupling.from_server(config, server) if config.coupling == "gram" else None
    )
    parts = {
        name: list(network.party_parameters(name).values()) for name in parties.names
    }

    def learn(round: int) -> None:
        seed = int(torch.randint(2**62, (), generator=server.draws))
        batches = server.secret(SECRET_BYTES) if config.sampling == "shared" else b""
        vectors = {
            name: parameters_to_vector(parameters).detach()
            for name, parameters in parts.items()
        }
        asks = {
            name: VertiGanRound(round=round, seed=seed, weights=vector, batches=batches)
            for name, vector in vectors.items()
        }
        for name, reply in parties.ask(asks).items():
            gradient = densify(reply.gradient.value, asks[name].weights.numel()).to(
                server.device
            )
            # Eq. 14: a branch gets its own party's gradient, the common layers the sum
            # of all.
            for parameter, part in split_like(parts[name], gradient):
                parameter.grad = (
                    part if parameter.grad is None else parameter.grad + part
                )
        if coupling is not None:
            coupling.add_gradient(network, seed, config.batch)

    return server.run(learn, watch)


def spends(config: Config, budget: Budget) -> Spend | None:
    """Gaussian noise, where a budget binds those who know who is in a batch. Where
    sampling hides that, what a step costs follows from the number of people, which
    settings do not tell.
    """
    if not config.private or config.sampling == "private" or budget.against != "anyone":
        return None
    return planned_gaussians(budget.epsilon, budget.delta)


PROTOCOL = Protocol(
    name="verti-gan",
    paper=__doc__,
    config=Config,
    party=build_party,
    parties=party_classes,
    train=train,
    same_people=True,
    kinds=("table", "series", "image"),
    agreed=lambda config: {"coupled": config.coupling == "gram"},
    audit="critic",
    spends=spends,
)
