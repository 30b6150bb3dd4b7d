"""Who is admitted: a name together with the one certificate on the roster, and nobody
else.
"""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from understudy.ground.errors import (
    ArtefactError,
    ConfigError,
    MessageError,
    PartyError,
)
from understudy.runtime import certificates
from understudy.runtime.certificates import common_name, fingerprint, verify
from understudy.runtime.identity import Authority, Invitation, Roster, load_server


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(
        tmp_path / "federation", name="joint study", address="hub.example:7400"
    )


def test_an_invited_party_is_admitted_under_its_name_alone(
    authority: Authority,
) -> None:
    clinic, insurer = (authority.issue(name) for name in ("clinic", "insurer"))
    roster = authority.roster
    assert roster.refusal("clinic", clinic.certificate) is None
    assert roster.refusal("insurer", insurer.certificate) is None
    assert (
        roster.refusal("insurer", clinic.certificate)
        == "the certificate has another name"
    )
    assert roster.refusal("nobody", clinic.certificate) is not None


def test_a_name_signed_by_another_authority_is_not_on_the_roster(
    authority: Authority, tmp_path: Path
) -> None:
    authority.invite("clinic")
    other = Authority.create(
        tmp_path / "other", name="joint study", address="hub.example:7400"
    )
    forged = other.issue("clinic")
    assert (
        authority.roster.refusal("clinic", forged.certificate)
        == "the certificate is not the one on the roster"
    )


def test_renewal_admits_the_new_certificate_and_refuses_the_old(
    authority: Authority,
) -> None:
    old = authority.issue("clinic")
    new = authority.issue("clinic", days=30)
    assert authority.roster.refusal("clinic", new.certificate) is None
    assert (
        authority.roster.refusal("clinic", old.certificate)
        == "the certificate was revoked"
    )


def test_revocation_is_seen_by_a_roster_that_is_already_open(
    authority: Authority,
) -> None:
    invitation = authority.issue("clinic")
    running = Roster(authority.folder / "federation.toml")
    assert running.refusal("clinic", invitation.certificate) is None
    authority.revoke("clinic")
    assert (
        running.refusal("clinic", invitation.certificate)
        == "the certificate was revoked"
    )
    assert running.parties == ()
    with pytest.raises(ConfigError, match="not on the roster"):
        authority.revoke("clinic")


def test_a_certificate_ends(authority: Authority) -> None:
    invitation = authority.issue("clinic", days=10)
    late, early = (datetime.now(UTC) + timedelta(days=days) for days in (11, -1))
    for now in (late, early):
        refusal = authority.roster.refusal("clinic", invitation.certificate, now=now)
        assert refusal == "the certificate is not valid at this time"
    assert invitation.expires < late


def test_keys_are_for_their_owners_eyes(authority: Authority) -> None:
    invitation = authority.invite("clinic")
    for secret in (
        authority.folder / "ca.key",
        authority.folder / "server.key",
        invitation,
    ):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert "PRIVATE" not in (authority.folder / "federation.toml").read_text()


def test_a_signature_holds_for_its_text_and_its_signer(authority: Authority) -> None:
    clinic, insurer = (authority.issue(name) for name in ("clinic", "insurer"))
    signature = clinic.sign(b"contract")
    assert verify(clinic.certificate, signature, b"contract")
    assert not verify(clinic.certificate, signature, b"contracT")
    assert not verify(insurer.certificate, signature, b"contract")
    assert not verify(clinic.certificate, b"noise", b"contract")


def test_a_server_runs_without_the_authority_s_key(authority: Authority) -> None:
    (authority.folder / "ca.key").unlink()
    server = load_server(authority.folder)
    assert common_name(server.certificate) == "server.understudy"
    with pytest.raises(ConfigError, match="key is not here"):
        authority.invite("clinic")


def test_a_second_founding_changes_nothing(authority: Authority) -> None:
    before = fingerprint((authority.folder / "ca.pem").read_bytes())
    with pytest.raises(ArtefactError, match="already has a federation"):
        Authority.create(authority.folder, name="again", address="hub.example:7400")
    assert fingerprint((authority.folder / "ca.pem").read_bytes()) == before


@pytest.mark.parametrize(
    "name", ["", "../clinic", "a/b", "a\\b", ".clinic", "a\nb", 'a"b', "x" * 65]
)
def test_a_name_that_could_be_a_path_or_a_trick_is_refused(
    authority: Authority, name: str
) -> None:
    with pytest.raises(ConfigError, match="must be a plain name"):
        authority.invite(name)


@pytest.mark.parametrize(
    "address", ["hub", "hub:", ":7400", "hub:0", "hub:99999", "hub:http"]
)
def test_an_address_needs_host_and_port(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        Authority.create(tmp_path, name="x", address=address)


def test_what_is_not_an_invitation_is_refused(tmp_path: Path) -> None:
    for text in ("", "not toml [", "party = 'clinic'"):
        (tmp_path / "x.toml").write_text(text)
        with pytest.raises(ConfigError, match="invitation"):
            Invitation.load(tmp_path / "x.toml")
    with pytest.raises(MessageError):
        fingerprint("not a certificate")


# An invitation is exchanged once, for a certificate whose key the party made


def exchanged(
    authority: Authority, invitation: Invitation, key: certificates.PrivateKey
) -> bytes:
    return authority.enrol(
        "clinic",
        invitation.certificate.encode(),
        certificates.request(key, invitation.party),
    )


def test_an_invitation_admits_nobody_and_what_it_is_exchanged_for_does(
    authority: Authority,
) -> None:
    invitation = Invitation.load(authority.invite("clinic"))
    key = certificates.new_key()
    assert "must be exchanged first" in str(
        authority.roster.refusal("clinic", invitation.certificate)
    )
    certificate = exchanged(authority, invitation, key)
    assert authority.roster.refusal("clinic", certificate) is None
    assert "exchanged already" in str(
        authority.roster.refusal("clinic", invitation.certificate)
    )
    assert verify(
        certificate,
        key.sign(b"x", certificates.ec.ECDSA(certificates.hashes.SHA256())),
        b"x",
    )


def test_an_invitation_is_exchanged_again_for_the_same_key_and_for_no_other(
    authority: Authority,
) -> None:
    invitation = Invitation.load(authority.invite("clinic"))
    key = certificates.new_key()
    first = exchanged(authority, invitation, key)
    # the first answer was lost on its way
    second = exchanged(authority, invitation, key)
    assert authority.roster.refusal("clinic", first) == "the certificate was revoked"
    assert authority.roster.refusal("clinic", second) is None
    with pytest.raises(PartyError, match="exchanged already"):
        exchanged(authority, invitation, certificates.new_key())


def test_a_new_invitation_puts_the_old_certificate_and_the_old_invitation_out(
    authority: Authority,
) -> None:
    invitation = Invitation.load(authority.invite("clinic"))
    key = certificates.new_key()
    certificate = exchanged(authority, invitation, key)
    renewed = Invitation.load(authority.renew("clinic"))
    for out in (certificate, invitation.certificate):
        assert authority.roster.refusal("clinic", out) == "the certificate was revoked"
    with pytest.raises(PartyError, match="exchanged already"):
        exchanged(authority, invitation, key)
    assert (
        authority.roster.refusal("clinic", exchanged(authority, renewed, key)) is None
    )


def test_only_its_own_invitation_gets_a_party_a_certificate(
    authority: Authority,
) -> None:
    other = authority.issue("insurer")
    request = certificates.request(certificates.new_key(), "clinic")
    authority.invite("clinic")
    for shown in (other.certificate, authority.issue("third").certificate):
        with pytest.raises(PartyError, match="exchanged already"):
            authority.enrol("clinic", shown.encode(), request)
    for odd in (b"", b"noise", other.certificate.encode()):
        with pytest.raises(MessageError, match="not a request"):
            authority.enrol("clinic", other.certificate.encode(), odd)


def test_a_request_signed_with_another_key_is_refused(authority: Authority) -> None:
    """Somebody asks for a certificate over a public key whose private half is not
    theirs.
    """
    mine, theirs = (
        certificates.request(certificates.new_key(), "clinic").splitlines()
        for _ in range(2)
    )
    with pytest.raises(MessageError, match="not a request"):
        certificates.requested_key(
            b"\n".join([*mine[: len(mine) // 2], *theirs[len(theirs) // 2 :]])
        )


@pytest.mark.parametrize(("days", "word"), [(400, "ended"), (-1, "begins")])
def test_a_wrong_clock_and_an_old_certificate_are_told_with_what_to_do(
    authority: Authority, days: int, word: str
) -> None:
    now = datetime.now(UTC) + timedelta(days=days)
    with pytest.raises(
        ConfigError, match=f"{word} on .* clock says .* federation renew clinic"
    ):
        authority.issue("clinic").check_time(now)
