"""The folder of evidence: written whole or not at all, from what a run published."""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from understudy.evidence.catalogue import croissant, dcat, deployment_entry, validate_croissant
from understudy.evidence.checklists import checklist_page, checklists
from understudy.evidence.facts import NOTHING, About, Facts, read_facts
from understudy.evidence.signing import SIGNATURES
from understudy.ground.errors import ArtefactError
from understudy.report.page import write_report

_PUBLISHED = ("privacy.json", "run.json", "audit.json", "synthetic.parquet", "synthetic", "generator", "model")


def write_evidence(run: str | Path, out: str | Path, *, about: About | None = None) -> Path:
    """Write a folder of evidence of this run; returns where. Nothing is left of it where something fails."""
    facts, out = read_facts(run, about), Path(out)
    if out.exists():
        raise ArtefactError(f"{out} is there already. {NOTHING}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".evidence-") as place:
            folder = Path(place) / "evidence"
            folder.mkdir()
            _copy(facts.artefacts.folder, folder)
            write_report(facts.artefacts.folder, out=folder / "report.html", publish=True)
            _write_files(facts, folder)
            folder.rename(out)
    except OSError as error:
        raise ArtefactError(f"{out} cannot be written ({error.strerror or error}). {NOTHING}") from error
    return out


def _copy(source: Path, folder: Path) -> None:
    """What the run published, and nothing else; a link is not followed."""
    for name in _PUBLISHED:
        here = source / name
        if here.is_symlink() or (here.is_dir() and any(one.is_symlink() for one in here.rglob("*"))):
            raise ArtefactError(f"{here}: it is, or holds, a link to somewhere else. {NOTHING}")
        if here.is_dir():
            shutil.copytree(here, folder / name)
        elif here.exists():
            shutil.copyfile(here, folder / name)


def _write_files(facts: Facts, folder: Path) -> None:
    import yaml

    files = {
        table: (name, hashlib.sha256((folder / name).read_bytes()).hexdigest())
        for table in facts.artefacts.drawn or {}
        for name in [f"synthetic/{table}.parquet" if table else "synthetic.parquet"]
    }
    answers = checklists(facts)
    texts: dict[str, str] = {
        "deployment.yaml": yaml.safe_dump(deployment_entry(facts), allow_unicode=True, sort_keys=False, width=100),
        "checklist.json": json.dumps([answer.to_dict() for answer in answers], indent=1, ensure_ascii=False) + "\n",
        "checklist.html": checklist_page(answers, facts.title),
        "README.md": _readme(facts, [answer.question for answer in answers if answer.open]),
    }
    if files:
        texts |= {"croissant.json": croissant(facts, files), "dcat.ttl": dcat(facts, files)}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    if files:
        try:
            validate_croissant(folder / "croissant.json")
        except ValueError as error:
            raise ArtefactError(f"{error}. {NOTHING}") from error


def _readme(facts: Facts, questions: list[str]) -> str:
    """What lies here, what people still have to say, how it is checked."""
    open_facts = [f"{name.replace('_', ' ')} (in the file given by --about)" for name in facts.about.blanks()]
    said = "\n".join(f"- {one}" for one in [*open_facts, *questions])
    text = Path(__file__).with_name("readme.md").read_text(encoding="utf-8")
    return text.format(run=facts.run, guesses=facts.guesses, said=said, signatures=SIGNATURES)
