"""What a run of `synthesize` records: in its statement what was bought and who was held
out, and a run file beside its artefacts.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

from understudy.data.reading.files import Source
from understudy.data.reading.sources import EngineFrame, TableSource
from understudy.data.schema import Document
from understudy.ground.durable import replace as write
from understudy.ground.durable import replace_json
from understudy.ground.errors import ArtefactError, Effect
from understudy.privacy.accounts.budget import Budget
from understudy.runs.federation import Holder
from understudy.runs.result import Result
from understudy.runs.runfile import PartySection, RunFile


def with_purchase(result: Result, whole: Budget) -> Result:
    """The same result, whose statement says what was allowed in all. What was paid
    under the run's name is in it.
    """
    (party,) = result.privacy.parties
    outside = (
        "the names and the kinds of columns; where numbers are, and which texts "
        "there are, was bought, within ε",
        *(text for text in result.privacy.outside if not text.startswith("the schema")),
    )
    privacy = replace(
        result.privacy, parties=(replace(party, budget=whole),), outside=outside
    )
    generator = result.generator
    card = dict(generator.card) | {"privacy": privacy.to_dict()}
    return replace(result, privacy=privacy, artefact=replace(generator, card=card))


def with_held_out(result: Result, share: float) -> Result:
    """The same result, whose statement says that people were held out of it, and whose
    counts are of all of them.
    """
    outside = (
        f"each person was held out of the run with a chance of {100 * share:g} %, by a "
        "secret coin, so that attacks have a control. Nothing was released of those. "
        f"Counts are divided by {100 * (1 - share):g} %, so that they are of "
        "everybody, and their intervals include the coins"
    )
    privacy = replace(result.privacy, outside=(*result.privacy.outside, outside))
    generator = result.generator
    card = dict(generator.card) | {"privacy": privacy.to_dict(), "held_out": share}
    release = generator.release
    if release is not None:
        release = replace(release, about={**release.about, "held_out": share})
    return replace(
        result,
        privacy=privacy,
        people=round(result.people / (1 - share)),
        artefact=replace(generator, card=card, release=release),
    )


def make_folder(folder: Path) -> None:
    """The folder for the artefacts: made before anything is paid for."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtefactError(
            f"{folder} cannot be made ({error.strerror}).",
            effect=Effect.NOTHING_CHARGED,
        ) from None


def write_run_file(
    folder: Path,
    holder: Holder,
    source: Source,
    *,
    schema: Document,
    protocol: str,
    settings: Mapping[str, Any],
    run: str,
    held_out: Path | None,
) -> None:
    """What is done, as a run file beside the artefacts: `understudy report` finds table
    and ledger by it.

    The rows are named as they came. Those of a frame whose schema was bought are
    written beside the holder's ledger.
    """
    assert holder.ledger.path is not None, "it was opened from a file"
    ledger = holder.ledger.path.resolve()
    schema.save(folder / "schema.toml")
    if holder.came is not None and isinstance(source, pd.DataFrame):
        rows = source.to_csv(index=False).encode()
        source = write(ledger.with_name(f"{holder.name}-rows.csv"), rows)
    section = PartySection(
        **_reading(source),
        schema="schema.toml",
        epsilon=holder.budget.epsilon,
        delta=holder.budget.delta,
        ledger=str(ledger),
    )
    file = RunFile(
        protocol=protocol,
        parties={holder.name: section},
        settings={key: value for key, value in settings.items() if value is not None},
        out=".",
        folder=folder,
    )
    write(folder / "run.toml", file.to_toml().encode())
    facts: dict[str, Any] = {"run": run, "rehearsal": False}
    if held_out is not None:
        facts["held_out"] = str(held_out.resolve())
    replace_json(folder / "run.json", facts)


def _reading(source: Source) -> dict[str, Any]:
    """Where a source lies and how it is read, for a run file; a frame is nowhere."""
    if isinstance(source, TableSource):
        return asdict(source.within(Path.cwd()))
    if isinstance(source, pd.DataFrame | EngineFrame):
        return {"table": ""}
    return {"table": str(Path(source).resolve())}
