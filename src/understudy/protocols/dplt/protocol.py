"""DPLT and DPLT+: holders of columns grow one latent tree over their joint data, step by step, under pure ε.

Tang, Cheng, Su, Chen, Shao, "Differentially private publication of vertically partitioned data" (IEEE TDSC 2019), the
baseline of Zhang, master's thesis, TUM 2022, §3.3, and of Jiang et al., VertiGAN (PoPETs 2023(2)), §6.1.2. We follow
these two accounts, which name the steps and leave them open; each reading below is the simplest sound one.

    coding    a column of L levels is ⌈log₂ L⌉ binary attributes, the digits of its level's number (§3.3.1)
    step 1    each party groups its attributes, by the exponential mechanism on their association; a group's latent
              attribute is the attribute at its centre, and its others are leaves that hang on it
    step 2    noisy two-way tables of latent attributes, within parties and across, give their mutual information
    step 3    the server takes a maximum spanning tree of the latent attributes
    step 4    fresh noisy two-way tables along the tree, and of each leaf with its latent attribute, are its parameters
    drawing   attributes from the root outwards; a number beyond a column's levels loses its highest digit (§3.3.3)

DPLT+ (TICQ) prunes the pairs of step 2. A maximum spanning tree of all holds no edge within a party that a maximum
spanning tree of that party alone does not hold (the lightest edge of a cycle is never needed). So each party chooses
such a tree first, its index, again by association and the exponential mechanism; then only the edges of the
indices, and the pairs across parties, are measured. Where association and mutual information rank pairs alike and
nothing is hidden by noise, DPLT+ has DPLT's tree.

Paper → code: latent attribute → the first of a group; ε's three portions → `Config.split`, even by default.
Differs from the papers: noise is discrete Laplace, drawn exactly; tables across parties come from secure products
(docs/secure_products.md) instead of a protocol with a semi-trusted curator who adds the noise; what is public is the
schema, so no bin or level is read from rows.

Sensitivity (add or remove one person with all their columns). Step 1: `dplt_tree.association` is proven to move by
at most 1, a sum of g of them by at most g; a choice at ε₁/choices each. Step 2: a person is in one cell of each table,
so all P tables move by P in L1: discrete Laplace of scale P/ε₂ (and P is smaller in DPLT+). Step 4: likewise with the
b − 1 tables of a tree of b attributes. The three add up to ε (`dplt_plan.Plan`).

Guarantee: ε-DP, δ = 0, for a person with all their columns at all parties, in one joint release, against an outsider,
the server, any party, and several parties together. Each party's ledger is charged that whole price, for the same
release: a person pays it once.
Edges: the server deals the masks of products, so it must not pool what it knows with a holder. Before step 1 the
parties greet each other through their sealed channels: had two of them been told different schemas, settings, prices or
keys, they would part there, and nothing is charged. A server that speaks for holders under keys of its own making is
not found out so; the contract of a run over the network names the schemas, and the ledgers name the keys.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.schema import Schema, join
from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import MessageError
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.privacy.secure.ring import Ring
from understudy.protocols.core import Parties, Watcher, public_values, settled
from understudy.protocols.core.agreeing import greetings_of, keys_of, same_number, stated_prices
from understudy.protocols.core.alignment import align_people
from understudy.protocols.core.checkpoint import Checkpoint
from understudy.protocols.core.loop import two_steps
from understudy.protocols.core.outcome import Outcome
from understudy.protocols.core.products import Dealing, Swap, relayed
from understudy.protocols.dplt.messages import Agree, Begin, Correlate, Group, Quantify
from understudy.protocols.dplt.party import DpltParty
from understudy.protocols.dplt.plan import Config, Plan
from understudy.protocols.dplt.tree import (
    Array,
    Edge,
    information,
    leaves_of,
    network_of,
    spanning_tree,
    split_edges,
)
from understudy.protocols.protocol import Protocol

__all__ = ["PROTOCOL", "Config", "Outcome", "train"]

DEALT = (
    "rows against the server together with a holder: the server deals the masks, so together they could remove them",
)
_FAR = 64  # noise beyond so many scales would wrap around: once in e^64


@dataclass(frozen=True)
class Grown:
    """What was released: the parties' statements, their groups, the tree of latent attributes, and its tables.

    Attributes are numbered over all parties, in their order. `tables` (edges, 2, 2) go with `edges` (edges, 2), of
    which the first is the parent; the root is edges[0, 0].
    """

    begun: dict[str, dict[str, Any]]
    edges: Tensor
    tables: Tensor


def train(
    config: Config,
    parties: Parties,
    schemas: Mapping[str, Schema],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
) -> Outcome:
    """Grow the tree, and make a generator of it.

    With a `checkpoint` folder what was released is saved, and `resume=True` continues from there: nothing is
    measured, or charged, twice.
    """
    schemas = {name: schemas[name] for name in parties.names}
    schema = join(schemas)
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    saved = store.noted("released") if store is not None and resume else None
    if saved is not None:
        grown = Grown(**saved)
    else:
        grown = grow(config, parties, schemas, None if store is None else store.secret(resume=resume))
        if store is not None:
            store.note("released", dict(vars(grown)))
            store.over()
    privacy = _statement(grown, parties)
    people = int(next(iter(grown.begun.values()))["people"])
    look = two_steps(watch, privacy.per_party)
    look(1)
    edges = [(int(parent), int(child)) for parent, child in grown.edges.tolist()]
    tables = dict(zip(edges, grown.tables.double().numpy(), strict=True))
    sizes = [size for sizes in Plan(config, schemas, math.inf).sizes.values() for size in sizes]
    network = network_of(sizes, tables, edges[0][0])
    look(2)
    card = {
        "protocol": "dplt",
        "config": asdict(config),
        "rounds": 1,
        "ended": "after the one release",
        "people": people,
        "owners": {column: name for name, held in schemas.items() for column in held.names},
        "privacy": privacy.to_dict(),
    }
    return Outcome(GeneratorParts(network.eval(), schema, card), privacy, people)


def grow(
    config: Config, parties: Parties, schemas: Mapping[str, Schema], secret: bytes | None = None
) -> Grown:
    """The four steps. A party that goes away ends the run; a party that has answered a step by then has paid for it.

    A server that deals by the same `secret` again asks the same again: parties that record their answers repeat them.
    """
    Plan(config, schemas, math.inf)  # what cannot be published is refused before anyone is asked
    names, people = parties.names, align_people(parties)
    replies = parties.ask(
        Begin(config=asdict(config), schemas={name: schema.to_dict() for name, schema in schemas.items()})
    )
    begun = public_values(replies)
    same_number(begun, {names: people})
    epsilon = min(float(info["budget"]["epsilon"]) for info in begun.values()) if config.private else None
    plan = Plan(config, schemas, math.inf if epsilon is None else epsilon)
    ring = Ring.holding(people + 2 * _FAR * float(max(plan.scales or (0,))))
    keys = keys_of(begun)
    widths = {name: 2 * width for name, width in plan.latents.items()}
    dealing = Dealing(ring, widths, keys=keys, secret=secret)
    terms: dict[str, Any] = {
        "keys": keys,
        "epsilon": epsilon,
        "bits": ring.bits,
        "chunk": config.chunk,
    }
    agreed = parties.ask({name: Agree(seeds=dealing.seeds(name), **terms) for name in names})
    inbox = greetings_of(agreed)
    # Step 1
    grouped = parties.ask({name: Group(inbox=inbox[name]) for name in names})
    inbox = {name: {} for name in names}
    for number, start in enumerate(range(0, people, config.chunk)):
        swapped = parties.ask({name: Swap(chunk=number, inbox=inbox[name]) for name in names})
        inbox = relayed({name: reply.outbox for name, reply in swapped.items()}, names)
        dealing.deal(min(config.chunk, people - start), names)
    # Steps 2 and 3
    answers = parties.ask(
        {name: Correlate(inbox=inbox[name], corrections=dealing.corrections(name)) for name in names}
    )
    pairs = plan.pairs({name: _edges(reply.index.value) for name, reply in grouped.items()})
    weights = np.full((sum(plan.latents.values()),) * 2, -np.inf)
    for (one, other), table in _joined(plan.latents, pairs, answers, ring).items():
        weights[one, other] = weights[other, one] = information(table)
    tree = spanning_tree(weights)
    # Step 4
    answers = parties.ask(Quantify(edges=torch.tensor(tree).view(-1, 2)))
    tables = _parameters(
        plan, tree, {name: reply.groups.value for name, reply in grouped.items()}, answers, ring
    )
    return Grown(begun, torch.tensor(list(tables)), torch.from_numpy(np.stack(list(tables.values()))).long())


def _joined(
    widths: Mapping[str, int],
    pairs: Mapping[tuple[str, str], list[Edge]],
    answers: Mapping[str, Any],
    ring: Ring,
) -> dict[Edge, Array]:
    """The released tables of these pairs, by the two attributes, numbered over all parties: the first has the rows."""
    starts = dict(zip(widths, accumulate(widths.values(), initial=0), strict=False))
    tables: dict[Edge, Array] = {}
    for (i, k), some in pairs.items():
        if i == k:
            released = _shaped(answers[i].own.value, len(some))
        else:
            shares = [_shaped(answers[a].cross.value.get(b), len(some)) for a, b in ((i, k), (k, i))]
            released = ring.signed(ring.words(shares[0]) + ring.words(shares[1]))
        for (a, b), table in zip(some, released.double().numpy(), strict=True):
            tables[starts[i] + a, starts[k] + b] = table
    return tables


def _parameters(
    plan: Plan,
    tree: list[Edge],
    groups: Mapping[str, list[list[int]]],
    answers: Mapping[str, Any],
    ring: Ring,
) -> dict[Edge, Array]:
    """The tables of the whole tree, by (parent, child), numbered over all parties' attributes; the root's first."""
    starts = dict(zip(plan.bits, accumulate(plan.bits.values(), initial=0), strict=False))
    latent = [starts[name] + members[0] for name, parts in groups.items() for members in parts]
    inner = _joined(plan.latents, split_edges(tree, plan.latents), answers, ring)
    tables = {
        (latent[known], latent[new]): inner[known, new] if known < new else inner[new, known].T
        for known, new in tree
    }
    for name, parts in groups.items():
        leaves = leaves_of(parts)
        hanging = _shaped(answers[name].leaves.value, len(leaves)).double().numpy()
        for (parent, leaf), table in zip(leaves, hanging, strict=True):
            tables[starts[name] + parent, starts[name] + leaf] = table
    return tables


def _shaped(value: Any, pairs: int) -> Tensor:
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.shape != (pairs, 2, 2):
        raise MessageError(f"a party's tables are not {pairs} × 2 × 2 whole numbers. They were discarded.")
    return value


def _edges(value: Any) -> list[Edge]:
    return [(int(one), int(other)) for one, other in value]


def _statement(grown: Grown, parties: Parties) -> PrivacyStatement:
    """What the three steps cost, by the parties' ledgers."""
    return PrivacyStatement(
        parties=stated_prices(grown.begun, settled(parties), {}),
        one_release=True,
        unguarded=DEALT,
    )


PROTOCOL = Protocol(
    name="dplt",
    paper=__doc__,
    config=Config,
    party=DpltParty,
    train=train,
    same_people=True,
    one_release=True,
)
