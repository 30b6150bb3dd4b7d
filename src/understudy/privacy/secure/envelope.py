"""A short message to a key, from somebody who has none: X25519 with a key for one message, HKDF, ChaCha20-Poly1305.

    sealed = seal(public, data, context, secret)     # 32 bytes of a public key, the message, 16 bytes of a tag

The steps are those of HPKE's base mode (RFC 9180), with `cryptography`'s parts; `context` is whatever both must agree
on. Who sealed it is not proven: an upload is from anybody whom the server let in.

Guarantee: whoever has neither the receiver's key nor `secret` learns the length alone; a changed message, or one that
was sealed under another context, is refused.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from understudy.ground.errors import MessageError
from understudy.privacy.secure.channel import KeyPair

OVERHEAD = 48  # bytes: a public key and a tag
_NONCE = bytes(12)  # a key is for one message alone


def seal(public: bytes, data: bytes, context: bytes, secret: bytes) -> bytes:
    """The message for the owner of this key. Edges: `secret`, 32 random bytes, is for one message alone."""
    pair = KeyPair(secret)
    return pair.public + _cipher(pair.agree(public), pair.public, public).encrypt(_NONCE, data, context)


def unseal(pair: KeyPair, sealed: bytes, context: bytes) -> bytes:
    """What was sealed to this key. Edges: anything else → MessageError."""
    try:
        cipher = _cipher(pair.agree(sealed[:32]), sealed[:32], pair.public)
        return cipher.decrypt(_NONCE, sealed[32:], context)
    except (InvalidTag, ValueError):
        raise MessageError("a sealed message does not open. Nothing was computed.") from None


def _cipher(shared: bytes, sender: bytes, receiver: bytes) -> ChaCha20Poly1305:
    key = HKDF(SHA256(), 32, sender + receiver, b"understudy envelope 1").derive(shared)
    return ChaCha20Poly1305(key)
