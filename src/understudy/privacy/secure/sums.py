"""Sums of which the server sees the total alone, products in two shares, and the sealed
lines between holders for both.

*Channels*: messages from one holder to another that the server relays and cannot read.
Every holder draws an X25519 key (RFC 7748) for the run; the server passes the public
halves on. Two holders derive, by HKDF-SHA256 (RFC 5869), a key for each direction and a
seed for one-time masks that only they share. Messages are sealed by ChaCha20-Poly1305
(RFC 8439) under a random nonce; sender, receiver, run and the message's number are
authenticated with them. All of it is `cryptography`'s; nothing here is our own but the
order of the calls.
Guarantee: a message that was changed, repeated, left out, reordered, or made for
another run, direction or context is refused.
Edges: a server that hands out keys of its own making sits in the middle and reads
everything. It would then not be honest-but-curious, and holders who fear it compare
`fingerprint`s, which stand in their ledgers, by telephone. `seal` and `unseal` are for
one short message to a key, from somebody who has none: X25519 with a key for that
message, HKDF, ChaCha20-Poly1305. The steps are those of HPKE's base mode (RFC 9180).
Who sealed it is not proven: an upload is from anybody whom the server let in.

*Sums and products.* Step by step, and who sees what: docs/secure_products.md. Bonawitz
et al., "Practical secure aggregation for privacy-preserving machine learning" (CCS
2017), §4.0.1, for the masks; Kairouz, Liu, Steinke, "The distributed discrete Gaussian
mechanism" (ICML 2021), Thm 9 and Cor. 10, for the noise; Beaver, "Efficient multiparty
protocols using circuit randomization" (CRYPTO 1991), for a matrix product.
Paper → code: PRG(s_uv) → `Channel.mask`; n → parties; R, S → `Ring.uniform(seed,
chunk)`; C₁ → the last stream of the first seed; C₂ → `Dealer.correction`.
Differs from the papers: no shares of keys are kept for the case that a holder goes
away; R, S and C₁ are expanded from 32-byte seeds, people come in chunks whose masks are
made when they are needed, and C₂ alone is sent as numbers, so that memory and the
dealer's messages do not grow with people.

*Noise.* Of M holders up to t (`max_colluding`) may pool what they know. Each holder
adds a discrete Gaussian of scale σ/√(M − t). The M − t others' shares then add up to
variance σ², and their sum is a discrete Gaussian of scale σ but for a factor of e^±τ in
every probability, with τ ≤ 10 Σ_{k<n} exp(−2π²s²k/(k+1)) for n shares of scale s (Cor.
10; Thm 9 alone gives half of it: 5 for each of the n − 1 additions). Further shares are
independent noise on top. *Price.* One person moves each of c cells by 1, and no other.
Let P, Q be the c moved cells with and without that person under one discrete Gaussian
of scale σ each, and P′, Q′ under sums of shares. As P′ ≤ e^(cτ)P, Q′ ≥ e^(−cτ)Q,

    P′(S) − e^(ε+2cτ) Q′(S) ≤ e^(cτ) (P(S) − e^ε Q(S)) ≤ e^(cτ) δ:

the sum is (ε + 2cτ, e^(cτ) δ)-DP where c discrete Gaussians are (ε, δ)-DP. With s ≥ 4
the exponents are below 10⁻⁵⁵ for a million cells and 100,000 holders: far below the
rounding of any ε that is printed. Where t = M − 1, each share is the whole σ and no
such term arises.

Guarantee: what a holder gets from the dealer and from the other is uniform and
independent of the other's matrix.
Edges: the dealer could unmask X − R and Y − S, so these travel over a channel whose key
it does not have; a share alone tells the dealer RᵀY, so a share leaves its holder only
blinded (`blind`). A dealer that pools what it knows with one holder learns the other's
rows.
"""

import hashlib
import hmac
import json
import math
import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from understudy.ground.check import whole
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.privacy.noise import rounded_up
from understudy.privacy.secure.ring import SEED, Bits, Ring, Words

_NONCE = 12
_KEY = 32
OVERHEAD = 48  # bytes of a sealed message: a public key and a tag


class KeyPair:
    """A holder's X25519 key of one run. `secret` is for the holder's own memory and
    never sent.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self.secret = secret or os.urandom(_KEY)
        self._key = X25519PrivateKey.from_private_bytes(self.secret)
        self.public = self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """The secret that both ends of a pair arrive at."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except (ValueError, TypeError):  # a wrong length, or a point of small order
            raise MessageError(
                "a public key is not one.",
                effect=Effect.NOTHING_SENT,
            ) from None


def fingerprint(names_and_keys: Mapping[str, bytes]) -> str:
    """Eight groups of four characters that two people can read to each other: equal
    when all keys are. Guarantee: to find two sets of keys with one fingerprint, which a
    server in the middle would need, takes 2⁶⁴ trials.
    """
    text = json.dumps(
        {name: key.hex() for name, key in names_and_keys.items()},
        sort_keys=True,
    )
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return "-".join(digest[start : start + 4] for start in range(0, 32, 4))


class Channel:
    """The line between two holders, from one end. `context` holds whatever both must
    agree on, such as the run.
    """

    def __init__(
        self,
        name: str,
        pair: KeyPair,
        peer: str,
        public: bytes,
        *,
        context: bytes,
    ) -> None:
        self.name = name
        self.peer = peer
        # of the two: whose mask is added, the other's being taken off
        self.first = name < peer
        ends = sorted([[name, pair.public.hex()], [peer, public.hex()]])
        self._context = json.dumps([ends, context.hex()]).encode()
        salt = hashlib.sha256(self._context).digest()
        derivation = HKDF(SHA256(), 3 * _KEY, salt, b"understudy channel 1")
        keys = derivation.derive(pair.agree(public))
        from_first = ChaCha20Poly1305(keys[:_KEY])
        from_second = ChaCha20Poly1305(keys[_KEY : 2 * _KEY])
        self._mask_key = keys[2 * _KEY :]
        self._out = from_first if self.first else from_second
        self._in = from_second if self.first else from_first
        self.sent = 0
        self.received = 0
        # digests of all messages so far, each way
        self._sent_digest = bytes(32)
        self._received_digest = bytes(32)

    def seal(self, data: bytes) -> bytes:
        """The next message, readable by the peer alone."""
        nonce = self._nonce()
        header = self._header(self.name, self.peer, self.sent)
        sealed = self._out.encrypt(nonce, data, header)
        self.sent += 1
        self._sent_digest = _extend(self._sent_digest, data)
        return nonce + sealed

    def _nonce(self) -> bytes:
        """Not a counter: an end that comes back from an old state must not repeat
        one.
        """
        return os.urandom(_NONCE)

    def open(self, sealed: bytes) -> bytes:
        """The peer's next message. Edges: any other → MessageError, and the right one
        may still come.
        """
        header = self._header(self.peer, self.name, self.received)
        try:
            data = self._in.decrypt(sealed[:_NONCE], sealed[_NONCE:], header)
        except (InvalidTag, ValueError):
            raise MessageError(
                f"{self.name}: this is not message {self.received + 1} of {self.peer} "
                "in this run: it was changed, repeated or put out of order, or the two "
                "were told different things.",
                effect=Effect.NOTHING_COMPUTED,
            ) from None
        self.received += 1
        self._received_digest = _extend(self._received_digest, data)
        return data

    def mask(
        self,
        ring: Ring,
        stream: int,
        *shape: int,
        about: bytes = b"",
    ) -> Words:
        """One-time masks that cancel: this end's and the peer's add up to zero.

        `about`: what both must have been told of the message; where they were not,
        nothing cancels. Nor does it where one end has read other messages than the
        other has sent, since that one went back to an old state: masked rows of one
        question, multiplied with the masks of another, would be in the sum.
        Guarantee: for everybody else they are random. Edges: a stream is for one
        message alone.
        """
        digests = [self._sent_digest.hex(), self._received_digest.hex()]
        if not self.first:  # both ends name the first one's messages first
            digests.reverse()
        message = json.dumps([*digests, about.hex()]).encode()
        seed = hmac.digest(self._mask_key, message, "sha256")
        words = ring.uniform(seed, stream, *shape)
        return words if self.first else -words  # modulo 2^bits

    def _header(
        self,
        sender: str,
        receiver: str,
        number: int,
    ) -> bytes:
        return json.dumps([self._context.decode(), sender, receiver, number]).encode()

    def state_dict(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "received": self.received,
            "sent_digest": self._sent_digest,
            "received_digest": self._received_digest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.sent = int(state["sent"])
        self.received = int(state["received"])
        self._sent_digest = state["sent_digest"]
        self._received_digest = state["received_digest"]


def _extend(transcript: bytes, data: bytes) -> bytes:
    """The digest of a transcript with one more message."""
    digest = hashlib.sha256(transcript)
    digest.update(data)
    return digest.digest()


def connect(
    name: str,
    pair: KeyPair,
    keys: Mapping[str, bytes],
    *,
    context: bytes,
    shared: Mapping[str, bytes] | None = None,
) -> dict[str, Channel]:
    """A channel to every other holder; `shared`: what this end and one other must agree
    on besides. Edges: keys in which this holder's is missing or another →
    MessageError.
    """
    if keys.get(name) != pair.public:
        raise MessageError(
            f"{name}: the list of keys does not hold the key of {name}.",
            effect=Effect.NOTHING_SENT,
        )
    if len(set(keys.values())) < len(keys):
        raise MessageError(
            f"{name}: two holders are listed with one key.",
            effect=Effect.NOTHING_SENT,
        )
    channels = {}
    for peer, public in keys.items():
        if peer != name:
            agreed = context + (shared or {}).get(peer, b"")
            channels[peer] = Channel(
                name,
                pair,
                peer,
                public,
                context=agreed,
            )
    return channels


_NONCE_OF_ONE = bytes(_NONCE)  # a key is for one message alone


def seal(
    public: bytes,
    data: bytes,
    context: bytes,
    secret: bytes,
) -> bytes:
    """The message for the owner of this key: 32 bytes of a public key, the message, 16
    bytes of a tag. Guarantee: whoever has neither the receiver's key nor `secret`
    learns the length alone; a changed message, or one that was sealed under another
    `context`, is refused. Edges: `secret`, 32 random bytes, is for one message alone.
    """
    pair = KeyPair(secret)
    cipher = _cipher(pair.agree(public), pair.public, public)
    return pair.public + cipher.encrypt(_NONCE_OF_ONE, data, context)


def unseal(
    pair: KeyPair,
    sealed: bytes,
    context: bytes,
) -> bytes:
    """What was sealed to this key. Edges: anything else → MessageError."""
    try:
        cipher = _cipher(pair.agree(sealed[:32]), sealed[:32], pair.public)
        return cipher.decrypt(_NONCE_OF_ONE, sealed[32:], context)
    except (InvalidTag, ValueError):
        raise MessageError(
            "a sealed message does not open.",
            effect=Effect.NOTHING_COMPUTED,
        ) from None


def _cipher(
    shared: bytes,
    sender: bytes,
    receiver: bytes,
) -> ChaCha20Poly1305:
    key = HKDF(SHA256(), 32, sender + receiver, b"understudy envelope 1").derive(shared)
    return ChaCha20Poly1305(key)


# the stream of C₁; the streams from 0 on are the masks of the chunks
_CORRECTION = 2**64 - 1
# of a share's scale, where several shares must look like one discrete Gaussian
_MIN_SHARE_SCALE = 4.0


def blind(
    words: Words,
    channels: Iterable[Channel],
    ring: Ring,
    *,
    stream: int,
    about: bytes = b"",
) -> Words:
    """The words under a one-time mask with each peer; over all ends that were told the
    same `about` them, masks add up to zero.
    Guarantee: with at least one channel whose peer does not help the onlooker, the
    result is uniform to it, whatever the words. Edges: no channels → the words as they
    are; a stream is for one message alone.
    """
    for channel in channels:
        words = words + channel.mask(ring, stream, *words.shape, about=about)
    return words


def noise_share(
    sigma: Fraction,
    parties: int,
    *,
    max_colluding: int = 1,
) -> Fraction:
    """The scale of one holder's noise, so that σ remains against any `max_colluding` of
    the `parties`. Guarantee: see the module. Edges: a single holder adds σ; of no noise
    each adds none; max_colluding ≥ parties → ConfigError.
    """
    whole(parties=parties, max_colluding=max_colluding)
    if parties > 1 and max_colluding >= parties:
        raise ConfigError(
            f"max_colluding must be below the number of parties, {parties}, not "
            f"{max_colluding}: against all others "
            f"together it is {parties - 1}.",
            effect=Effect.NOTHING_CHARGED,
        )
    honest = parties - max_colluding
    if honest <= 1 or not sigma:
        return sigma
    scale = float(sigma) / math.sqrt(honest) * (1 + 1e-12)
    return rounded_up(max(scale, _MIN_SHARE_SCALE))


class Dealer:
    """Correlated randomness for one product: `seeds` for the two holders, then the
    second one's `correction`.
    """

    def __init__(
        self,
        ring: Ring,
        widths: tuple[int, int],
        seeds: tuple[bytes, bytes] | None = None,
    ) -> None:
        self.ring = ring
        self.widths = widths
        self.seeds = seeds or (os.urandom(SEED), os.urandom(SEED))
        self._product = np.zeros(widths, dtype=ring.dtype)
        self._chunks = 0

    def deal(self, people: int) -> None:
        """Go through the masks of one more chunk of people."""
        r = self.ring.uniform(self.seeds[0], self._chunks, people, self.widths[0])
        s = self.ring.uniform(self.seeds[1], self._chunks, people, self.widths[1])
        self._product += self.ring.product(r, s)
        self._chunks += 1

    def correction(self) -> Words:
        """C₂ = RᵀS − C₁, over the chunks so far."""
        return self._product - self.ring.uniform(
            self.seeds[0],
            _CORRECTION,
            *self.widths,
        )


class Factor:
    """One holder's side of a product: mask each chunk for the other, take the other's,
    and end with a share. Guarantee: see the module; the masks of a chunk are used once,
    since chunks are counted here. Edges: a chunk of another shape, or one of the other
    holder before this holder's was masked → MessageError, nothing changes.
    """

    def __init__(
        self,
        ring: Ring,
        seed: bytes,
        *,
        first: bool,
        width: int,
        peer_width: int,
    ) -> None:
        self.ring = ring
        self.seed = seed
        self.first = first
        self.width = width
        self.peer_width = peer_width
        self.masked = 0  # chunks
        self.multiplied = 0
        shape = (width, peer_width) if first else (peer_width, width)
        self._total = np.zeros(shape, dtype=ring.dtype)

    def mask(self, x: Bits | Words) -> Words:
        """X − R of the next chunk: (n, width)."""
        if x.ndim != 2 or x.shape[1] != self.width:
            raise MessageError(
                f"a chunk of {self.width} columns was due, not {x.shape}.",
                effect=Effect.NOTHING_SENT,
            )
        masks = self.ring.uniform(self.seed, self.masked, *x.shape)
        self.masked += 1
        return self.ring.words(x) - masks

    def take(self, other: Words, x: Bits | Words) -> None:
        """Multiply the other's masked chunk with the same people here."""
        shape = (len(x), self.peer_width)
        if other.shape != shape or self.multiplied >= self.masked:
            raise MessageError(
                f"a masked chunk of {shape} was due, not {other.shape}.",
                effect=Effect.NOTHING_COMPUTED,
            )
        if self.first:
            masks = self.ring.uniform(self.seed, self.multiplied, *x.shape)
            self._total += self.ring.product(masks, other)
        else:
            self._total += self.ring.product(other, x)
        self.multiplied += 1

    def share(self, correction: Words | None = None) -> Words:
        """This side's share of XᵀY: (first's width, second's width). The second holder
        brings the correction.
        """
        shape = self._total.shape
        if (correction is None) != self.first or self.multiplied != self.masked:
            raise MessageError(
                "the product is not complete.",
                effect=Effect.NOTHING_SENT,
            )
        if correction is None:
            correction = self.ring.uniform(self.seed, _CORRECTION, *shape)
        elif correction.shape != shape:
            raise MessageError(
                f"a correction of {shape} was due, not {correction.shape}.",
                effect=Effect.NOTHING_SENT,
            )
        return self._total + correction

    def state_dict(self) -> dict[str, Any]:
        return {
            "masked": self.masked,
            "multiplied": self.multiplied,
            "total": self.ring.signed(self._total),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.masked = int(state["masked"])
        self.multiplied = int(state["multiplied"])
        total: torch.Tensor = state["total"]
        self._total = self.ring.words(total)
