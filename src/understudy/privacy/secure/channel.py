"""Messages from one holder to another that the server relays and cannot read.

Every holder draws an X25519 key (RFC 7748) for the run; the server passes the public halves on. Two holders derive,
by HKDF-SHA256 (RFC 5869), a key for each direction and a seed for pads that only they share. Messages are sealed
by ChaCha20-Poly1305 (RFC 8439) under a random nonce; sender, receiver, run and number in the row are
authenticated with them. All of it is `cryptography`'s; nothing here is our own but the order of the calls.

Guarantee: a message that was changed, repeated, left out, reordered, or made for another run, direction or context
is refused.
Edges: a server that hands out keys of its own making sits in the middle and reads everything. It would then not be
honest-but-curious, and holders who fear it compare `fingerprint`s, which stand in their ledgers, by telephone.

`seal` and `unseal` are for one short message to a key, from somebody who has none: X25519 with a key for that message,
HKDF, ChaCha20-Poly1305. The steps are those of HPKE's base mode (RFC 9180). Who sealed it is not proven: an upload is
from anybody whom the server let in.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from understudy.ground.errors import MessageError
from understudy.privacy.secure.ring import Ring, Words

_NONCE, _KEY = 12, 32
OVERHEAD = 48  # bytes of a sealed message: a public key and a tag


class KeyPair:
    """A holder's X25519 key of one run. `secret` is for the holder's own memory and never sent."""

    def __init__(self, secret: bytes | None = None) -> None:
        self.secret = secret or os.urandom(_KEY)
        self._key = X25519PrivateKey.from_private_bytes(self.secret)
        self.public = self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """The secret that both ends of a pair arrive at."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except (ValueError, TypeError):  # a wrong length, or a point of small order
            raise MessageError("a public key is not one. Nothing was sent.") from None


def fingerprint(names_and_keys: Mapping[str, bytes]) -> str:
    """Eight groups of four characters that two people can read to each other: equal when all keys are. Guarantee: to
    find two sets of keys with one fingerprint, which a server in the middle would need, takes 2⁶⁴ trials.
    """
    text = json.dumps({name: key.hex() for name, key in names_and_keys.items()}, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return "-".join(digest[place : place + 4] for place in range(0, 32, 4))


class Channel:
    """The line between two holders, from one end. `context` holds whatever both must agree on, such as the run."""

    def __init__(self, own: str, pair: KeyPair, peer: str, public: bytes, *, context: bytes) -> None:
        self.own, self.peer = own, peer
        self.first = own < peer  # of the two: whose pad is added, the other's being taken off
        ends = sorted([[own, pair.public.hex()], [peer, public.hex()]])
        self._context = json.dumps([ends, context.hex()]).encode()
        salt = hashlib.sha256(self._context).digest()
        keys = HKDF(SHA256(), 3 * _KEY, salt, b"understudy channel 1").derive(pair.agree(public))
        low, high, self._pad = keys[:_KEY], keys[_KEY : 2 * _KEY], keys[2 * _KEY :]
        self._out, self._in = map(ChaCha20Poly1305, (low, high) if self.first else (high, low))
        self.sent = self.received = 0
        self._said = self._heard = bytes(32)  # which messages these were

    def seal(self, data: bytes) -> bytes:
        """The next message, readable by the peer alone."""
        nonce = self._nonce()
        sealed = self._out.encrypt(nonce, data, self._header(self.own, self.peer, self.sent))
        self.sent, self._said = self.sent + 1, _after(self._said, data)
        return nonce + sealed

    def _nonce(self) -> bytes:
        """Not a counter: an end that comes back from an old state must not repeat one."""
        return os.urandom(_NONCE)

    def open(self, sealed: bytes) -> bytes:
        """The peer's next message. Edges: any other → MessageError, and the right one may still come."""
        header = self._header(self.peer, self.own, self.received)
        try:
            data = self._in.decrypt(sealed[:_NONCE], sealed[_NONCE:], header)
        except (InvalidTag, ValueError):
            raise MessageError(
                f"{self.own}: this is not message {self.received + 1} of {self.peer} in this run: it was changed, "
                "repeated or put out of order, or the two were told different things. Nothing was computed."
            ) from None
        self.received, self._heard = self.received + 1, _after(self._heard, data)
        return data

    def pad(self, ring: Ring, stream: int, *shape: int, about: bytes = b"") -> Words:
        """Uniform words that cancel: this end's and the peer's add up to zero.

        `about`: what both must have been told of the message; where they were not, nothing cancels. Nor does it where
        one end has read other messages than the other has sent, since that one went back to an old state: masked rows
        of one question, multiplied with the masks of another, would be in the sum.
        Guarantee: for everybody else they are random. Edges: a stream is for one message alone.
        """
        said, heard = (self._said, self._heard) if self.first else (self._heard, self._said)
        seed = hmac.digest(self._pad, json.dumps([said.hex(), heard.hex(), about.hex()]).encode(), "sha256")
        words = ring.uniform(seed, stream, *shape)
        return words if self.first else -words  # modulo 2^bits

    def _header(self, sender: str, receiver: str, number: int) -> bytes:
        return json.dumps([self._context.decode(), sender, receiver, number]).encode()

    def state_dict(self) -> dict[str, Any]:
        return {"sent": self.sent, "received": self.received, "said": self._said, "heard": self._heard}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.sent, self.received = int(state["sent"]), int(state["received"])
        self._said, self._heard = state["said"], state["heard"]


def _after(before: bytes, data: bytes) -> bytes:
    """Which messages there were, with one more."""
    told = hashlib.sha256(before)
    told.update(data)
    return told.digest()


def connect(
    own: str, pair: KeyPair, keys: Mapping[str, bytes], *, context: bytes, shared: Mapping[str, bytes] | None = None
) -> dict[str, Channel]:
    """A channel to every other holder; `shared`: what this end and one other must agree on besides. Edges: keys in
    which the own one is missing or another → MessageError.
    """
    if keys.get(own) != pair.public:
        raise MessageError(f"{own}: the list of keys does not hold the key of {own}. Nothing was sent.")
    if len(set(keys.values())) < len(keys):
        raise MessageError(f"{own}: two holders are listed with one key. Nothing was sent.")
    return {
        peer: Channel(own, pair, peer, public, context=context + (shared or {}).get(peer, b""))
        for peer, public in keys.items()
        if peer != own
    }


_ONCE = bytes(_NONCE)  # a key is for one message alone


def seal(public: bytes, data: bytes, context: bytes, secret: bytes) -> bytes:
    """The message for the owner of this key: 32 bytes of a public key, the message, 16 bytes of a tag. Guarantee:
    whoever has neither the receiver's key nor `secret` learns the length alone; a changed message, or one that was
    sealed under another `context`, is refused. Edges: `secret`, 32 random bytes, is for one message alone.
    """
    pair = KeyPair(secret)
    return pair.public + _cipher(pair.agree(public), pair.public, public).encrypt(_ONCE, data, context)


def unseal(pair: KeyPair, sealed: bytes, context: bytes) -> bytes:
    """What was sealed to this key. Edges: anything else → MessageError."""
    try:
        cipher = _cipher(pair.agree(sealed[:32]), sealed[:32], pair.public)
        return cipher.decrypt(_ONCE, sealed[32:], context)
    except (InvalidTag, ValueError):
        raise MessageError("a sealed message does not open. Nothing was computed.") from None


def _cipher(shared: bytes, sender: bytes, receiver: bytes) -> ChaCha20Poly1305:
    key = HKDF(SHA256(), 32, sender + receiver, b"understudy envelope 1").derive(shared)
    return ChaCha20Poly1305(key)
