"""`understudy evidence`, `sign` and `verify`: what a data protection officer files of a run."""

from pathlib import Path
from typing import Annotated

from understudy.cli.terminal import argument, option, out
from understudy.evidence import need_libraries

RunArg = Annotated[Path, argument("The folder of a finished run.", exists=True, file_okay=False)]
FolderArg = Annotated[Path, argument("A folder of evidence.", exists=True, file_okay=False)]
KeyOption = Annotated[Path, option("The private key to sign with (PEM; Ed25519 or P-256).")]


def evidence(
    run: RunArg,
    to: Annotated[Path | None, option("Where to: by default RUN/evidence.", "--out")] = None,
    about: Annotated[Path | None, option("A TOML file with what only people can say of it.", exists=True)] = None,
) -> None:
    """Write what a data protection officer files: registry entry, catalogue records, checklists, published page."""
    need_libraries()
    from understudy.evidence.facts import About
    from understudy.evidence.folder import write_evidence

    place = write_evidence(run, to or run / "evidence", about=None if about is None else About.load(about))
    out.print(f"Written to {place}; its README.md says what people still have to fill in.", soft_wrap=True)
    out.print(f"Each holder signs it: understudy sign {place} --key KEY --ledger LEDGER", soft_wrap=True)


def sign(
    folder: FolderArg,
    key: KeyOption,
    ledger: Annotated[Path | None, option("The holder's ledger; without one the hub signs.", exists=True)] = None,
    new: Annotated[bool, option("Make the key first, and its public half beside it.", "--new")] = False,
) -> None:
    """Sign a folder of evidence, as the holder of a ledger or as the hub."""
    need_libraries()
    from understudy.evidence.signing import new_key, sign_folder, statement_to_sign

    if new:
        statement_to_sign(folder, ledger=ledger)  # a folder that cannot be signed needs no key
        out.print(f"A new key: {key}. Hand out {new_key(key)}, and keep the key.", soft_wrap=True)
    out.print(f"Signed: {sign_folder(folder, key, ledger=ledger)}", soft_wrap=True)


def verify(
    folder: FolderArg,
    trusted: Annotated[Path, option("Public keys (NAME.pub), certificates (NAME.pem).", exists=True, file_okay=False)],
) -> None:
    """Check a folder of evidence: every file, every signature, every holder's receipts. No network is needed."""
    need_libraries()
    from understudy.evidence.signing import verify_folder

    found = verify_folder(folder, trusted)
    out.print(
        f"Run {found.run}: {found.files} files are as {', '.join(found.signers)} signed them, and the holders' "
        "receipts pay for all that is stated.",
        soft_wrap=True,
    )
