"""A holder's side of the joint moments: it checks, masks, multiplies, pays, adds noise, and releases.

The arithmetic and the bounds stand in `privacy.secure.tied`, the blocks in `layout`, the people's vectors in `vectors`.

Guarantee: before a release a party charges its ledger for what one person, with the rows at all parties, moves in it,
under noise that this party computes from the agreed multiplier, which is never below what its own budget needs. To
every block that its rows are in it adds all of that noise, so that ε holds against the server and against every other
party. What a server chooses between two releases (centres, radii, directions) changes no sensitivity. What leaves
earlier, masked and sealed, is uniform to whoever can read it and enters the ledger at no price.
Edges: the server deals the masks, so it must not pool what it knows with a holder (docs/secure_products.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import torch
from dp_accounting import ComposedDpEvent
from torch import Tensor

from understudy.data.described import Rows, public_of
from understudy.data.encoding.codec import Codec
from understudy.data.encoding.triangles import on_diagonal
from understudy.data.kinds import TABLE, kind_of, one_kind_of_row, places, schema_from
from understudy.ground.check import in_range, whole
from understudy.ground.errors import MessageError
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.privacy.secure.counts import noise_on
from understudy.privacy.secure.moments import doubled, moments_event, needed_multipliers
from understudy.privacy.secure.product import Factor
from understudy.privacy.secure.ring import Ring
from understudy.privacy.secure.sums import blind
from understudy.protocols.core import Ask, Message, Paid, Public, Reply
from understudy.protocols.core.alignment import AlignedParty
from understudy.protocols.core.keyed import Agreement as KeyedAgreement
from understudy.protocols.core.keyed import Beginnings, KeyedParty, masked_rows
from understudy.protocols.core.products import Products, Swap, Swapped, mask_seed
from understudy.protocols.moments.stages import check_basis, check_means
from understudy.protocols.tied.layout import (
    CLASSES,
    JOINT,
    MEANS,
    SETTLED,
    Block,
    Layout,
    Noise,
    check_settings,
)
from understudy.protocols.tied.messages import (
    Agree,
    Agreed,
    Begin,
    Begun,
    Means,
    Measure,
    Measured,
    Share,
    Shared,
    Summed,
    what_is_measured,
)
from understudy.protocols.tied.norms import pulled_to
from understudy.protocols.tied.vectors import ArrayPeople, Classes, Numbers, TablePeople

_MOST_RADIUS = 1 << 20
_NAMES = ("means and histograms", "second moments of all rows", "second moments by class")


@dataclass
class Measuring:
    """A release that is being made."""

    ask: Measure
    vectors: Numbers | Classes | None
    products: Products


@dataclass
class Agreement(KeyedAgreement):
    """What a party holds between `Agree` and its last release."""

    measuring: Measuring | None = None
    seeds: set[bytes] = field(default_factory=set)  # that masks were made of: none is used twice


class TiedParty(KeyedParty[Agreement], AlignedParty):
    """One holder of a table, of images or of series of shared people; a person counts once, however many rows it has.

    Guarantee: see the module, and `KeyedParty`.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape → an error, and nothing is
    charged or sent.
    """

    beginnings: ClassVar = Beginnings(Begin, Begun, Agree, Agreed)
    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, *beginnings, Means, Summed, Measure, Measured, Swap, Swapped, Share, Shared,
    )  # fmt: skip

    def __init__(self, name: str, rows: Rows, ledger: Ledger, **more: Any) -> None:
        super().__init__(name, kind_of(rows.schema).roster(rows, several=True), ledger, **more)
        rows.schema.require_public(f"the schema of {name}")
        self.held = rows

    def forget(self) -> None:
        super().forget()
        self._people: ArrayPeople | TablePeople | None = None

    def go_on(self, ask: Ask, agreement: Agreement) -> Reply | None:
        layout, products = self.layout, None if agreement.measuring is None else agreement.measuring.products
        match ask:
            case Means() if agreement.released == MEANS:
                self.hear(ask, agreement)
                return self._means(layout, agreement)
            case Measure() if agreement.released > MEANS and products is None:
                return self._measure(ask, layout, agreement)
            case Swap() if products is not None and not products.done and ask.chunk == products.swapped:
                return products.swap(ask)
            case Share() if products is not None and products.done and agreement.measuring is not None:
                return self._share(ask, layout, agreement, agreement.measuring)
        return None

    # Before anything leaves

    def take_up(self, ask: Begin) -> None:
        self.as_agreed(ask.config, SETTLED)
        schemas = {name: one_kind_of_row(schema_from(schema)) for name, schema in ask.schemas.items()}
        own = schemas.get(self.name)
        if own is None or _public(own) != _public(self.held.schema):
            raise self.other_schema()
        check_settings(ask.config)
        self.renew(ask)
        config = ask.config
        self.layout = Layout(schemas, int(config["features"]), config["target"], config["norms"])

    def needs(self) -> dict[str, Public]:
        people, layout = len(self.aligned), self.layout
        self.enough(people)
        self.budget.warn_of_delta(self.name, people)
        shares = layout.shares(self.begun.config["shares"])
        self.needed = [*needed_multipliers(self.budget, shares)] if self.private else [0.0] * len(shares)
        self._drawable(self.needed)
        self.ledger.afford(ComposedDpEvent([moments_event(each) for each in self.needed]))
        return {
            "people": Public(people, "the size of the intersection, outside ε"),
            "multipliers": Public(self.needed, "computed from the budget and public settings"),
        }

    def _drawable(self, multipliers: Sequence[float]) -> None:
        """Refuse noise that cannot be drawn before anything is charged."""
        for release in range(self.layout.releases):
            self.layout.noise(release, multipliers[release])
        self.layout.norms_noise(multipliers)

    def open(self, ask: Agree) -> Agreement:
        layout = self.layout
        self.enough_noise(ask.multipliers)
        self._drawable(ask.multipliers)
        if ask.keys.keys() != set(layout.names):
            raise MessageError(f"{self.name}: a party's key is missing or new. Nothing was sent.")
        whole(chunk=ask.chunk)
        Ring(ask.bits)
        return Agreement(
            ask, self.lines(ask, shared=self.shared_with([(0, len(self.aligned), layout.names)]))
        )

    def ready(self, agreement: Agreement) -> str:
        return masked_rows(agreement.peers)

    # The releases

    def _means(self, layout: Layout, agreement: Agreement) -> Summed:
        receipt, noise = self._pay(layout, agreement)
        people = self.people
        if isinstance(people, TablePeople):
            return Summed(sums=Paid(torch.zeros(0, dtype=torch.int64), receipt))
        frame, sigma, parts = people.frame, noise.sigmas[self.name, self.name], []
        if loud := layout.norms_noise(agreement.agree.multipliers):
            parts.append(self._noisy(people.lengths(), loud[self.name]))
            frame = pulled_to(frame, parts[0], loud[self.name], sigma)
        parts.append(self._noisy(people.first(frame), sigma))
        return Summed(sums=Paid(torch.cat(parts), receipt))

    def _noisy(self, sums: Tensor, sigma: float) -> Tensor:
        return sums + noise_on(torch.ones_like(sums, dtype=torch.bool), Fraction(sigma), self.rng)

    def _measure(self, ask: Measure, layout: Layout, agreement: Agreement) -> Measured:
        measuring = self._vectors(ask, layout, agreement)
        agreement.seeds |= set(ask.seeds.values())
        agreement.measuring = measuring
        width = 0 if measuring.vectors is None else measuring.vectors.width
        return Measured(width=Public(width, "it follows from the schema and what the server chose"))

    def _vectors(self, ask: Measure, layout: Layout, agreement: Agreement) -> Measuring:
        """Check what is asked for, make the vectors, and begin the products with others."""
        release, agree = agreement.released, agreement.agree
        peers = layout.peers(self.name, release)
        fresh = set(ask.seeds.values())
        if ask.seeds.keys() != set(peers) or fresh & agreement.seeds or len(fresh) < len(peers):
            raise MessageError(
                f"{self.name}: a seed is missing, new or used before. Nothing was charged or sent."
            )
        self._check_ask(ask, layout, release, peers)
        vectors = self._made(ask, layout, release, layout.noise(release, agree.multipliers[release]).scale)
        ring, people = Ring(agree.bits), len(self.aligned)
        own, widths = 0 if vectors is None else vectors.width, layout.peer_widths(release, peers, ask.widths)
        about = what_is_measured(release, centre=ask.centre, radius=ask.radius, basis=ask.basis)
        step = layout.chunk(release, agree.chunk, self._setting("directions"), ring)
        factors = {
            peer: Factor(
                ring,
                mask_seed(ask.seeds[peer], agree.keys, about),
                first=layout.names.index(self.name) < layout.names.index(peer),
                width=own,
                peer_width=widths[peer],
            )
            for peer in peers
        }
        chunks = [(a, min(a + step, people), peers) for a in range(0, people if peers else 0, step)]

        def rows(start: int, stop: int) -> Any:
            return None if vectors is None else vectors.words(start, stop, ring)

        return Measuring(ask, vectors, Products(ring, agreement.channels, factors, rows, chunks))

    def _check_ask(self, ask: Measure, layout: Layout, release: int, peers: tuple[str, ...]) -> None:
        most = self._setting("directions")
        if self.name in layout.frames:
            features = layout.frames[self.name].features
            check_means(None if ask.centre is None else ask.centre[None], 1, features)
            in_range(1, _MOST_RADIUS, radius=ask.radius)
            whole(radius=ask.radius)
            if (ask.basis is None) != (release == JOINT):
                raise self.unexpected(ask)
            if ask.basis is not None:
                check_basis(ask.basis, features)
                in_range(1, most, directions=ask.basis.shape[1])
        if release == CLASSES and self.name not in layout.frames:
            triangles = {k * (k + 1) // 2 for k in range(1, most + 1)}
            told = [*ask.widths.values()]
            if ask.widths.keys() != set(peers) or any(type(w) is not int or w not in triangles for w in told):
                raise MessageError(f"{self.name}: a width is missing or wrong. Nothing was charged or sent.")

    def _made(self, ask: Measure, layout: Layout, release: int, scale: int) -> Numbers | Classes | None:
        """This release's vectors; None where this party has no part in it."""
        people, label = self.people, layout.label
        if isinstance(people, ArrayPeople):
            assert ask.centre is not None
            if ask.basis is None:
                return people.joint(ask.centre, ask.radius, scale)
            basis = torch.zeros(people.frame.features, ask.basis.shape[1], dtype=torch.int64)
            basis[: len(ask.basis)] = ask.basis
            return people.turned(ask.centre, basis, ask.radius, scale)
        if release == JOINT:
            return people.joint(scale)
        return people.classes(label.column) if label is not None and label.holder == self.name else None

    def _share(self, ask: Share, layout: Layout, agreement: Agreement, measuring: Measuring) -> Shared:
        shares = measuring.products.shares(ask.inbox, ask.corrections)
        release = agreement.released
        ring, channels = Ring(agreement.agree.bits), agreement.channels
        receipt, noise = self._pay(layout, agreement)
        blocks: dict[str, Tensor] = {}
        vectors = measuring.vectors
        if release == JOINT and isinstance(vectors, Numbers):
            own = (self.name, self.name)
            sums = vectors.triangle()
            diagonal = on_diagonal(vectors.width)
            blocks[str(layout.blocks.index(own))] = sums + self._noise(diagonal, noise.sigmas[own])
        for peer, share in shares.items():
            block = self._block(layout, peer)
            sums = ring.signed(share)
            diagonal = torch.zeros(sums.shape, dtype=torch.bool)
            if release == CLASSES:
                diagonal = _squared(layout, block, sums)
            noisy = ring.words(sums + self._noise(diagonal, noise.sigmas[block]))
            padded = blind(noisy, [channels[peer]], ring, stream=layout.stream(release, block))
            blocks[str(layout.blocks.index(block))] = ring.signed(padded)
        return Shared(blocks=Paid(blocks, receipt))

    def _noise(self, diagonal: Tensor, sigma: float) -> Tensor:
        """Noise of this scale, and of √2 of it where a diagonal is marked."""
        beside = noise_on(~diagonal, Fraction(sigma), self.rng)
        return beside + noise_on(diagonal, doubled(sigma), self.rng)

    def _block(self, layout: Layout, peer: str) -> Block:
        first, second = sorted((self.name, peer), key=layout.names.index)
        return first, second

    def _pay(self, layout: Layout, agreement: Agreement) -> tuple[Receipt, Noise]:
        """Charge the next release, and end the agreement with the last one."""
        release, agree = agreement.released, agreement.agree
        noise = layout.noise(release, agree.multipliers[release])
        event, name = moments_event(agree.multipliers[release]), _NAMES[release]
        if release == MEANS and layout.norms:
            event = ComposedDpEvent([moments_event(agree.multipliers[-1]), event])
            name = f"how long rows are, {name}"
        what = f"{name} with {agreement.peers}"
        receipt = self.pay(event, what, agreement, of=layout.releases)
        agreement.measuring = None
        return receipt, noise

    def _setting(self, key: str) -> int:
        return int(self.begun.config[key])

    @property
    def people(self) -> ArrayPeople | TablePeople:
        """The shared people: made when they are first needed, and kept."""
        if self._people is None:
            if TABLE.holds(self.held):
                codec = Codec(self.held.schema)
                self._people = TablePeople(codec.codes(self.aligned), codec.sizes)
            else:
                frame = self.layout.frames[self.name]
                self._people = ArrayPeople.of(frame, self.held, places(self.aligned))
        return self._people

    # The state, as it is saved

    def kept(self, agreement: Agreement) -> dict[str, Any]:
        measuring = agreement.measuring
        return {
            "seeds": sorted(agreement.seeds),
            "measure": None if measuring is None else dict(vars(measuring.ask)),
            "products": None if measuring is None else measuring.products.state_dict(),
        }

    def restore(self, agreement: Agreement, held: Mapping[str, Any]) -> None:
        if held["measure"] is not None:
            agreement.measuring = self._vectors(Measure(**held["measure"]), self.layout, agreement)
            agreement.measuring.products.load_state_dict(held["products"])
        agreement.seeds = set(held["seeds"])


def _squared(layout: Layout, block: Block, sums: Tensor) -> Tensor:
    """By class: which cells stand on the diagonal of the array's triangle; the array's side may be either."""
    array = 0 if block[0] in layout.frames else 1
    d = (round((8 * sums.shape[array] + 1) ** 0.5) - 1) // 2
    marked = on_diagonal(d)
    return (marked[:, None] if array == 0 else marked[None, :]).expand(sums.shape).clone()


def _public(schema: Any) -> Any:
    """What of a schema has to be as a holder knows it."""
    return schema.columns if hasattr(schema, "columns") else public_of(schema)
