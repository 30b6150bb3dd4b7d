"""Signed statements about a folder of evidence: in-toto attestations in DSSE envelopes,
a file for each who signs.

A statement names every file of the folder with its digest, and what the signer stands
for: a holder states what its ledger holds of the run, the hub that these are the files
it made. Signing and checking are securesystemslib's.

Guarantee: `verify` says yes only if every file is as every signer saw it, none is
missing and none was added, each holder of the statement signed with the key that is
trusted for its name, each holder's ledger pays for all that the statement says was used
of its rows, no figure of it is below what those uses cost (`claims`), and every file
that is written from the statement and the artefacts is what they give when it is
written anew. It needs no network.
Edges: a changed byte, a foreign file, a link, a missing holder, an unknown or another's
key, a damaged envelope → EvidenceError, which names it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from understudy.evidence.claims import (
    EvidenceError,
    ledger_witness,
    require_same_card,
    require_true,
    require_witnessed,
)
from understudy.evidence.facts import SIGNATURES
from understudy.evidence.folder import require_derived
from understudy.ground import durable
from understudy.ground.check import plain_name
from understudy.ground.durable import read_json
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.ledger import Ledger

HUB = "hub"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:understudy:release:v2"
PAYLOAD = "application/vnd.in-toto+json"
REQUIRED_FILES = (
    "run.json",
    "privacy.json",
    "about.json",
    "deployment.yaml",
    "checklist.json",
)  # what every folder of evidence has
_MAX_ENVELOPE = 4 << 20  # bytes of an envelope


@dataclass(frozen=True)
class Verified:
    run: str
    signers: tuple[str, ...]
    files: int


def new_key(path: str | Path) -> Path:
    """A fresh Ed25519 key for signing, readable by its owner alone, and its public half
    beside it (.pub).
    """
    path = Path(path)
    public = path.with_suffix(".pub")
    if path.exists() or public.exists():
        raise ConfigError(
            f"{path} or {public} is there already.", effect=Effect.NOTHING_WRITTEN
        )
    key = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    handed_out = key.public_key().public_bytes(
        pem, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        durable.own_folder(path.parent)
        durable.replace(path, private)
        durable.own_files(path)
        durable.replace(public, handed_out)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}).") from None
    return public


def statement_to_sign(
    folder: str | Path, *, ledger: str | Path | None = None
) -> dict[str, Any]:
    """What a signer of this folder stands for: the holder of this ledger, which must
    hold its uses, or else the hub.
    """
    folder = Path(folder)
    run, stated, protocol = _read_statement(folder)
    name = HUB
    witness = None
    if ledger is not None:
        with Ledger(ledger) as book:
            name = book.holder
            witness = ledger_witness(book, run)
        require_witnessed(name, witness, stated, protocol)
    plain_name(signer=name)
    digests = _digests(folder)
    require_derived(folder, digests)
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": place, "digest": {"sha256": mark}}
            for place, mark in sorted(digests.items())
        ],
        "predicateType": PREDICATE,
        "predicate": {"run": run, "signer": name, "ledger": witness, "rehearsal": None},
    }


def sign_folder(
    folder: str | Path, key: str | Path, *, ledger: str | Path | None = None
) -> Path:
    """Sign a folder of evidence, as the holder of this ledger or without one as the
    hub. Returns the envelope.
    """
    try:
        pem = Path(key).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{key}: the key cannot be read ({error.strerror}).",
            effect=Effect.NOTHING_SIGNED,
        ) from None
    return sign_statement(
        folder, statement_to_sign(folder, ledger=ledger), pem, str(key)
    )


def sign_statement(
    folder: str | Path, statement: Mapping[str, Any], pem: bytes, whose: str
) -> Path:
    """Sign what `statement_to_sign` made of this folder, and put it there; `whose`
    names the key in a refusal.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer._crypto_signer import CryptoSigner

    try:
        private = serialization.load_pem_private_key(pem, password=None)
        if not isinstance(private, Ed25519PrivateKey | EllipticCurvePrivateKey):
            raise ValueError("neither Ed25519 nor of an elliptic curve")
        signer = CryptoSigner(private)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            f"{whose} is no private key of Ed25519 or an elliptic curve (PEM, without "
            "a password).",
            effect=Effect.NOTHING_SIGNED,
        ) from None
    envelope = Envelope(
        json.dumps(statement, ensure_ascii=False, sort_keys=True).encode(), PAYLOAD, {}
    )
    envelope.sign(signer)
    place = Path(folder) / SIGNATURES / f"{statement['predicate']['signer']}.dsse.json"
    try:
        place.parent.mkdir(exist_ok=True)
        return durable.replace_json(place, envelope.to_dict())
    except OSError as error:
        raise EvidenceError(f"{place} cannot be written ({error.strerror}).") from None


def verify_folder(folder: str | Path, trusted: str | Path) -> Verified:
    """Check a folder of evidence by the public keys (NAME.pub) or certificates
    (NAME.pem) in the folder `trusted`.
    """
    folder = Path(folder)
    run, stated, protocol = _read_statement(folder)
    digests = _digests(folder)
    keys = _load_trusted_keys(Path(trusted))
    envelopes = envelopes_in(folder)
    holders = [str(party["name"]) for party in stated["parties"]]
    lacking = [name for name in holders if name not in envelopes]
    if lacking:
        raise EvidenceError(f"{folder}: {', '.join(lacking)} did not sign.")
    foreign = sorted(envelopes.keys() - {*holders, HUB})
    if foreign:
        raise EvidenceError(
            f"{folder}: {', '.join(foreign)} signed, and is no holder of this run."
        )
    for name, envelope in envelopes.items():
        body = _open_envelope(envelope, name, keys)
        _require_same(
            name,
            {
                subject["name"]: subject["digest"]["sha256"]
                for subject in body["subject"]
            },
            digests,
        )
        predicate = body["predicate"]
        if (
            predicate.get("signer") != name
            or predicate.get("run") != run
            or predicate.get("rehearsal") is not None
        ):
            raise EvidenceError(
                f"{envelope}: it is signed for another holder, another run or a "
                "rehearsal."
            )
        if name in holders:
            require_witnessed(name, predicate.get("ledger"), stated, protocol)
    require_derived(folder, digests)
    return Verified(run, tuple(envelopes), len(digests))


def envelopes_in(folder: Path) -> dict[str, Path]:
    """Who is said to have signed, each with the envelope, unchecked."""
    return {
        path.name.removesuffix(".dsse.json"): path
        for path in sorted((folder / SIGNATURES).glob("*"))
    }


def _digests(folder: Path) -> dict[str, str]:
    """The digest of every file but the signatures."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise EvidenceError(f"{folder}: {name} is a link, and evidence holds none.")
        if path.is_file() and not name.startswith(f"{SIGNATURES}/"):
            try:
                with path.open("rb") as file:
                    digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise EvidenceError(
                    f"{folder}: {name} cannot be read ({error.strerror})."
                ) from None
    return digests


def _read_statement(folder: Path) -> tuple[str, Mapping[str, Any], str]:
    """The run, its statement, and its protocol. EvidenceError where the folder is no
    evidence, is of a rehearsal, or states a price that its own uses contradict.
    """
    try:
        missing = [name for name in REQUIRED_FILES if not (folder / name).is_file()]
        if missing:
            raise EvidenceError(
                f"{folder} is no folder of evidence: it has no {', '.join(missing)}."
            )
        run = str(read_json(folder / "run.json")["run"])
        stated = read_json(folder / "privacy.json")
        for party in stated["parties"]:
            plain_name(holder=party["name"])
        rehearsal = stated.get("rehearsal", "not said")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(
            f"{folder}: run.json or privacy.json is damaged ({error})."
        ) from error
    if rehearsal is not None:
        raise EvidenceError(
            f"{folder}: this was a rehearsal, or does not say that it was none: it is "
            "evidence of nothing."
        )
    require_true(stated, run)
    return run, stated, require_same_card(folder, stated)


def _require_same(
    name: str, signed: Mapping[str, str], present: Mapping[str, str]
) -> None:
    for change, names in {
        "was added": present.keys() - signed.keys(),
        "is missing": signed.keys() - present.keys(),
        "was changed": {
            name_of_file
            for name_of_file in present.keys() & signed.keys()
            if present[name_of_file] != signed[name_of_file]
        },
    }.items():
        if names:
            raise EvidenceError(
                f"{', '.join(sorted(names))} {change} since {name} signed."
            )


def _open_envelope(path: Path, name: str, keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """The statement in an envelope that the key trusted for this name signed."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import Error

    if name not in keys:
        raise EvidenceError(
            f"{path}: no key is trusted for {name}: put {name}.pub or {name}.pem "
            "among the trusted keys."
        )
    try:
        if path.stat().st_size > _MAX_ENVELOPE:
            raise ValueError("it is too long")
        envelope = Envelope.from_dict(read_json(path))
        if envelope.payload_type != PAYLOAD:
            raise ValueError("it holds no in-toto statement")
        envelope.verify([keys[name]], 1)
        body = json.loads(envelope.payload)
        if body["_type"] != STATEMENT or body["predicateType"] != PREDICATE:
            raise ValueError("it holds another kind of statement")
        _ = (
            [subject["digest"]["sha256"] for subject in body["subject"]],
            body["predicate"].get,
        )
    except (Error, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(
            f"{path}: {name}'s signature does not hold ({error})."
        ) from error
    return dict(body)


def _load_trusted_keys(folder: Path) -> dict[str, Any]:
    from securesystemslib.signer._key import SSlibKey

    keys = {}
    for path in sorted([*folder.glob("*.pub"), *folder.glob("*.pem")]):
        try:
            pem = path.read_bytes()
            if b"PRIVATE KEY" in pem:
                raise ConfigError(
                    f"{path} holds a private key: only its owner may have it. Put "
                    "its .pub here."
                )
            key = (
                x509.load_pem_x509_certificate(pem).public_key()
                if b"BEGIN CERTIFICATE" in pem
                else serialization.load_pem_public_key(pem)
            )
            if not isinstance(key, Ed25519PublicKey | EllipticCurvePublicKey):
                raise ConfigError(
                    f"{path}: only Ed25519 keys and those of elliptic curves are taken."
                )
            keys[path.stem] = SSlibKey.from_crypto(key)
        except ConfigError:
            raise
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            raise ConfigError(
                f"{path} is neither a public key nor a certificate."
            ) from error
    if not keys:
        raise ConfigError(
            f"{folder} holds no public keys (NAME.pub) or certificates (NAME.pem)."
        )
    return keys
