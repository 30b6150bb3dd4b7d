"""A push that was acknowledged survives a power cut: what is on disk, and in which
order, before the answer.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from exchange_cases import generator, served
from sqlalchemy import event, text

from understudy.services.exchange.check_worker import look
from understudy.services.exchange.checker import Checked
from understudy.services.exchange.offer_file import digest_of, seal


class Here:
    """The same checks in this process: one of theirs would import torch anew."""

    def check(self, path: Path, requirements: Any, *, seed: int, seconds: float) -> Any:
        return Checked(**look(path, requirements, seed), peak=0)


def test_the_file_is_on_disk_before_it_has_its_name_and_its_name_before_the_row_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []
    sync = os.fsync
    rename = os.replace

    def synced(handle: int) -> None:
        sync(handle)
        done.append(("synced", os.readlink(f"/proc/self/fd/{handle}")))

    def renamed(old: Any, new: Any) -> None:
        rename(old, new)
        done.append(("renamed", str(new)))

    with served(tmp_path) as exchange, exchange.member("north", tries=1) as north:
        exchange.exchange.checkers = Here()  # type: ignore[assignment]
        database = exchange.exchange.database
        event.listen(
            database._engine, "commit", lambda _: done.append(("committed", ""))
        )
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "replace", renamed)
        digest = north.push("ward", generator())["digest"]
        done.append(("acknowledged", ""))
        monkeypatch.undo()
        place = exchange.exchange.store.path(digest)
        (upload,) = (
            name for what, name in done if what == "synced" and "/incoming/" in name
        )
        order = [
            done.index(step)
            for step in (
                ("synced", upload),
                ("renamed", str(place)),
                ("synced", str(place.parent)),
                ("synced", str(place.parent.parent)),
                ("committed", ""),
                ("acknowledged", ""),
            )
        ]
        assert order == sorted(order)
        with database.read() as session:
            # a commit waits for the disk
            assert session.scalar(text("PRAGMA synchronous")) == 2
            assert session.scalar(text("PRAGMA journal_mode")) == "wal"
    assert digest == digest_of(seal(generator()))
