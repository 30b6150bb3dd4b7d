"""The server's side of a joint Gram matrix: it deals masks, relays sealed messages, and adds up what comes back.

Of the parts it sees only uniform numbers; what it can put together is the matrix with every party's noise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.data.codec import Codec
from understudy.data.schema import Schema
from understudy.errors import MessageError, PartyError
from understudy.privacy.laplace import DiscreteGaussianNoise
from understudy.privacy.secure.product import Dealer
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.sums import noise_share
from understudy.protocols.alignment import align_people
from understudy.protocols.base import Ask, Parties
from understudy.protocols.gram_messages import Agree, Begin, Share, Sum, Swap

_FAR = 64  # noise beyond so many σ would wrap around: once in e^2048
_MESSAGE = 1 << 27  # bytes, at most


@dataclass(frozen=True)
class Measured:
    """The released matrix: counts (width, width), the standard deviation of the noise in each cell, and the σ of ε.

    `begun`: what each party that took part stated. All of it is public, or paid for.
    """

    partition: str
    gram: Tensor
    noise: Tensor
    sigma: float
    begun: dict[str, dict[str, Any]]


def measure(
    parties: Parties,
    schemas: Mapping[str, Schema],
    *,
    partition: str,
    private: bool = True,
    chunk: int = 1 << 15,
    colluding: int = 1,
    at_least: int | None = None,
) -> Measured:
    """The noisy Gram matrix over all parties, at the noise that the strictest budget needs.

    Edges: over columns a party that goes away ends the run. Over rows one that goes before the sum is left out while
    `at_least` remain, and one that goes while the sum is collected ends the run: without it nothing can be unmasked.
    Who has released by then has paid.
    """
    begin = Begin(
        partition=partition,
        schemas={name: schema.to_dict() for name, schema in schemas.items()},
        private=private,
    )
    if partition == "columns":
        people, at_least = align_people(parties), None
    else:
        people = None
    begun = _stated(_present(parties, dict.fromkeys(parties.names, begin), at_least))
    if {info["people"] for info in begun.values()} != {people}:
        raise PartyError("The parties do not agree on how many people they share. Nothing was charged.")
    sigma = max(float(info["sigma"]) for info in begun.values())
    if people is not None:
        return _columns(parties, schemas, begun, people, sigma, chunk)
    return _rows(parties, schemas, begun, sigma, colluding, at_least)


def _rows(
    parties: Parties,
    schemas: Mapping[str, Schema],
    begun: dict[str, dict[str, Any]],
    sigma: float,
    colluding: int,
    at_least: int | None,
) -> Measured:
    """The sum of all parties' matrices, each under pads with all the others."""
    ring, width = Ring(64), Codec(next(iter(schemas.values()))).width
    while True:  # until all who are still there have agreed with each other
        share = noise_share(Fraction(sigma), len(begun), colluding=colluding)
        agree = Agree(keys=_keys(begun), sigma=sigma, colluding=colluding, bits=ring.bits, chunk=1, seeds={})
        agreed = _present(parties, dict.fromkeys(begun, agree), at_least)
        if agreed.keys() == begun.keys():
            break
        begun = {name: begun[name] for name in agreed}
    replies = parties.ask(dict.fromkeys(begun, Sum()))
    terms = [ring.words(_shaped(reply.gram.value, width, width)) for reply in replies.values()]
    total = np.sum(terms, axis=0, dtype=ring.dtype)
    noise = torch.full((width, width), math.sqrt(len(begun)) * deviation(share), dtype=torch.float64)
    return Measured("rows", ring.signed(total), noise, sigma, begun)


def _columns(
    parties: Parties,
    schemas: Mapping[str, Schema],
    begun: dict[str, dict[str, Any]],
    people: int,
    sigma: float,
    chunk: int,
) -> Measured:
    """Each party's own block, and the product of every two in shares."""
    names = parties.names
    widths = {name: Codec(schemas[name]).width for name in names}
    ring = Ring.holding(people + 2 * _FAR * sigma)
    row = (
        max(widths.values()) * ring.dtype.itemsize * (len(names) - 1)
    )  # bytes per person in the largest message
    chunk = max(1, min(chunk, _MESSAGE // row))
    dealers = {(i, k): Dealer(ring, (widths[i], widths[k])) for i, k in combinations(names, 2)}
    seeds: dict[str, dict[str, bytes]] = {name: {} for name in names}
    for (i, k), dealer in dealers.items():
        seeds[i][k], seeds[k][i] = dealer.seeds
    terms: dict[str, Any] = {
        "keys": _keys(begun),
        "sigma": sigma,
        "colluding": 1,
        "bits": ring.bits,
        "chunk": chunk,
    }
    parties.ask({name: Agree(seeds=seeds[name], **terms) for name in names})
    inbox: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    for number, start in enumerate(range(0, people, chunk)):
        replies = parties.ask({name: Swap(chunk=number, inbox=inbox[name]) for name in names})
        inbox = {
            name: {peer: _sealed(replies, peer, name) for peer in names if peer != name} for name in names
        }
        for dealer in dealers.values():
            dealer.deal(min(chunk, people - start))
    corrections: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    for (i, k), dealer in dealers.items():
        corrections[k][i] = ring.signed(dealer.correction())
    replies = parties.ask({name: Share(inbox=inbox[name], corrections=corrections[name]) for name in names})
    blocks = {(name, name): _shaped(replies[name].own.value, widths[name], widths[name]) for name in names}
    for i, k in dealers:
        mine, yours = (
            ring.words(_shaped(replies[a].cross.value.get(b), widths[i], widths[k]))
            for a, b in ((i, k), (k, i))
        )
        blocks[i, k] = ring.signed(mine + yours)
        blocks[k, i] = blocks[i, k].T
    gram = torch.cat([torch.cat([blocks[i, k] for k in names], dim=1) for i in names])
    whose = torch.repeat_interleave(torch.tensor(list(widths.values())))
    one = deviation(Fraction(sigma))
    noise = torch.where(whose[:, None] == whose, one, math.sqrt(2) * one).double()  # two shares across
    return Measured("columns", gram, noise, sigma, begun)


def deviation(scale: Fraction) -> float:
    """The standard deviation of discrete Gaussian noise; 0 for none."""
    return math.sqrt(DiscreteGaussianNoise(scale).variance) if scale else 0.0


def _present(parties: Parties, asks: Mapping[str, Ask], at_least: int | None) -> dict[str, Any]:
    """The replies; of those who are there, where `at_least` of them suffice."""
    if at_least is None:
        return parties.ask(asks)
    replies: dict[str, Any] = {}
    gone: list[PartyError] = []
    for name, ask in asks.items():
        try:
            replies |= parties.ask({name: ask})
        except PartyError as error:
            gone.append(error)
    if gone and len(replies) < at_least:
        raise PartyError(f"{len(replies)} of at least {at_least} parties are left: {gone[0]}") from gone[0]
    return replies


def _stated(replies: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        name: {key: public.value for key, public in vars(reply).items()} for name, reply in replies.items()
    }


def _keys(begun: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    return {name: info["key"] for name, info in begun.items()}


def _sealed(replies: Mapping[str, Any], sender: str, receiver: str) -> Tensor:
    box = replies[sender].outbox.value
    if not isinstance(box, dict) or not isinstance(box.get(receiver), Tensor):
        raise MessageError(f"{sender} sent nothing for {receiver}. Nothing was released.")
    return box[receiver]  # type: ignore[no-any-return]


def _shaped(value: Any, *shape: int) -> Tensor:
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.shape != shape:
        raise MessageError(f"a part of the Gram matrix is not {shape} whole numbers. It was put aside.")
    return value
