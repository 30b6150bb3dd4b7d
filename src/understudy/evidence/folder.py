"""The folder of evidence: written whole or not at all, from what a run published."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path

from understudy.evidence.catalogue import (
    croissant,
    dcat,
    deployment_entry,
    validate_croissant,
)
from understudy.evidence.checklists import checklist_page, checklists
from understudy.evidence.claims import EvidenceError
from understudy.evidence.facts import (
    NOTHING,
    SIGNATURES,
    Facts,
    ReleaseDescription,
    read_facts,
)
from understudy.ground.durable import read_json
from understudy.ground.errors import ArtefactError, PrivacyError, SchemaError
from understudy.report.page import published_page

_PUBLISHED = (
    "privacy.json",
    "run.json",
    "audit.json",
    "synthetic.parquet",
    "synthetic",
    "generator",
    "model",
)
# what people say of the release, when and by what the files were written
ABOUT = "about.json"
_DAMAGED = (OSError, KeyError, TypeError, ValueError, AttributeError)


def write_evidence(
    run: str | Path, out: str | Path, *, about: ReleaseDescription | None = None
) -> Path:
    """Write a folder of evidence of this run; returns where. Nothing is left of it
    where something fails.
    """
    facts = read_facts(run, about)
    out = Path(out)
    if out.exists():
        raise ArtefactError(f"{out} is there already.", effect=NOTHING)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=out.parent, prefix=".evidence-"
        ) as temporary:
            folder = Path(temporary) / "evidence"
            folder.mkdir()
            _copy(facts.artefacts.folder, folder)
            about_text = (
                json.dumps(facts.words_of_writer(), indent=1, ensure_ascii=False) + "\n"
            )
            (folder / ABOUT).write_text(about_text, encoding="utf-8")
            for name, text in derived_files(folder).items():
                (folder / name).write_text(text, encoding="utf-8")
            _validate(folder)
            folder.rename(out)
    except OSError as error:
        raise ArtefactError(
            f"{out} cannot be written ({error.strerror or error}).", effect=NOTHING
        ) from error
    return out


def _copy(source: Path, folder: Path) -> None:
    """What the run published, and nothing else; a link is not followed."""
    for name in _PUBLISHED:
        path = source / name
        if path.is_symlink() or (
            path.is_dir() and any(child.is_symlink() for child in path.rglob("*"))
        ):
            raise ArtefactError(
                f"{path}: it is, or holds, a link to somewhere else.", effect=NOTHING
            )
        if path.is_dir():
            shutil.copytree(path, folder / name)
        elif path.exists():
            shutil.copyfile(path, folder / name)


def derived_files(folder: Path) -> dict[str, str]:
    """Every file of a folder of evidence that is written from the others: its name and
    its text.

    Guarantee: they follow from what the run published and from the words of who wrote
    the evidence, in this folder.
    Edges: a folder of which these cannot be read, or of a rehearsal → ArtefactError or
    PrivacyError.
    """
    import yaml

    try:
        writer_words = read_json(folder / ABOUT)
    except (OSError, ValueError) as error:
        raise ArtefactError(f"{folder / ABOUT} cannot be read ({error}).") from error
    facts = read_facts(folder, writer_words=writer_words)
    files = {
        table: (name, hashlib.sha256((folder / name).read_bytes()).hexdigest())
        for table in facts.artefacts.synthetic_tables or {}
        for name in [f"synthetic/{table}.parquet" if table else "synthetic.parquet"]
    }
    answers = checklists(facts)
    texts: dict[str, str] = {
        "deployment.yaml": yaml.safe_dump(
            deployment_entry(facts), allow_unicode=True, sort_keys=False, width=100
        ),
        "checklist.json": json.dumps(
            [answer.to_dict() for answer in answers], indent=1, ensure_ascii=False
        )
        + "\n",
        "checklist.html": checklist_page(answers, facts.title),
        "report.html": published_page(
            facts.artefacts, now=facts.written, versions=facts.versions
        ),
        "README.md": _readme(
            facts, [answer.question for answer in answers if answer.open]
        ),
    }
    if files:
        texts |= {
            "croissant.json": croissant(facts, files),
            "dcat.ttl": dcat(facts, files),
        }
    return texts


def require_derived(folder: Path, names: Collection[str]) -> None:
    """EvidenceError unless these files of the folder (all but its signatures) are what
    the run published, and what follows from that: each derived file is written anew,
    and compared.
    """
    try:
        derived = derived_files(folder)
    except (ArtefactError, PrivacyError, SchemaError, *_DAMAGED) as error:
        raise EvidenceError(
            f"{folder}: its files cannot be written again, to compare them ({error})."
        ) from error
    lacking = sorted(derived.keys() - set(names))
    if lacking:
        raise EvidenceError(f"{folder}: {', '.join(lacking)} is missing.")
    expected = {ABOUT, *derived}
    foreign = sorted(
        name
        for name in names
        if name not in expected and name.split("/")[0] not in _PUBLISHED
    )
    if foreign:
        raise EvidenceError(
            f"{folder}: {', '.join(foreign)} follows from nothing that the run "
            "published."
        )
    changed = [
        name
        for name, text in derived.items()
        if (folder / name).read_bytes() != text.encode()
    ]
    if changed:
        written = dict(read_json(folder / ABOUT)["versions"])
        raise EvidenceError(
            f"{folder}: {', '.join(changed)} is not what follows from privacy.json and "
            "the artefacts: it was changed, or written by other code (understudy "
            f"{written['understudy']}; compare with that version)."
        )


def _validate(folder: Path) -> None:
    if (folder / "croissant.json").exists():
        try:
            validate_croissant(folder / "croissant.json")
        except ValueError as error:
            raise ArtefactError(f"{error}.", effect=NOTHING) from error


def _readme(facts: Facts, questions: list[str]) -> str:
    """What lies here, what people still have to say, how it is checked."""
    open_facts = [
        f"{name.replace('_', ' ')} (in the file given by --about)"
        for name in facts.about.blanks()
    ]
    open_questions = "\n".join(f"- {blank}" for blank in [*open_facts, *questions])
    text = Path(__file__).with_name("readme.md").read_text(encoding="utf-8")
    return text.format(
        run=facts.run,
        guesses=facts.guesses,
        questions=open_questions,
        signatures=SIGNATURES,
    )
