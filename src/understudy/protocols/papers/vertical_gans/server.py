"""The server of the vertical GANs: a generator, begun or resumed, taken through its
rounds, saved.
"""

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from understudy.data.kinds import AnySchema, protected_unit, side_by_side
from understudy.generators.parts import GeneratorParts
from understudy.ground.errors import PartyError
from understudy.models.kernels.clients import RmsProp
from understudy.models.nets.gan import BranchedGenerator
from understudy.models.network import first_weights
from understudy.privacy.accounts.budget import ADJACENCIES
from understudy.privacy.accounts.statement import PartyPrivacy, PrivacyStatement
from understudy.privacy.gradients.limits import WEIGHT, sound
from understudy.protocols.core import Parties, Watcher, public_values, settled
from understudy.protocols.core.alignment import align_people
from understudy.protocols.core.loop import Checkpoint, Outcome, card_of, run_rounds
from understudy.protocols.papers.vertical_gans.party import (
    GanBegin,
    GanSettings,
    output_of,
)


class GanServer:
    """The generator, its optimiser and its public draws: post-processing of the
    parties' paid answers.
    """

    def __init__(
        self,
        config: GanSettings,
        parties: Parties,
        schemas: Mapping[str, AnySchema],
        *,
        checkpoint: Path | None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.config = config
        self.parties = parties
        self.device = torch.device(device)
        self.schemas = {name: schemas[name] for name in parties.names}
        outputs = {name: output_of(schema) for name, schema in self.schemas.items()}
        with first_weights(config.seed):
            network = BranchedGenerator.for_parties(
                outputs, latent=config.latent, common=config.common
            )
        self.network = network.to(device)
        self.optimizer = RmsProp(self.network.parameters(), lr=config.learning_rate)
        self.draws = torch.Generator().manual_seed(config.seed)
        self.store = None if checkpoint is None else Checkpoint(checkpoint, parties)
        self.begun: dict[str, dict[str, Any]] = {}
        self.extra_state: dict[str, Any] = {}  # what else a protocol saves with a round
        # what of a protocol has no formal guarantee
        self.unguarded: tuple[str, ...] = ()
        # steps of a round whose samples all parties share
        self.common: int | None = None
        self.done = 0

    def begin(
        self,
        ask: Callable[[str], GanBegin],
        *,
        resume: bool,
        align: Callable[[Parties], object] = align_people,
    ) -> None:
        """Align the parties' people and tell each party the settings, or go on from the
        checkpoint.
        """
        if (
            self.store is not None
            and resume
            and (saved := self.store.load()) is not None
        ):
            self.done, state = saved
            self.begun = state["begun"]
            self.extra_state = state.get("held", {})
            self.network.load_state_dict(state["network"])
            self.draws.set_state(state["draws"])
            self.optimizer.load(state["squares"])
        else:
            align(self.parties)
            replies = self.parties.ask({name: ask(name) for name in self.parties.names})
            self.begun = public_values(replies)
            if self.extra_state:  # paid for before the first round, so saved before it
                self._save()
        if len({info["people"] for info in self.begun.values()}) != 1:
            raise PartyError("The parties do not agree on how many people they share.")

    def secret(self, size: int) -> bytes:
        """Fresh bytes from the system that no outsider can know, kept nowhere; in a
        rehearsal by the seed.
        """
        if all("seed" in info["noise"]["rehearsal"] for info in self.begun.values()):
            return bytes(torch.randint(256, (size,), generator=self.draws).tolist())
        return secrets.token_bytes(size)

    def run(self, learn: Callable[[int], None], watch: Watcher | None) -> Outcome:
        """All rounds; `learn` leaves the generator's gradient in its parameters. A
        spent budget ends it.
        """

        def step(round: int) -> None:
            self.optimizer.zero_grad()
            learn(round)
            self.optimizer.step()
            self.done = round

        end_reason = run_rounds(
            self.config.rounds,
            step,
            done=self.done,
            save=self._save,
            every=self.config.checkpoint_every,
            watch=watch,
            spent=lambda: self.statement().per_party(),
        )
        self._weights()
        privacy = self.statement()
        people = next(iter(self.begun.values()))["people"]
        schema = side_by_side(self.schemas)
        owners = {
            column: name for name, part in self.schemas.items() for column in part.names
        }
        owners = getattr(schema, "owners", owners)
        card = card_of(
            self.config.protocol,
            self.config,
            self.done,
            end_reason,
            privacy,
            owners=owners,
            people=people,
        )
        return Outcome(
            GeneratorParts(self.network.cpu().eval(), schema, card), privacy, people
        )

    def statement(self) -> PrivacyStatement:
        """What was paid, by the ledgers' own word: a round that was paid for and then
        lost is in it.
        """
        spends = settled(self.parties)
        stated = [
            PartyPrivacy.stated(n, info, spends[n], rounds=max(1, self.done))
            for n, info in self.begun.items()
        ]
        common = None if self.common is None else self.done * self.common
        adjacency = ADJACENCIES[protected_unit(self.schemas)]
        return PrivacyStatement(
            parties=tuple(stated),
            adjacency=adjacency,
            unguarded=self.unguarded,
            common_steps=common,
        )

    def _save(self) -> None:
        if self.store is None or not (self.done or self.extra_state):
            return
        squares = [square.cpu() for square in self.optimizer.squares]
        draws = self.draws.get_state()
        state = {
            "network": self._weights(),
            "squares": squares,
            "draws": draws,
            "begun": self.begun,
        }
        self.store.save(
            self.done, state | ({"held": self.extra_state} if self.extra_state else {})
        )
        self.store.over()

    def _weights(self) -> dict[str, Tensor]:
        """The generator's weights, on the host. PartyError where they are none that a
        party takes (`limits.sound`).
        """
        weights = {
            name: value.cpu() for name, value in self.network.state_dict().items()
        }
        if any(sound(value, WEIGHT) is None for value in weights.values()):
            raise PartyError(
                f"round {self.done}: a weight of the generator is not finite, or "
                f"beyond {WEIGHT:g}. "
                "What was paid stands in the ledgers; nothing of this model is saved."
            )
        return weights
