"""Products between two holders without a dealer: A's rows under LWE encryption, added
up by B.

Regev, "On lattices, learning with errors" (STOC 2005), for the encryption; Henzinger et
al., "One server for the price of two" (SimplePIR, USENIX Security 2023), §4, for the
shape: one public matrix from a seed, and a key for each column; Lindner, Peikert,
"Better key sizes for LWE-based encryption" (CT-RSA 2011), for encryptions of zero.
Paper → code: q → 2⁶⁴, n → `dimension`, A → `_matrix`, p → 2^`bits`, Δ = q/p.

A draws a key S (d, a) evenly of −4 to 4 and errors E of a cut discrete Gaussian, and
sends one row for each person, C = M·S + E + Δ·X, where M (people, d) is public. For
each of its b levels B adds up the rows of M and of C over the people who have it: u and
v with v − u·S = Δ·Σx + Σe. All that A may learn of u and v is its share of Σx, so B
adds to each level

    a zero        r·M₀ + e′ to u and r·K + e″ to v, where K = M₀·S + E₀ is A's public
                  key, M₀ (d, d) is public, r is drawn as S, e′ and e″ are errors
    the flood F   discrete Gaussian noise on v, of 2^`flood`
    the mask w    on v, uniform modulo q

and A finds y = Δ·Σx + w + L + F with L = Σe + r·E₀ − e′·S + e″. It adds a flood F′ of
its own. Its share is ⌊(y + F′)/Δ⌋, and −⌊w/Δ⌋ is B's. They add up to Σx + κ, where κ is
what L + F + F′ + (w mod Δ) carries over: noise of scale `Room.spread`.

*Parameters.* `STANDARD` has the largest q by dimension at 128 bits against classical
attacks, for ternary secrets and errors of 3.2, whatever the number of rows: q = 2⁶⁴
takes d = 2,421, between two lines. Wider secrets are no easier. r·M₀ + e′ has the same
dimension, secret and errors.

*A holder that departs from this* can have the other release what it likes of a secret:
a B that answers u + Δ·2^k·e_j in place of u moves A's share by 2^k·S_j, and of a K of
A's choice B's share holds r·K. What is released of a column of S is one number of t
bits for each level that anybody answers with, and of a row of r one for each of a
columns. A number of t bits settles t/log₂ 9 of the secret's entries: leaving out those
that it tells exactly makes a dimension smaller by one each (Dachman-Soled, Ducas, Gong,
Rossi, "LWE with side information", CRYPTO 2020, §4), and less exact hints are worth
less. So `dimension_for` adds as many to 2,421 as all of these numbers can settle: the
rows behind the key stay hidden, whatever either sends.

*A's view* (or that of A and the server) is u, v and, by what is released, κ. v is
uniform because w is, **whatever A sent in place of C and K**; under LWE u is uniform,
too, since r is B's. κ follows from y, F′ and L + F. Let a person at B come or go, and
take A to see L + F itself:

 1. Replace L + F by Σe + F: what L holds of r and e′ shifts Gaussian noise by some h.
 2. Nothing else holds r or e′ now: under LWE u is uniform, whoever was added up.
 3. Σe loses or gains e_i at each level of the person, as often as its row y at B says:
    a shift of at most 6σ·√a·‖y‖. Of 0/1 ‖y‖ is the root of the person's levels.
 4. Back through 2 and 1 for the other table.

So A's view is that of Gaussian noise shifted by 2‖h‖ + 6σ√a·‖y‖ in L2, and costs
that (`Room.event`): it is charged, not argued away. *h is short.* (1 + 2 cosh t)/3 ≤
e^(t²/3), and a number even in −4 to 4 is z + 3z′ of two that are even in −1 to 1;
discrete Gaussian errors have a moment generating function of at most e^(σ²t²/2) (cut
ones, too: cosh grows). So a cell of h is sub-Gaussian with τ² = ω‖E₀_j‖² + σ²‖S_j‖² +
σ² and ω = 20/3, of which A draws keys until the norms are as usual (`_KEY`,
`_KEY_ERRORS`; the first ones are, but for once in 2⁴⁰). Levels are independent, and of
the a cells of a level E exp(y Σh²/(2aτ²)) ≤ (1 − y)^(−½) by Hölder; so with y = ½
P(‖h‖² > 2 ln 2·a·τ²·(2·128 + b)) < 2⁻¹²⁸, as seldom as a key is guessed.

*B's view* (or that of B and the server) is C, K and κ. Under LWE C and K are uniform
words, so that a simulator draws them. κ follows from w, F and L + F′: take B to see L +
F′ itself, replace it by F′, then C and K by uniform words; nothing but the released
counts holds X now; and back. So it costs no more than Gaussian noise shifted by 2‖L‖,
where ‖L‖ ≤ ‖h‖ + ‖Σe‖, and by Hsu, Kakade and Zhang ("A tail inequality for quadratic
forms of subgaussian random vectors", 2012) ‖Σe‖² ≤ σ²·people·‖y‖²·(a + 2√(a·t) + 2t)
but for once in e^t = 2¹²⁸: the a columns of E are independent, and of one column the
covariance of b sums has a trace of at most σ²·people·‖y‖².

*A flood* is put together of noise that can be drawn: for g, h discrete Gaussians of
scale s and 4·2^k, 2^k·g + h is one of variance 4^k·s² + 16·4^k but for a factor of 1 ±
10⁻¹³⁰ in every probability (Poisson's formula for a scale of about 4, as in `moments`).

Guarantee: as above, `Room.event` for a person at both. Everything but w, r, e′, e″ and
F follows from A's secret, from what both sides name the rows by (`place`), and F′ from
the answer: the same rows are encrypted to the same bytes, the same answer gives the
same share, and no two rows under one key share a row of M.
Edges: so many people that counts would be off by too much → ConfigError.
An A that departs learns nothing from an answer, and a B nothing from C. Either can
spoil counts, and have released ones tell up to t bits each of the other's rows: with
numbers other than 0 and 1 in its rows, here as under masks that are dealt, a person
moves them by more than noise is for. Nothing here proves that C or an answer is what it
should be.
"""

import hashlib
import hmac
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent
from numpy.typing import NDArray

from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.privacy.noise import DiscreteGaussianNoise, Rng, SecureRng
from understudy.privacy.noise.ciphers import keystream
from understudy.privacy.secure.ring import Bits, Ring, Words

Small = NDArray[np.int8]

WORDS = Ring(64)  # q
WHOLE = (np.dtype(np.bool_), np.dtype(np.int64))
# Dimension: the most bits of q. HomomorphicEncryption.org, "Homomorphic encryption
# standard" (2018), Table 1: 128 bits, classical, ternary secret, errors of 3.2.
STANDARD = {1024: 27, 2048: 54, 4096: 109, 8192: 218}
_MULTIPLE = 64  # a dimension that BLAS likes
_SECRET = 4  # of secrets, the largest number
_SECRET_VARIANCE = 20 / 3  # ω
ERROR = 3.2  # σ of errors: the standard's
CUT = 19  # 6σ
_KEY = 7.9  # ‖S_j‖² ≤ 7.9·d, where ω·d is usual: ten deviations
_KEY_ERRORS = 1.3  # ‖E₀_j‖² ≤ 1.3·d·σ², where d·σ² is usual: ten deviations
_SEED = b"understudy lwe "
_RARE = 128  # bits: as seldom as a key is guessed
MOST = 2.0**-40  # zCDP of one answer: ε moves by less than 2⁻¹² of itself
# The most that counts may be off by, in deviations: the noise of a release for so many
# people is wider by far than a count of 4.
_WIDEST = 4.0
MOST_BYTES = 1 << 29  # of one message: half of what a contract allows
_BLOCK = 1 << 10  # rows of M at a time: 27 MB at d = 3,328
_DRAWN = 20  # log2 of the largest noise that is drawn in one
_ABOVE = 1 + 2.0**-30


def dearest_answer() -> DpEvent:
    """What an answer costs at most."""
    return GaussianDpEvent(1 / math.sqrt(2 * MOST))


def least_dimension(bits: int) -> int:
    """The dimension that a q of so many bits takes, between two lines of `STANDARD`."""
    lines = list(STANDARD.items())
    for (low, fewer), (high, more) in pairwise(lines):
        if fewer <= bits <= more:
            return math.ceil(low + (high - low) * (bits - fewer) / (more - fewer))
    raise ConfigError(f"there is no parameter set for {bits} bits.")


def dimension_for(bits: int, told: int) -> int:
    """The dimension at which a secret keeps its 128 bits although `told` released
    numbers of so many bits may each tell of it whatever the other holder likes.
    """
    settled = told * bits / math.log2(2 * _SECRET + 1)
    return math.ceil((least_dimension(64) + settled) / _MULTIPLE) * _MULTIPLE


@dataclass(frozen=True)
class Room:
    """What fits into a word beside counts modulo 2^`bits`, of fewer than 2^(bits − 1)
    people, for A's columns and B's levels (`widths`).

    Edges: no room for a flood that hides enough, or messages above `MOST_BYTES` →
    ConfigError.
    """

    bits: int
    widths: tuple[int, int]
    dimension: int
    # of B's rows, at most, in L2: of 0/1 it is the root of their levels
    length: float = 0.0
    parts: int = (
        1  # of a sum are one person: whole numbers below 2¹⁰ multiply to so many
    )

    def __post_init__(self) -> None:
        # of an answer, or of a public key
        largest = 8 * max(self.widths) * (self.dimension + max(self.widths))
        if largest > MOST_BYTES:
            raise ConfigError(
                f"encrypted products of {max(self.widths):,} levels take messages of "
                f"{largest >> 20:,} MiB, and {MOST_BYTES >> 20:,} are the most. Take "
                "fewer levels, or dealt products.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )
        if self.spread > _WIDEST * self.parts:
            own_width, other_width = self.widths
            raise ConfigError(
                f"encrypted products of {own_width:,} and {other_width:,} levels with "
                f"counts of {self.bits} bits do not fit into 64 bits: what hides the "
                "errors at 2^-40 in zCDP would make counts wrong. Take fewer levels, "
                "or dealt "
                "products.",
                effect=Effect.NOTHING_CHARGED_OR_SENT,
            )

    @property
    def step(self) -> int:
        """Δ."""
        return 1 << (64 - self.bits)

    @property
    def spread(self) -> float:
        """What counts are off by: the deviation of κ, at most. A carry is a rounding of
        L and both floods by a uniform w: of a mean square of E N²/Δ² and, where that is
        small, of E|N|/Δ.
        """
        floods = 4.0**self.flood + 4.0**self.own_flood
        zeros = 2 * _SECRET_VARIANCE * self.dimension + 1
        errors = ERROR**2 * (self.holds * self.parts + zeros)
        wide = math.sqrt(floods + errors) * _ABOVE / self.step
        return math.sqrt(wide**2 + wide)

    @property
    def flood(self) -> int:
        """log2 of the scale of B's flood: the least that hides `shift` at the price."""
        return _flood_for(self.shift)

    @property
    def own_flood(self) -> int:
        """log2 of the scale of A's flood: the least that hides `hint` at the price."""
        return _flood_for(self.hint)

    @property
    def shift(self) -> float:
        """2‖h‖ + 6σ√a·‖y‖, in L2, for a person's row y at B."""
        own_width, _ = self.widths
        person = CUT * math.sqrt(own_width) * self._length
        return (2 * self._zeros + person) * _ABOVE

    @property
    def hint(self) -> float:
        """2‖L‖, in L2."""
        own_width, _ = self.widths
        t = _RARE * math.log(2)
        factor = own_width + 2 * math.sqrt(own_width * t) + 2 * t
        return (
            2
            * (self._zeros + ERROR * self._length * math.sqrt(self.holds * factor))
            * _ABOVE
        )

    @property
    def _length(self) -> float:
        return self.length or math.sqrt(self.widths[1])

    @property
    def _zeros(self) -> float:
        """‖h‖, at most."""
        own_width, other_width = self.widths
        each = _SECRET_VARIANCE * _KEY_ERRORS + _KEY
        cell = ERROR**2 * (self.dimension * each + 1)
        return math.sqrt(2 * math.log(2) * own_width * cell * (2 * _RARE + other_width))

    @property
    def rho(self) -> float:
        """What both views together cost a person, in zCDP; see `moments` for why floods
        are whole numbers all the same.
        """
        return sum(
            shift**2 / (2 * (4.0**flood - 9))
            for shift, flood in (
                (self.shift, self.flood),
                (self.hint, self.own_flood),
            )
        )

    @property
    def event(self) -> DpEvent:
        """What a person pays for one answer."""
        return GaussianDpEvent(1 / math.sqrt(2 * self.rho))

    @property
    def holds(self) -> int:
        """The most people."""
        return ((1 << (self.bits - 1)) - 1) // self.parts


def _flood_for(shift: float) -> int:
    """log2 of the least scale of a flood that hides this shift at half of `MOST`."""
    variance = shift**2 / MOST + 9
    return math.ceil(math.log2(variance) / 2)


class Encryptor:
    """A's side. `secret`: 32 bytes that are A's alone, of one session and stage.
    `public`: what M follows from, of the same. One encryption of its rows serves every
    B, whose `Room` has the same bits and columns.

    Guarantee: see the module.
    Edges: a place that was encrypted before → MessageError, since other rows under the
    same words of M would show the difference.
    """

    def __init__(
        self,
        secret: bytes,
        public: bytes,
        bits: int,
        width: int,
        dimension: int,
    ) -> None:
        self.bits = bits
        self.width = width
        self.dimension = dimension
        self._secret = secret
        self._public = public
        self._places = set[bytes]()
        self._key: Small | None = self._drawn(_secret, b"key", most=_KEY * dimension)

    @property
    def key(self) -> Small:
        """S, until `forget`."""
        if self._key is None:
            raise MessageError("the key is gone.", effect=Effect.NOTHING_COMPUTED)
        return self._key

    def public_key(self) -> Words:
        """K = M₀·S + E₀: (d, a)."""
        most = _KEY_ERRORS * self.dimension * ERROR**2
        errors = self._drawn(draw_errors, b"public key", most=most)
        return self._times(_zeros(self._public), self.dimension) + WORDS.words(errors)

    def encrypt(self, place: bytes, rows: Bits | NDArray[np.int64]) -> Words:
        """C = M·S + E + Δ·X for the rows at this place: (n, a)."""
        if rows.dtype not in WHOLE or rows.ndim != 2 or rows.shape[1] != self.width:
            raise MessageError(
                f"rows of {self.width} columns of whole numbers were due, not "
                f"{rows.shape} of {rows.dtype}.",
                effect=Effect.NOTHING_SENT,
            )
        if place in self._places:
            raise MessageError("these rows were sent.", effect=Effect.NOTHING_SENT)
        self._places.add(place)
        words = self._times(_rows(self._public, place), len(rows))
        errors = draw_errors(_derived(self._secret, b"rows " + place), rows.shape)
        words += WORDS.words(errors)
        words += WORDS.words(rows) * np.uint64(2 ** (64 - self.bits))
        return words

    def share(self, data: bytes, room: Room) -> Words:
        """Its share of every count, (a, b), modulo 2^bits, from B's answer.
        Edges: an answer of another size → MessageError.
        """
        words = self.masked(data, room.widths[1])
        seed = _derived(self._secret, b"flood " + hashlib.sha256(data).digest())
        words += WORDS.words(draw_flood(room.own_flood, words.shape, SecureRng(seed)))
        return (words >> np.uint64(64 - self.bits)).T

    def masked(self, data: bytes, levels: int) -> Words:
        """y = v − u·S. (b, a)."""
        words = WORDS.from_bytes(data, levels, self.dimension + self.width)
        sums = words[:, : self.dimension]
        return words[:, self.dimension :] - _right(sums, self.key)

    def forget(self) -> None:
        """Overwrite the key."""
        if self._key is not None:
            self._key.fill(0)
        self._key = None
        self._secret = b""

    def _drawn(
        self, draw: Callable[[bytes, tuple[int, ...]], Small], what: bytes, most: float
    ) -> Small:
        """(d, a) numbers; a column whose squares add up to more is drawn again."""
        shape = (self.dimension, self.width)
        drawn = np.zeros(shape, dtype=np.int8)
        pending = np.ones(self.width, dtype=np.bool_)
        tries = 0
        while pending.any():
            seed = _derived(self._secret, b"%s %d" % (what, tries))
            drawn[:, pending] = draw(seed, shape)[:, pending]
            pending = np.square(drawn, dtype=np.int64).sum(0) > most
            tries += 1
        return drawn

    def _times(self, seed: bytes, rows: int) -> Words:
        product = np.empty((rows, self.width), dtype=WORDS.dtype)
        for at, block in _matrix(seed, rows, self.dimension):
            product[at] = _right(block, self.key)
        return product


class Adder:
    """B's side, for the rows of several A by name: it adds up, and answers each once.
    `public`: as they have it.
    """

    def __init__(self, public: bytes, rooms: Mapping[str, Room]) -> None:
        self.rooms = rooms
        self._public = public
        self._sums = {
            name: np.zeros((room.widths[1], room.dimension + room.widths[0]), np.uint64)
            for name, room in rooms.items()
        }

    def add(
        self, place: bytes, sent: Mapping[str, Words], rows: Bits | NDArray[np.int64]
    ) -> None:
        """Add up the words of these people, by sender, over each of their levels: as
        often as their rows say.
        """
        for name, words in sent.items():
            own_width, other_width = self.rooms[name].widths
            if words.shape != (len(rows), own_width) or rows.shape[1:] != (
                other_width,
            ):
                raise MessageError(
                    f"{len(rows):,} encrypted rows of {own_width} columns were due, "
                    f"not {words.shape}.",
                    effect=Effect.NOTHING_COMPUTED,
                )
        if not sent:
            return
        dimension = self.rooms[next(iter(sent))].dimension
        for at, block in _matrix(_rows(self._public, place), len(rows), dimension):
            levels = rows[at].T
            matrix_sums = _left_product(levels, block)
            for name, words in sent.items():
                self._sums[name][:, :dimension] += matrix_sums
                self._sums[name][:, dimension:] += _left_product(levels, words[at])

    def answer(self, name: str, public_key: Words, rng: Rng) -> tuple[bytes, Words]:
        """What this A is sent, and B's share of every count, (a, b), modulo 2^bits.
        `rng`: for this answer alone.
        """
        room = self.rooms[name]
        own_width, other_width = room.widths
        if public_key.shape != (room.dimension, own_width):
            raise MessageError("a public key was due.", effect=Effect.NOTHING_COMPUTED)
        words = self._sums[name].copy()
        sums = words[:, : room.dimension]
        sealed = words[:, room.dimension :]
        r = _secret(rng.bytes(32), (other_width, room.dimension))
        for at, block in _matrix(_zeros(self._public), room.dimension, room.dimension):
            sums += _left_product(r[:, at], block)
        sealed += _left_product(r, public_key)
        words += WORDS.words(draw_errors(rng.bytes(32), words.shape))
        sealed += WORDS.words(draw_flood(room.flood, sealed.shape, rng))
        mask = draw_mask((other_width, own_width), rng)
        sealed += mask
        r.fill(0)
        share = np.uint64(0) - (mask >> np.uint64(64 - room.bits))
        share &= np.uint64(2**room.bits - 1)
        return WORDS.to_bytes(words), share.T

    def state_dict(self) -> dict[str, Any]:
        return {name: WORDS.signed(sums) for name, sums in self._sums.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._sums = {name: WORDS.words(sums) for name, sums in state.items()}


def draw_errors(seed: bytes, shape: tuple[int, ...]) -> Small:
    """Errors of the discrete Gaussian of scale σ, cut at 6σ, from 32 bytes that are for
    them alone. Each probability holds to 2⁻⁶⁴.
    """
    words = keystream(seed, 0, 8 * math.prod(shape)).view("<u8")
    places = np.searchsorted(_thresholds(), words, side="right")
    return (places - CUT).astype(np.int8).reshape(shape)


def draw_mask(shape: tuple[int, ...], rng: Rng) -> Words:
    """Uniform words, which hide whatever they are added to."""
    return WORDS.uniform(rng.bytes(32), 0, *shape)


def draw_flood(scale: int, shape: tuple[int, ...], rng: Rng) -> NDArray[np.int64]:
    """Discrete Gaussian noise of scale 2^`scale`; see the module."""
    shift = max(0, scale - _DRAWN)
    noise = DiscreteGaussianNoise(Fraction(2 ** (scale - shift)))
    drawn = noise.draw(math.prod(shape), rng).numpy().reshape(shape)
    if not shift:
        return drawn
    return (drawn << shift) + draw_flood(shift + 2, shape, rng)


@cache
def _thresholds() -> NDArray[np.uint64]:
    """2⁶⁴·P(error ≤ k) for k from −6σ up to below 6σ."""
    with localcontext() as context:
        context.prec = 50
        variance = Decimal(str(ERROR)) ** 2
        weights = [
            (-(Decimal(k) ** 2) / (2 * variance)).exp() for k in range(-CUT, CUT + 1)
        ]
        total = sum(weights)
        below = Decimal(0)
        thresholds = []
        for weight in weights[:-1]:
            below += weight
            thresholds.append(int(below / total * 2**64))
    return np.array(thresholds, dtype=np.uint64)


def _secret(seed: bytes, shape: tuple[int, ...]) -> Small:
    """Evenly −4 to 4."""
    drawn = SecureRng(seed).below(2 * _SECRET + 1, math.prod(shape), "cpu")
    return np.asarray(drawn - _SECRET, dtype=np.int8).reshape(shape)


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.digest(key, _SEED + purpose, "sha256")


def _rows(public: bytes, place: bytes) -> bytes:
    """What the rows of M at this place follow from."""
    return _derived(public, b"rows " + place)


def _zeros(public: bytes) -> bytes:
    """What M₀ follows from."""
    return _derived(public, b"zeros")


def _matrix(seed: bytes, rows: int, dimension: int) -> Iterator[tuple[slice, Words]]:
    """So many rows of M, block by block: uniform words, from a public seed."""
    for number, start in enumerate(range(0, rows, _BLOCK)):
        at = slice(start, min(start + _BLOCK, rows))
        yield at, WORDS.uniform(seed, number, at.stop - start, dimension)


# Products modulo 2⁶⁴ with numbers of −4 to 4: halves of 32 bits are doubles, whose sums
# are exact up to 2¹⁸ terms; and up to `_BLOCK` terms with numbers below 2¹⁰


def _right(words: Words, small: Small) -> Words:
    """(n, k), (k, m) → (n, m)."""
    factor = small.astype(np.float64)
    low, high = _halves(words)
    return _joined(low @ factor, high @ factor)


def _left_product(small: Small | Bits | NDArray[np.int64], words: Words) -> Words:
    """(m, n), (n, k) → (m, k)."""
    total = np.zeros((len(small), words.shape[1]), dtype=WORDS.dtype)
    for start in range(0, len(words), _BLOCK):
        rows = slice(start, start + _BLOCK)
        factor = small[:, rows].astype(np.float64)
        low, high = _halves(words[rows])
        total += _joined(factor @ low, factor @ high)
    return total


def _halves(words: Words) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    halves = np.ascontiguousarray(words).view("<u4").reshape(*words.shape, 2)
    return halves[..., 0].astype(np.float64), halves[..., 1].astype(np.float64)


def _joined(low: NDArray[np.float64], high: NDArray[np.float64]) -> Words:
    joined = high.astype(np.int64).view(np.uint64) << np.uint64(32)
    joined += low.astype(np.int64).view(np.uint64)
    return joined
