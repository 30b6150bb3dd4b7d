"""The tensor work of a VertiGAN round at one party: private critic steps, then the generator's gradient.

Algorithm 2, lines 4–16 of the VertiGAN paper (see `verti_gan.py`). On a GPU the whole round is one captured
graph: batches are padded to a fixed size and masked, and only indices, latent points and weights are copied in.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from understudy.errors import PrivacyError
from understudy.models.gan import BranchedGenerator, Critic
from understudy.models.image_gan import ImageCritic
from understudy.privacy.critic import private_critic_gradient, require_sound
from understudy.privacy.formed_critic import formed_critic_gradient
from understudy.privacy.rng import FastRng, Normals, Rng


class CriticRound:
    """One party's critic, its optimiser, and a round of both.

    Guarantee: rows enter through `private_critic_gradient` alone, or, where an image's critic has no closed form,
    through `formed_critic_gradient`. What is paired with a row there (a synthetic row,
    the mixing weight) is drawn from the party's own randomness: public ones, handed out by place in the batch,
    would shift when a person leaves, and then more than that person's gradient would move.
    Edges: an empty batch is noise alone; a batch above the graph's size, and every batch of images, runs outside
    the graph.
    """

    def __init__(
        self,
        network: BranchedGenerator,
        name: str,
        critic: Critic | ImageCritic,
        rows: Tensor,
        *,
        rng: Rng,
        batch: int,
        clip_norm: float,
        noise_multiplier: float,
        penalty: float,
        learning_rate: float,
    ) -> None:
        self.critic: Any = critic
        self.network, self.name, self.rows, self.rng = network, name, rows, rng
        self.batch, self.clip_norm, self.noise_multiplier, self.penalty = (
            batch,
            clip_norm,
            noise_multiplier,
            penalty,
        )
        self.device = rows.device
        require_sound(rows)
        self.optimizer = torch.optim.RMSprop(
            critic.parameters(), lr=learning_rate, capturable=self.device.type == "cuda"
        )
        for (
            parameter
        ) in critic.parameters():  # so that a saved state has the same shape before the first step
            self.optimizer.state[parameter] = {
                "step": torch.zeros((), device=self.device),
                "square_avg": torch.zeros_like(parameter),
            }
        self._graph: _CapturedRound | None = None

    @classmethod
    def from_settings(
        cls,
        config: Any,
        network: BranchedGenerator,
        name: str,
        critic: Critic | ImageCritic,
        rows: Tensor,
        *,
        rng: Rng,
        noise_multiplier: float,
    ) -> "CriticRound":
        """As a protocol's config says; without privacy nothing is clipped."""
        return cls(
            network,
            name,
            critic,
            rows,
            rng=rng,
            batch=config.batch,
            clip_norm=config.clip_norm if config.private else math.inf,
            noise_multiplier=noise_multiplier,
            penalty=config.penalty,
            learning_rate=config.learning_rate,
        )

    def __call__(self, batches: Sequence[Tensor], seed: int) -> Tensor:
        """Train the critic on these batches of rows; the generator's gradient under it, as one vector."""
        fits = isinstance(self.critic, Critic) and max(map(len, batches)) <= _capacity(self.batch)
        if self.device.type == "cuda" and fits:
            if self._graph is None or self._graph.steps != len(batches):
                self._graph = _CapturedRound(self, len(batches))
            return self._graph(batches, seed)
        sizes = [len(batch) for batch in batches]
        z, mix, noise = self.draw(sum(sizes), len(batches))
        mixes = torch.split(mix, sizes)
        with torch.no_grad():
            fake = torch.split(self.network.branch(self.name, z), sizes)
            for step, batch in enumerate(batches):
                self.step(self.rows[batch.to(self.device)], fake[step], mixes[step], noise)
        return self.generator_gradient(self.latent(seed))

    def draw(self, rows: int, steps: int) -> tuple[Tensor, Tensor, "Drawn"]:
        """All randomness of a round at once: latent points and mixing weights of its rows, and its noise."""
        points, size = rows * self.network.latent, sum(p.numel() for p in self.critic.parameters())
        normals = self.rng.normal(points + (steps * size if self.noise_multiplier else 0), device=self.device)
        z = normals[:points].view(rows, self.network.latent)
        return z, self.rng.uniform(rows, device=self.device).float(), Drawn(normals[points:])

    def latent(self, seed: int) -> Tensor:
        """Public latent points for the generator's gradient, the same at every party."""
        return FastRng(seed).normal(self.batch, self.network.latent, device=self.device)

    def step(
        self, real: Tensor, fake: Tensor, mix: Tensor, noise: Normals, mask: Tensor | None = None
    ) -> None:
        """One private critic step."""
        settings: dict[str, Any] = {
            "clip_norm": self.clip_norm,
            "noise_multiplier": self.noise_multiplier,
            "expected_batch": self.batch,
            "penalty": self.penalty,
            "rng": noise,
            "mask": mask,
        }
        if isinstance(self.critic, Critic):
            layers, slope = self.critic.layers, self.critic.slope
            pairs = private_critic_gradient(layers, real, fake, mix, slope=slope, **settings)
            gradient = [part for pair in pairs for part in pair]
        else:
            gradient = formed_critic_gradient(self.critic, real, fake, mix, **settings)
        for parameter, part in zip(self.critic.parameters(), gradient, strict=True):
            parameter.grad = part
        self.optimizer.step()

    def generator_gradient(self, latent: Tensor) -> Tensor:
        """∇ of L_G = −D(G(z)) over the common layers and this branch: post-processing of the critic."""
        with torch.enable_grad():
            loss = -self.critic(self.network.branch(self.name, latent)).mean()
            parts = torch.autograd.grad(loss, list(self.network.parameters()))
        return torch.cat([part.flatten() for part in parts])

    def state_dict(self) -> dict[str, Any]:
        """The critic and its optimiser."""
        parameters = dict(self.critic.named_parameters())
        squares = {name: self.optimizer.state[p]["square_avg"] for name, p in parameters.items()}
        step = self.optimizer.state[next(iter(parameters.values()))]["step"]
        return {"critic": self.critic.state_dict(), "squares": squares, "step": float(step)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`; in place, so that a captured graph stays valid."""
        self.critic.load_state_dict(state["critic"])
        for name, parameter in self.critic.named_parameters():
            self.optimizer.state[parameter]["square_avg"].copy_(state["squares"][name])
            self.optimizer.state[parameter]["step"].fill_(state["step"])


class Drawn:
    """Normals that were drawn already, handed out in order; each once."""

    def __init__(self, normals: Tensor) -> None:
        self._left = normals

    def normal(self, *shape: int, device: torch.device | str = "cpu") -> Tensor:
        """The next of them."""
        part, self._left = self._left[: (size := math.prod(shape))], self._left[size:]
        if part.numel() != size or part.device != torch.device(device):
            raise PrivacyError("more noise was asked for than was drawn. Nothing was computed.")
        return part.view(shape)


def _capacity(batch: int) -> int:
    """Room for a Poisson batch of this mean: eight standard deviations above, rounded up to 32."""
    return 32 * math.ceil((batch + 8 * math.sqrt(batch) + 8) / 32)


class _CapturedRound:
    """A round as one CUDA graph over static buffers."""

    def __init__(self, work: CriticRound, steps: int) -> None:
        self.work, self.steps, self.room = work, steps, _capacity(work.batch)
        device, latent = work.device, work.network.latent
        self.places = torch.zeros(steps, self.room, dtype=torch.int64, device=device)
        self.present = torch.zeros(steps, self.room, device=device)
        self.latent = torch.zeros(work.batch, latent, device=device)
        self.graph = torch.cuda.CUDAGraph()
        saved = _clone(work.state_dict())
        rng_state = work.rng.state_dict()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries allocate on first use, which a capture cannot
                self._compute()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self.graph):
            self.gradient = self._compute()
        work.load_state_dict(saved)
        if work.rng.seeded:
            work.rng.load_state_dict(rng_state)

    def __call__(self, batches: Sequence[Tensor], seed: int) -> Tensor:
        places = torch.zeros(self.steps, self.room, dtype=torch.int64)
        present = torch.zeros(self.steps, self.room)
        for step, batch in enumerate(batches):
            places[step, : len(batch)] = batch
            present[step, : len(batch)] = 1
        self.places.copy_(places, non_blocking=True)
        self.present.copy_(present, non_blocking=True)
        self.latent.copy_(self.work.latent(seed))
        self.graph.replay()
        return self.gradient.clone()

    def _compute(self) -> Tensor:
        work = self.work
        z, mix, noise = work.draw(self.steps * self.room, self.steps)
        mixes = mix.view(self.steps, self.room)
        with torch.no_grad():
            fake = work.network.branch(work.name, z).view(self.steps, self.room, -1)
            for step in range(self.steps):
                work.step(work.rows[self.places[step]], fake[step], mixes[step], noise, self.present[step])
        return work.generator_gradient(self.latent)


def _clone(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, Mapping):
        return {key: _clone(value) for key, value in state.items()}
    return state
