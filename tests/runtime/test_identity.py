"""Who is admitted: a name together with the one certificate on the roster, and nobody else."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from understudy.errors import ArtefactError, ConfigError, MessageError
from understudy.runtime.identity import (
    Authority,
    Invitation,
    Roster,
    common_name,
    fingerprint,
    load_server,
    verify,
)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.found(tmp_path / "federation", name="joint study", address="hub.example:7400")


def test_an_invited_party_is_admitted_under_its_name_alone(authority: Authority) -> None:
    clinic, insurer = (Invitation.load(authority.invite(name)) for name in ("clinic", "insurer"))
    roster = authority.roster
    assert roster.refusal("clinic", clinic.certificate) is None
    assert roster.refusal("insurer", insurer.certificate) is None
    assert roster.refusal("insurer", clinic.certificate) == "the certificate bears another name"
    assert roster.refusal("nobody", clinic.certificate) is not None


def test_a_name_signed_by_another_authority_is_not_on_the_roster(
    authority: Authority, tmp_path: Path
) -> None:
    authority.invite("clinic")
    other = Authority.found(tmp_path / "other", name="joint study", address="hub.example:7400")
    forged = Invitation.load(other.invite("clinic"))
    assert (
        authority.roster.refusal("clinic", forged.certificate)
        == "the certificate is not the one on the roster"
    )


def test_renewal_admits_the_new_certificate_and_refuses_the_old(authority: Authority) -> None:
    old = Invitation.load(authority.invite("clinic"))
    new = Invitation.load(authority.renew("clinic", days=30))
    assert authority.roster.refusal("clinic", new.certificate) is None
    assert authority.roster.refusal("clinic", old.certificate) == "the certificate was revoked"


def test_revocation_is_seen_by_a_roster_that_is_already_open(authority: Authority) -> None:
    invitation = Invitation.load(authority.invite("clinic"))
    running = Roster(authority.folder / "federation.toml")
    assert running.refusal("clinic", invitation.certificate) is None
    authority.revoke("clinic")
    assert running.refusal("clinic", invitation.certificate) == "the certificate was revoked"
    assert running.parties == ()
    with pytest.raises(ConfigError, match="not on the roster"):
        authority.revoke("clinic")


def test_a_certificate_ends(authority: Authority) -> None:
    invitation = Invitation.load(authority.invite("clinic", days=10))
    late, early = (datetime.now(UTC) + timedelta(days=days) for days in (11, -1))
    for now in (late, early):
        refusal = authority.roster.refusal("clinic", invitation.certificate, now=now)
        assert refusal == "the certificate is not valid at this time"
    assert invitation.expires < late


def test_keys_are_for_their_owners_eyes(authority: Authority) -> None:
    invitation = authority.invite("clinic")
    for secret in (authority.folder / "ca.key", authority.folder / "server.key", invitation):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert "PRIVATE" not in (authority.folder / "federation.toml").read_text()


def test_a_signature_holds_for_its_text_and_its_signer(authority: Authority) -> None:
    clinic, insurer = (Invitation.load(authority.invite(name)) for name in ("clinic", "insurer"))
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
        Authority.found(authority.folder, name="again", address="hub.example:7400")
    assert fingerprint((authority.folder / "ca.pem").read_bytes()) == before


@pytest.mark.parametrize("name", ["", "../clinic", "a/b", "a\\b", ".clinic", "a\nb", 'a"b', "x" * 49])
def test_a_name_that_could_be_a_path_or_a_trick_is_refused(authority: Authority, name: str) -> None:
    with pytest.raises(ConfigError, match="name must be"):
        authority.invite(name)


@pytest.mark.parametrize("address", ["hub", "hub:", ":7400", "hub:0", "hub:99999", "hub:http"])
def test_an_address_needs_host_and_port(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        Authority.found(tmp_path, name="x", address=address)


def test_what_is_not_an_invitation_is_refused(tmp_path: Path) -> None:
    for text in ("", "not toml [", "party = 'clinic'"):
        (tmp_path / "x.toml").write_text(text)
        with pytest.raises(ConfigError, match="invitation"):
            Invitation.load(tmp_path / "x.toml")
    with pytest.raises(MessageError):
        fingerprint("not a certificate")
