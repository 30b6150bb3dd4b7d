"""The server's side of a joint release, of whatever family: it aligns, relays, adds up,
and asks with what it found.

Of a part that several holders have a share in it sees uniform numbers; what it can put
together are the sums with the noise of all of them. Whatever it does with them is
post-processing.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy.ground.errors import BudgetExceeded, Effect, MessageError, PartyError
from understudy.privacy.accounts.accounting import DpEvent, epsilon
from understudy.protocols.core import Ask, Parties, Progress, Watcher, public_values
from understudy.protocols.core.alignment import align_grid
from understudy.protocols.core.loop import Checkpoint, Present
from understudy.protocols.core.union import align_union
from understudy.protocols.joint.measurements import Begun, Measurements, Record
from understudy.protocols.joint.messages import Agree, Begin, Propose, Release
from understudy.protocols.joint.products import (
    Cells,
    Inboxes,
    cells_of,
    multiply,
    relayed,
    seeds_for,
)
from understudy.protocols.joint.stage import Choice, Stage, Study, digest

SAVED = "released"
STOPPED = "stopped"


def measure(
    study: Study[Any],
    parties: Parties,
    *,
    min_holders: int | None = None,
    chunk: int = 1 << 15,
    checkpoint: Path | None = None,
    resume: bool = False,
    secret: bytes | None = None,
    watch: Watcher | None = None,
) -> Measurements:
    """All releases, at the noise that the strictest budget needs. With a `checkpoint`
    folder each release is saved before anything else is asked; `resume=True` continues
    from there: nothing is measured, or charged, twice. `secret`: what masks are dealt
    by, for a server that may have to deal the same ones again and has no folder of its
    own here. `watch` hears of every release and of every chunk of people that is
    multiplied. A KeyboardInterrupt from it is a stop between two asks: where the server
    stands is saved, and `resume=True` continues with the next chunk, if the parties
    stand where they stood.
    Edges: in a horizontal partition, who goes away before the first release is left out
    while `min_holders` remain, and who goes during it ends the run, as does whoever
    goes before the study's `least` releases are made: nothing can be unmasked without
    one of them, and who has released by then has paid. Who goes away later, or has too
    little left, leaves what was released, which says so (`Record.ended`). A refusal is
    raised; of parties that have begun anew since, which hold nothing that a further
    release could be made of, it leaves what was released, too.
    """
    study.pricing.check_parties(len(parties.names))
    config = study.told_settings()
    plan = json.loads(json.dumps({key: config[key] for key in study.settled}))
    store = None if checkpoint is None else Checkpoint(checkpoint, parties)
    saved = store.measured(SAVED, plan) if store is not None and resume else None
    stopped = store.measured(STOPPED, plan) if store is not None and resume else None
    if store is not None:
        store.forget(STOPPED)  # the parties stand there once
    if saved is not None and len(saved["sums"]) < study.least:
        # nothing is fitted to less: the same is asked again, and recorded answers are
        # repeated
        saved = None
    split = len(study.grid.groups) > 1
    if secret is None:
        secret = (
            store.secret(resume=resume)
            if store is not None and split
            else os.urandom(32)
        )
    new_server = partial(_Server, study, parties, chunk, secret, watch)
    if stopped is not None:
        try:
            return _stoppable(new_server(), store, plan, saved, stopped, min_holders)
        except _StandElsewhere:
            pass  # as after a stop that nobody saved: from the last release on
    return _stoppable(new_server(), store, plan, saved, None, min_holders)


def _stoppable(
    server: "_Server",
    store: Checkpoint | None,
    plan: dict[str, Any],
    saved: dict[str, Any] | None,
    stopped: dict[str, Any] | None,
    min_holders: int | None,
) -> Measurements:
    """The same, with a note of where the server stands if it is stopped between two
    asks.
    """
    begin_from = saved if stopped is None else stopped["record"]
    try:
        measurements = _measure(server, store, plan, begin_from, stopped, min_holders)
    except KeyboardInterrupt:
        if store is not None and server.between_asks:
            store.note(STOPPED, server.position() | {"plan": plan})
        raise
    if store is not None:
        store.over(STOPPED)
    return measurements


def _measure(
    server: "_Server",
    store: Checkpoint | None,
    plan: dict[str, Any],
    saved: dict[str, Any] | None,
    stopped: dict[str, Any] | None,
    min_holders: int | None,
) -> Measurements:
    study = server.study
    if saved is None:
        schemas = {name: schema.to_dict() for name, schema in study.schemas.items()}
        begin = Begin(
            family=study.family, config=study.told_settings(), schemas=schemas
        )
        if len(study.grid.groups) > 1:
            record = server.over_columns(begin)
        else:
            record = server.over_rows(begin, min_holders)
    else:
        record = Record(**saved)
    if stopped is not None:
        server.words = stopped["words"]
        server.under_way = stopped["stage"]
    measurements = Measurements(study, record)
    server.released(record)
    while (record := measurements.record).n_released < len(
        study.releases
    ) and not record.ended:
        try:
            measurements.record = server.next(measurements)
        except (BudgetExceeded, MessageError, PartyError) as refusal:
            if stopped is not None and not server.answered:
                raise _StandElsewhere from refusal
            ends = saved is not None or isinstance(refusal, BudgetExceeded | _Gone)
            if record.n_released < study.least or not ends:
                raise
            gone = refusal.names if isinstance(refusal, _Gone) else []
            measurements.record = replace(
                record, ended=str(refusal), lost=server.releasing, gone=gone
            )
        if store is not None:
            store.note(SAVED, dict(vars(measurements.record)) | {"plan": plan})
        server.released(measurements.record)
    return measurements


class _Gone(PartyError):  # noqa: N818  (a state, not a fault)
    def __init__(self, names: list[str]) -> None:
        super().__init__(f"{', '.join(names)} went away")
        self.names = names


class _StandElsewhere(Exception):  # noqa: N818  (a state, not a fault)
    """The parties have begun anew since the server was stopped."""


class _Server:
    """One stage after the other. `releasing`: whether the last ask was one for a
    release. `between_asks`: whether the watcher is called, so that all who were asked
    have answered.
    """

    def __init__(
        self,
        study: Study[Any],
        parties: Parties,
        chunk: int,
        secret: bytes,
        watch: Watcher | None,
    ) -> None:
        self.study = study
        self.parties = parties
        self.chunk = chunk
        self.secret = secret
        # what the holders told each other, for the next ask of each
        self.words: Inboxes = {}
        self.releasing = self.staying = False
        self.watch = watch
        self.between_asks = False
        self.answered = False  # anything that was asked of a stage
        self.record: Record | None = None
        # of a stage whose product is not complete: its terms, and the chunks so far
        self.under_way: dict[str, Any] | None = None

    def position(self) -> dict[str, Any]:
        """Where the server stands between two asks."""
        return {
            "record": dict(vars(self.record)),
            "words": self.words,
            "stage": self.under_way,
        }

    def released(self, record: Record) -> None:
        """These releases are made; the fit is one more step."""
        self.record = record
        releases = len(self.study.releases)
        prices = partial(release_prices, self.study, record)
        self._report(Progress(record.n_released, releases + 1, prices))

    def _report(self, progress: Progress) -> None:
        if self.watch is None:
            return
        self.between_asks = True
        self.watch(progress)
        self.between_asks = False

    def over_rows(self, begin: Begin, min_holders: int | None) -> Record:
        """Ask until all who are still there have agreed with each other."""
        present = Present(self.parties, min_holders)
        begun = public_values(present.ask(begin))
        _same_number(begun, None)
        noise = _most_noise(begun)
        bits = self.study.ring(None, noise).bits
        while True:
            keys = {name: info["key"] for name, info in begun.items()}
            agree = Agree(
                keys=keys, noise=noise, bits=bits, chunk=1, seeds={}, cells=[]
            )
            agreements = present.ask(dict.fromkeys(begun, agree))
            if agreements.keys() == begun.keys():
                self.words = relayed(agreements)
                return Record(begun, noise)
            begun = {name: begun[name] for name in agreements}

    def over_columns(self, begin: Begin) -> Record:
        """Align, and agree with all of them; the seeds of their masks go with it."""
        align = align_union if self.study.union else align_grid
        cells = align(self.parties, self.study.grid.groups)
        begun = public_values(self.parties.ask(begin))
        _same_number(begun, cells)
        cell_holders = [[people, list(holders)] for holders, people in cells.items()]
        record = Record(begun, _most_noise(begun), cell_holders)
        self.words = relayed(self.parties.ask(self._agreements(record)))
        return record

    def _agreements(self, record: Record) -> dict[str, Agree]:
        cells = record.shared
        keys = {name: info["key"] for name, info in record.begun.items()}
        bits = self.study.ring(record.people, record.noise).bits
        same: dict[str, Any] = {
            "keys": keys,
            "noise": record.noise,
            "bits": bits,
            "chunk": self.chunk,
        }
        return {
            name: Agree(
                **same,
                seeds=(
                    {}
                    if self.study.encrypted
                    else seeds_for(name, cells, keys, self.secret)
                ),
                cells=cells_of(name, cells),
            )
            for name in record.begun
        }

    def next(self, measurements: Measurements) -> Record:
        """The release after these."""
        record = measurements.record
        study = self.study
        self.releasing = False
        self.staying = record.n_released >= study.least
        name = [*study.releases][record.n_released]
        holders = [*record.begun]
        under_way, self.under_way = self.under_way, None
        terms = (
            study.terms(name, measurements) if under_way is None else under_way["terms"]
        )
        stage = measurements.next(name, terms)
        if terms and under_way is None:
            asks = {
                one: Propose(stage=name, terms=terms, inbox=self._inbox(one))
                for one in holders
            }
            self.words = relayed(self.ask(asks))
        corrections: dict[str, dict[str, Tensor]] = {}
        if stage.product is not None:
            about = digest(
                record.n_released, name, record.noise[record.n_released], terms
            )

            def watch(chunks: int, total: int, inboxes: Inboxes) -> None:
                self.words = inboxes
                self.under_way = {"terms": terms, "chunks": chunks}
                self._report(Progress(chunks, total, dict, "multiplying"))

            told = (self, study.grid, stage.product, record.shared)
            agreements = self._agreements(record)
            done = 0 if under_way is None else under_way["chunks"]
            if study.encrypted:
                from understudy.protocols.joint.encrypted import relay

                self.words = relay(
                    *told, agreements, self.words, swapped_chunks=done, watch=watch
                )
            else:
                self.words, corrections = multiply(
                    *told,
                    agreements,
                    self.secret,
                    about,
                    self.words,
                    swapped_chunks=done,
                    watch=watch,
                )
            self.under_way = None
        self.releasing = True
        replies = self.ask(
            {
                one: Release(
                    stage=name,
                    inbox=self._inbox(one),
                    corrections=corrections.get(one, {}),
                )
                for one in holders
            }
        )
        self.words = {}
        sent = {one: reply.parts.value for one, reply in replies.items()}
        sums = (
            _chosen(sent)
            if isinstance(stage, Choice)
            else self._sums(measurements, stage, sent)
        )
        return replace(
            record, terms=record.terms | {name: terms}, sums=record.sums | {name: sums}
        )

    def _inbox(self, name: str) -> dict[str, Tensor]:
        return dict(self.words.get(name, {}))

    @property
    def names(self) -> tuple[str, ...]:
        return self.parties.names

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        """All who take part; without one of them nothing can be unmasked."""
        if not self.staying:
            replies = self.parties.ask(message)
            self.answered = True
            return replies
        asks = (
            dict.fromkeys(self.names, message)
            if isinstance(message, Ask)
            else dict(message)
        )
        replies = self.parties.ask(asks, min_holders=0)
        gone = [name for name in asks if name not in replies]
        if gone:
            raise _Gone(gone)
        self.answered = True
        return replies

    def _sums(
        self, measurements: Measurements, stage: Stage[Any], sent: Mapping[str, Any]
    ) -> dict[str, Tensor]:
        """Every block: the masks cancel, and the noise of all who have a part in it is
        left.
        """
        ring = self.study.ring(measurements.record.people, measurements.record.noise)
        sums = dict[str, Tensor]()
        for key, block in stage.blocks.items():
            total = np.zeros(block.shape, dtype=ring.dtype)
            for name in measurements.holders(block):
                part = sent[name].get(key) if isinstance(sent[name], dict) else None
                if (
                    not isinstance(part, Tensor)
                    or part.dtype != torch.int64
                    or part.shape != block.shape
                ):
                    raise MessageError(
                        f"{name}: a part is not {block.shape} whole numbers. It was "
                        "discarded."
                    )
                total += ring.words(part)
            sums[key] = ring.signed(total)
        return sums


def release_prices(study: Study[Any], record: Record) -> dict[str, float]:
    """ε of the releases so far, by party: what each ledger holds, without an ask."""
    uses = (
        study.pricing.spend(number, record.noise[number])
        for number in range(record.n_released)
    )
    spend = sum(uses, Counter[DpEvent]())
    return {
        name: epsilon(spend, stated["budget"]["delta"])
        for name, stated in record.begun.items()
        if stated["budget"] is not None
    }


def _most_noise(begun: Begun) -> list[float]:
    """Of each release the most noise that a party needs."""
    return [
        max(each)
        for each in zip(*(info["needed"] for info in begun.values()), strict=True)
    ]


def _same_number(begun: Begun, cells: Cells | None) -> None:
    """Refuse parties that share other people than they were aligned on, or state a
    number in a horizontal partition (None).
    """
    for name, info in begun.items():
        if info["people"] != (
            None
            if cells is None
            else sum(cells[cell] for cell in cells if name in cell)
        ):
            raise PartyError(
                "The parties do not agree on how many people they share.",
                effect=Effect.NOTHING_CHARGED,
            )


def _chosen(sent: Mapping[str, Any]) -> dict[str, Any]:
    odd = [
        name
        for name, value in sent.items()
        if not isinstance(value, dict) or "chosen" not in value
    ]
    if odd:
        raise MessageError(f"{odd[0]} has chosen nothing. All was discarded.")
    return {name: value["chosen"] for name, value in sent.items()}
