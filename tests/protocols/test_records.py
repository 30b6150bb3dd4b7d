"""What every protocol says of itself in its record is complete, and true of its
parts.
"""

import dataclasses
import importlib
import inspect
from pathlib import Path

import pytest

from understudy.evaluate.audit.audit_file import CASES
from understudy.protocols.core import Opening, Party
from understudy.protocols.protocol import Protocol
from understudy.runs.registry import PROTOCOLS

ROOT = Path(inspect.getfile(Protocol)).parent


@pytest.mark.parametrize("record", PROTOCOLS.values(), ids=list(PROTOCOLS))
def test_a_record_has_all_that_runs_plans_audits_and_pages_read(
    record: Protocol,
) -> None:
    assert PROTOCOLS[record.name] is record
    assert record.title.endswith((".", ":")), (
        "the first line of its file says what it is"
    )
    assert len(record.paper.split("\n\n")) > 1, (
        "and then where it comes from, and what it guarantees"
    )
    params = inspect.signature(record.config).parameters.values()
    assert all(
        one.kind is one.KEYWORD_ONLY and one.default is not one.empty for one in params
    )
    frozen = record.config.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert frozen
    needed = {"epsilon_total": 4.0} if record.audit == "reports" else {}
    config = record.configured(needed)
    assert record.settings.keys() == {
        field.name for field in dataclasses.fields(config)
    }
    listed = record.parties() if callable(record.parties) else record.parties
    for party in listed or (record.party,):
        assert isinstance(party, type)
        assert issubclass(party, Party)
    assert any(issubclass(message, Opening) for message in record.messages)
    asked = {*inspect.signature(record.train).parameters}
    # of a class, whose constructor takes rows
    run = getattr(record.train, "__self__", None)
    if run is not None:
        asked |= {*inspect.signature(run).parameters}
    assert ("holdout" in asked) <= (record.artefact == "model")
    assert ("public" in asked) == record.public_rows
    assert record.audit in CASES
    held_by = getattr(record.party, "args", ())
    assert bool(held_by) == (record.study is not None)
    assert all(issubclass(record.study, study) for study in held_by)  # type: ignore[arg-type]
    assert not record.audit.startswith("joint") or record.study is not None
    assert all(
        isinstance(value, bool | dict) for value in record.agreed(config).values()
    )
    if record.forecast is not None:
        assert [*inspect.signature(record.forecast).parameters] == [
            "config",
            "schemas",
            "budgets",
            "people",
        ]


def test_every_record_is_listed() -> None:
    files = [file for file in ROOT.rglob("*.py") if "\nPROTOCOL = " in file.read_text()]
    names = {
        ".".join(file.relative_to(ROOT.parent.parent).with_suffix("").parts)
        for file in files
    }
    assert {
        importlib.import_module(name).PROTOCOL.name for name in names
    } == PROTOCOLS.keys()


def test_protocols_have_no_other_way_to_say_what_they_are() -> None:
    for file in ROOT.rglob("*.py"):
        for word in (
            "\nSAME_PEOPLE",
            "\nARTEFACT",
            "\nONE_RELEASE",
            "\nPUBLIC_ROWS",
            "\ndef agreed",
        ):
            assert word not in file.read_text(), file
