"""A holder's side of the joint moments: it checks, masks, multiplies, pays, adds noise, and releases.

The arithmetic and the bounds stand in `privacy.secure.tied`, the blocks in `layout`, the people's vectors in `vectors`.

Guarantee: before a release a party charges its ledger for what one person, with the rows at all parties, moves in it,
under noise that this party computes from the agreed multiplier, which is never below what its own budget needs. To
every block that its rows are in it adds all of that noise, so that ε holds against the server and against every other
party. What a server chooses between two releases (centres, radii, directions) changes no sensitivity. What leaves
earlier, masked and sealed, is uniform to whoever can read it and enters the ledger at no price.
Edges: the server deals the masks, so it must not pool what it knows with a holder (docs/secure_products.md).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import torch
from dp_accounting import ComposedDpEvent
from torch import Tensor

from understudy.check import in_range, not_negative, whole
from understudy.data.codec import Codec
from understudy.data.described import Rows, one_kind_of_row, schema_from
from understudy.data.frame import MOST_FEATURES
from understudy.data.table import Table
from understudy.data.triangles import on_diagonal
from understudy.errors import ConfigError, MessageError, PartyError, PrivacyError, SchemaError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger, Receipt
from understudy.privacy.noise import Rng
from understudy.privacy.secure import Channel, Factor, KeyPair, Ring, blind, connect, fingerprint, noise_on
from understudy.privacy.secure.moments import moments_event, needed_multipliers
from understudy.protocols.core import (
    AlignedParty,
    Ask,
    Keep,
    Message,
    Paid,
    Products,
    Public,
    Reply,
    Swap,
    Swapped,
    confirm,
    greetings,
    told_alike,
)
from understudy.protocols.core.roster import places, roster
from understudy.protocols.moments.party import doubled, public_of
from understudy.protocols.moments.stages import MOST_DIRECTIONS, check_basis, check_means
from understudy.protocols.tied.layout import CLASSES, JOINT, MEANS, Block, Layout, Noise
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
)
from understudy.protocols.tied.vectors import ArrayPeople, Classes, Numbers, TablePeople

SETTLED = ("features", "directions", "shares", "target", "private")
_MOST_RADIUS = 1 << 20
_NAMES = ("means and histograms", "second moments of all rows", "second moments by class")


@dataclass
class Measuring:
    """A release that is being made."""

    ask: Measure
    vectors: Numbers | Classes | None
    products: Products


@dataclass
class Agreement:
    """What a party holds between `Agree` and its last release. It is dropped with that, keys and all."""

    agree: Agree
    channels: dict[str, Channel]
    released: int = 0
    measuring: Measuring | None = None
    seeds: set[bytes] = field(default_factory=set)  # that masks were made of: none is used twice


class TiedParty(AlignedParty):
    """One holder of a table, of images or of series of shared people, a row of each person.

    Guarantee: see the module. Each ask is answered once and in turn. From `Begin` to the last release the state is not
    saved on the server's word (`Keep`): a server that could return to it would have two releases under the same pads.
    Whatever state it is put back to, a release is charged once under its keys.
    Edges: another schema, less noise than the budget needs, a message of a wrong shape, repeated or out of turn → an
    error, and nothing is charged or sent; a session that is lost begins again with `Begin` and new keys.
    """

    messages: ClassVar[tuple[type[Message], ...]] = (
        *AlignedParty.messages, Begin, Begun, Agree, Agreed, Means, Summed, Measure, Measured, Swap, Swapped, Share,
        Shared,
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        rows: Rows,
        ledger: Ledger,
        *,
        run: str,
        budget: Budget,
        rng: Rng | None = None,
        folder: Path | None = None,
        agreed: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name, roster(rows), ledger, run=run, rng=rng, folder=folder)
        rows.schema.require_public(f"the schema of {name}")
        self.held, self.budget, self.terms = rows, budget, dict(agreed or {})
        self.multipliers: tuple[float, ...] = ()
        self.forget()

    def forget(self) -> None:
        self.begun: Begin | None = None
        self.layout: Layout | None = None
        self.pair: KeyPair | None = None
        self.agreement: Agreement | None = None
        self._people: ArrayPeople | TablePeople | None = None

    def answer(self, ask: Ask) -> Reply:
        if isinstance(ask, Keep) and self.pair is not None:
            raise self.unexpected(ask)
        return super().answer(ask)

    def respond(self, ask: Ask) -> Reply:
        layout, agreement = self.layout, self.agreement
        if isinstance(ask, Begin):
            return self._begin(ask)
        if layout is None or self.pair is None:
            raise self.unexpected(ask)
        if isinstance(ask, Agree) and agreement is None:
            return self._agree(ask, layout)
        if agreement is None:
            raise self.unexpected(ask)
        products = None if agreement.measuring is None else agreement.measuring.products
        match ask:
            case Means() if agreement.released == MEANS:
                return self._means(ask, layout, agreement)
            case Measure() if agreement.released > MEANS and products is None:
                return self._measure(ask, layout, agreement)
            case Swap() if products is not None and not products.done and ask.chunk == products.swapped:
                return products.swap(ask)
            case Share() if products is not None and products.done and agreement.measuring is not None:
                return self._share(ask, layout, agreement, agreement.measuring)
        raise self.unexpected(ask)

    # Before anything leaves

    def _begin(self, ask: Begin) -> Begun:
        layout = self._take_up(ask)
        people, budget, private = len(self.aligned), self.budget, bool(ask.config["private"])
        if people < 2:
            raise PartyError(f"{self.name}: {people} people are too few to count. Nothing was charged.")
        budget.warn_of_delta(self.name, people)
        shares = tuple(map(float, ask.config["shares"]))[: layout.releases]
        self.multipliers = needed_multipliers(budget, shares) if private else (0.0,) * len(shares)
        for release, multiplier in enumerate(self.multipliers):
            layout.noise(release, multiplier)  # refused before anything is charged
        self.ledger.afford(ComposedDpEvent([moments_event(each) for each in self.multipliers]))
        self.pair = KeyPair(self._fresh())
        return Begun(
            people=Public(people, "the size of the intersection, outside ε"),
            multipliers=Public(list(self.multipliers), "computed from the budget and public settings"),
            budget=Public(asdict(budget) if private else None, "the holder's own choice"),
            noise=self.stated_noise(),
            key=Public(self.pair.public, "a fresh public key"),
        )

    def _take_up(self, ask: Begin) -> Layout:
        config = self._as_agreed(ask.config)
        schemas = {name: one_kind_of_row(schema_from(schema)) for name, schema in ask.schemas.items()}
        own = schemas.get(self.name)
        if own is None or _public(own) != _public(self.held.schema):
            raise SchemaError(f"{self.name}: the run is about another schema. Nothing was charged or sent.")
        check_settings(config)
        self.forget()
        self.layout = Layout(schemas, int(config["features"]), config["target"])
        self.begun = ask
        return self.layout

    def _as_agreed(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings, held to what the holder knows by itself."""
        for key in SETTLED:
            if key not in config:
                raise MessageError(f"{self.name}: the settings lack {key}. Nothing was charged or sent.")
        for key, value in self.terms.items():
            told = tuple(config[key]) if isinstance(config[key], list) else config[key]
            if told != value:
                raise MessageError(
                    f"{self.name}: {key}={told} was asked for, and {value} was agreed to. "
                    "Nothing was charged or sent."
                )
        return config

    def _agree(self, ask: Agree, layout: Layout) -> Agreed:
        agreement, mark = self._open(ask, layout), fingerprint(ask.keys)
        self._charge(
            f"masked rows for {', '.join(agreement.channels)}, sealed: they tell nothing, outside ε; keys {mark}"
        )
        self.agreement = agreement
        return Agreed(
            fingerprint=Public(mark, "a hash of public keys"),
            outbox=Public(greetings(agreement.channels, ask.keys), "a word about public keys, sealed"),
        )

    def _open(self, ask: Agree, layout: Layout) -> Agreement:
        """Check what was agreed, and derive lines from it."""
        if self.begun is None or self.pair is None:
            raise self.unexpected(ask)
        if len(ask.multipliers) != len(self.multipliers):
            raise MessageError(
                f"{self.name}: {len(self.multipliers)} scales of noise were due. Nothing was sent."
            )
        for release, (asked, least) in enumerate(zip(ask.multipliers, self.multipliers, strict=True)):
            not_negative(multiplier=asked)
            if asked < least:
                raise PrivacyError(
                    f"{self.name}: a noise multiplier of {asked:g} was asked for, but its budget needs {least:g}. "
                    "Nothing was charged or sent."
                )
            layout.noise(release, asked)
        if ask.keys.keys() != set(layout.names):
            raise MessageError(f"{self.name}: a party's key is missing or new. Nothing was sent.")
        whole(chunk=ask.chunk)
        context = told_alike(self.run, self.begun, ask)
        Ring(ask.bits)
        return Agreement(ask, connect(self.name, self.pair, ask.keys, context=context))

    # The releases

    def _means(self, ask: Means, layout: Layout, agreement: Agreement) -> Summed:
        confirm(agreement.channels, agreement.agree.keys, ask.inbox)
        receipt, noise = self._pay(layout, agreement)
        people = self.people
        if isinstance(people, TablePeople):
            return Summed(sums=Paid(torch.zeros(0, dtype=torch.int64), receipt))
        sums = people.first()
        sigma = Fraction(noise.sigmas[self.name, self.name])
        noisy = sums + noise_on(torch.ones_like(sums, dtype=torch.bool), sigma, self.rng)
        return Summed(sums=Paid(noisy, receipt))

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
        step = layout.chunk(release, agree.chunk, self._setting("directions"), ring)
        factors = {
            peer: Factor(
                ring,
                ask.seeds[peer],
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
            check_means(self.name, None if ask.centre is None else ask.centre[None], 1, features)
            in_range(1, _MOST_RADIUS, radius=ask.radius)
            whole(radius=ask.radius)
            if (ask.basis is None) != (release == JOINT):
                raise self.unexpected(ask)
            if ask.basis is not None:
                check_basis(self.name, ask.basis, features)
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
        receipt = self.ledger.charge(
            moments_event(agree.multipliers[release]),
            run=self.run,
            what=f"{_NAMES[release]} with {', '.join(agreement.channels)}; keys {fingerprint(agree.keys)}",
            once=True,  # also for a server that puts this party back to before it: pads are for one release
        )
        agreement.released += 1
        agreement.measuring = None
        if agreement.released == layout.releases:
            self.agreement = self.pair = None  # a further release takes new keys, and is charged again
        return receipt, noise

    def _setting(self, key: str) -> int:
        return 0 if self.begun is None else int(self.begun.config[key])

    @property
    def people(self) -> ArrayPeople | TablePeople:
        """The shared people: made when they are first needed, and kept."""
        if self._people is None and self.layout is not None:
            if isinstance(self.held, Table):
                codec = Codec(self.held.schema)
                self._people = TablePeople(codec.codes(self.aligned), codec.sizes)
            else:
                values = self.held.values[places(self.aligned)]
                self._people = ArrayPeople.of(self.layout.frames[self.name], values)
        if self._people is None:
            raise PartyError(f"{self.name}: nothing was begun. Nothing was computed or sent.")
        return self._people

    # The state, as it is saved

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self.begun is not None and self.pair is not None:
            state["begun"] = {
                "ask": asdict(self.begun), "secret": self.pair.secret, "multipliers": list(self.multipliers),
            }  # fmt: skip
        if (agreement := self.agreement) is not None:
            measuring = agreement.measuring
            state["agreement"] = {
                "ask": asdict(agreement.agree),
                "released": agreement.released,
                "seeds": sorted(agreement.seeds),
                "channels": {peer: line.state_dict() for peer, line in agreement.channels.items()},
                "measure": None if measuring is None else dict(vars(measuring.ask)),
                "products": None if measuring is None else measuring.products.state_dict(),
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.forget()
        if (begun := state.get("begun")) is None:
            return
        layout = self._take_up(Begin(**begun["ask"]))
        self.pair, self.multipliers = KeyPair(begun["secret"]), tuple(begun["multipliers"])
        if (held := state.get("agreement")) is not None:
            self.agreement = agreement = self._open(Agree(**held["ask"]), layout)
            agreement.released = int(held["released"])
            if held["measure"] is not None:
                agreement.measuring = self._vectors(Measure(**held["measure"]), layout, agreement)
                agreement.measuring.products.load_state_dict(held["products"])
            agreement.seeds = set(held["seeds"])
            for peer, line in agreement.channels.items():
                line.load_state_dict(held["channels"][peer])


def _squared(layout: Layout, block: Block, sums: Tensor) -> Tensor:
    """By class: which cells stand on the diagonal of the array's triangle; the array's side may be either."""
    array = 0 if block[0] in layout.frames else 1
    d = (round((8 * sums.shape[array] + 1) ** 0.5) - 1) // 2
    marked = on_diagonal(d)
    return (marked[:, None] if array == 0 else marked[None, :]).expand(sums.shape).clone()


def _public(schema: Any) -> Any:
    """What of a schema has to be as a holder knows it."""
    return schema.columns if hasattr(schema, "columns") else public_of(schema)


def check_settings(config: Mapping[str, Any]) -> None:
    """Settings by which noise has a bound. Edges: any other → ConfigError, and nothing was charged."""
    whole(features=config["features"], directions=config["directions"])
    in_range(1, MOST_FEATURES, features=config["features"])
    in_range(1, MOST_DIRECTIONS // 4, directions=config["directions"])
    if type(config["private"]) is not bool:
        raise ConfigError(f"private is true or false, not {config['private']!r}. Nothing was charged.")
    shares = config["shares"]
    if not isinstance(shares, tuple | list) or len(shares) != 3:
        raise ConfigError(f"shares are three, one for each release, not {shares!r}.")
    in_range(0.02, 0.9, **{f"share {place}": share for place, share in enumerate(shares, 1)})
    if config["target"] is not None and not isinstance(config["target"], str):
        raise ConfigError(f"target names a column of a table, not {config['target']!r}.")
