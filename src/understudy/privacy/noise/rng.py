"""Where randomness comes from: a stream cipher for noise that protects, torch's
generator for the rest.

Noise protects only while nobody can guess it: a 32-bit seed or a Mersenne twister,
whose state follows from 624 outputs, gives the sum under the noise away. `SecureRng`
therefore reads the keystream of a cipher under a key from the operating system:
AES-256-CTR on the host, ChaCha20 on a GPU (`ciphers.py`).

Normals: Box, Muller, "A note on the generation of random normal deviates" (1958). The
radius takes 64 bits (63 on a GPU) and double precision, so that the tail reaches 9.4 σ
and no radius near 0 is skipped: with 32 bits noise would end at 6.7 σ, which 10⁹
coordinates would notice. The angle takes 32 bits.

Cost of a float32 normal on one Neoverse-N1 core: 16 to 19 ns, of which 2.4 are AES;
`torch.randn` takes 20.
"""

import hashlib
import math
import os
import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from understudy.ground.check import in_range
from understudy.ground.errors import ConfigError, Effect, PrivacyError
from understudy.privacy.noise.ciphers import (
    BLOCK,
    SMALL,
    ChaCha20,
    Keystream,
    NeverCopied,
    keystream,
)

Device = torch.device | str

_CHUNK = 1 << 14  # pairs of normals per piece: its buffers stay in a core's cache
_BYTES_PER_PAIR = 12  # of normals: 8 for the radius, 4 for the angle
_ANGLE = np.float32(2 * math.pi / 2**32)


def plainly(tensor: Tensor) -> Any:
    """The tensor itself on a GPU, numpy's view of its memory on the host: a few numbers
    take a fraction of the time.
    """
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


class Normals(Protocol):
    """What additive noise is drawn from."""

    def normal(self, *shape: int, device: Device = "cpu") -> Tensor:
        """Standard normals, float32."""
        ...


class Rng(ABC):
    """What a mechanism draws from: uniforms and integers from 64-bit words. `name` goes
    into the model card.
    """

    name: str
    secure: bool  # outputs tell nothing about other outputs
    _seeded: bool

    @property
    def seeded(self) -> bool:
        """Whether a short seed repeats the draws: fit for tests, refused where a ledger
        is real.
        """
        return self._seeded

    def require_secret(self, holder: str, *, effect: Effect) -> None:
        """PrivacyError where noise could be repeated or guessed: for a real ledger."""
        if self.seeded or not self.secure:
            problem = (
                f"noise from {self.name} could be repeated or guessed here, and this "
                "ledger is real"
            )
            raise PrivacyError(f"{holder}: {problem}.", effect=effect)

    @abstractmethod
    def _words(self, n: int, device: torch.device) -> Any:
        """n random words, plainly: int64, all 64 bits random, nobody else's."""

    @abstractmethod
    def normal(self, *shape: int, device: Device = "cpu") -> Tensor:
        """Standard normals, float32."""

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """All that `load_state_dict` needs to continue exactly."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...

    def uniform(self, *shape: int, device: Device = "cpu") -> Tensor:
        """Uniform in [0, 1), float64, 53 random bits each."""
        n = math.prod(shape)
        words = torch.as_tensor(self._words(n, torch.device(device)))
        mantissas = (words >> 11).bitwise_and_(2**53 - 1)
        fractions = mantissas.to(torch.float64).mul_(2**-53)
        return fractions.view(shape)

    def integers(
        self,
        high: int,
        *shape: int,
        device: Device = "cpu",
    ) -> Tensor:
        """Uniform in {0, …, high − 1}, int64, without bias."""
        n = math.prod(shape)
        values = self.below(high, n, device)
        # numpy's would be a tensor without a stride, which cannot be viewed as another
        # type
        if not len(values):
            return torch.empty(shape, dtype=torch.int64, device=device)
        return torch.as_tensor(values).view(shape)

    def below(
        self,
        high: int,
        n: int,
        device: Device,
    ) -> Any:
        """`integers`, n of them, plainly: for mechanisms that compare them and go on,
        many times for one draw. Edges: refuses words above the largest multiple of
        `high` and draws again, so a GPU waits here, unless `high` is a power of two.
        """
        if not 1 <= high <= 2**63:
            raise ConfigError(f"high must lie between 1 and 2**63, not {high!r}.")
        device = torch.device(device)
        excess = 2**63 % high
        words = self._words(n, device)
        if not excess:  # a power of two
            words &= high - 1
            return words
        words &= 2**63 - 1
        # `any` of a few takes longer
        library: Any = np if device.type == "cpu" else torch
        while library.count_nonzero(refused := words >= 2**63 - excess):
            n_refused = int(refused.sum())
            redrawn = self._words(n_refused, device)
            words[refused] = redrawn & (2**63 - 1)
        words %= high
        return words

    def bytes(self, n: int) -> bytes:
        n_words = -(-n // 8)
        words = self._words(n_words, torch.device("cpu"))
        return words.tobytes()[:n]  # type: ignore[no-any-return]


class SecureRng(NeverCopied, Rng):
    """A cryptographic generator: AES-256-CTR on the host, ChaCha20 on a GPU.

    Guarantee: no keystream block is used twice. A draw reserves its blocks under a lock
    and is from then on a function of the key and its first block, so threads may share
    a generator, and neither the number of cores nor earlier draws of other shapes
    change what a state yields.
    Edges: a key given by hand is taken to be secret and used for one generator only; a
    seed is neither (`from_seed`: for tests and rehearsals). A forked child takes a
    fresh key (a seeded one keeps its own), and a generator cannot be copied or pickled:
    two with one key would make the same noise twice. The state holds the key, and who
    reads it can subtract all noise, past and to come: keep it where the rows are. A run
    continued from a state repeats the noise made after that state: it must then send
    the same answers. Draw once on a GPU before a CUDA graph captures a draw; each
    replay then takes new blocks.
    """

    name = "AES-256-CTR (host), ChaCha20 (GPU)"
    secure = True

    def __init__(self, key: bytes | None = None):
        if key is not None and len(key) != 32:
            raise ConfigError(f"key must be 32 bytes, not {len(key)}.")
        self._lock = threading.Lock()
        self._key = key or os.urandom(32)
        self._pid = os.getpid()
        self._seeded = False
        self._block = 0  # the next AES block
        self._keystream = Keystream()
        self._streams: dict[str, ChaCha20] = {}  # one for each GPU that was drawn on
        # positions from a state, for GPUs not drawn on yet
        self._waiting: dict[str, int] = {}

    @classmethod
    def from_seed(cls, seed: int) -> "SecureRng":
        """A generator that anybody who guesses the seed can repeat: for tests and
        rehearsals.
        """
        rng = cls(hashlib.sha256(f"understudy seed {seed}".encode()).digest())
        rng._seeded = True
        return rng

    def normal(self, *shape: int, device: Device = "cpu") -> Tensor:
        n = math.prod(shape)
        device = torch.device(device)
        pairs = -(-n // 2)
        if device.type != "cpu":
            words = self._stream(device).words(3 * pairs)
            return _box_muller(words)[:n].view(shape)
        out = np.empty(2 * pairs, np.float32)
        if pairs <= _CHUNK:
            _fill_normals(out, self._read(_BYTES_PER_PAIR * pairs))
        else:
            self._fill_in_chunks(out)
        return torch.from_numpy(out)[:n].view(shape)

    def _fill_in_chunks(self, out: NDArray[np.float32]) -> None:
        """Normals in chunks of pairs, on all threads: the cipher and the ufuncs let go
        of the interpreter lock.
        """
        pairs = len(out) // 2
        with self._lock:
            key, first = self._reserve(_BYTES_PER_PAIR * pairs)

        def fill(start: int) -> None:
            chunk = out[2 * start : 2 * (start + _CHUNK)]
            block = first + start * _BYTES_PER_PAIR // BLOCK
            size = _BYTES_PER_PAIR * len(chunk) // 2
            _fill_normals(chunk, keystream(key, block, size))

        starts = range(0, pairs, _CHUNK)
        threads = torch.get_num_threads()
        if threads == 1:
            for start in starts:
                fill(start)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(fill, starts))

    def state_dict(self) -> dict[str, Tensor]:
        with self._lock:
            state = {
                "key": torch.tensor(list(self._key), dtype=torch.uint8),
                "seeded": torch.tensor(self._seeded),
                "host": torch.tensor(self._block),
            }
            for name, block in self._waiting.items():
                state[name] = torch.tensor(block)
            for name, stream in self._streams.items():
                state[name] = torch.tensor(int(stream.counter))
            return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        with self._lock:
            self._key = bytes(state["key"].tolist())
            self._pid = os.getpid()
            self._block = int(state["host"])
            self._seeded = bool(state["seeded"])
            gpus = [name for name in state if name.startswith("gpu")]
            self._waiting = {name: int(state[name]) for name in gpus}
            # in place: a captured graph may hold these tensors
            for name, stream in self._streams.items():
                counter = self._waiting.pop(name, 0)
                stream.restart(_subkey(self._key, name), counter=counter)

    def _reserve(self, size: int) -> tuple[bytes, int]:
        """Take the blocks of `size` bytes out of the host's stream: the key, and the
        first of them. Under the lock.
        """
        if os.getpid() != self._pid and not self._seeded:
            self._key = os.urandom(32)
            self._pid = os.getpid()
            self._block = 0
        first = self._block
        self._block += -(-size // BLOCK)
        return self._key, first

    def _read(self, size: int) -> NDArray[np.uint8]:
        """The next `size` bytes of the host's stream."""
        with self._lock:
            key, first = self._reserve(size)
            if size <= SMALL:
                return self._keystream.read(key, first, size)
        return keystream(key, first, size)

    def _stream(self, device: torch.device) -> ChaCha20:
        device = _indexed(device)
        name = f"gpu{device.index or 0}"
        with self._lock:
            if name not in self._streams:
                self._streams[name] = ChaCha20(
                    _subkey(self._key, name),
                    counter=self._waiting.pop(name, 0),
                    device=device,
                )
            return self._streams[name]

    def _words(self, n: int, device: torch.device) -> Any:
        if device.type == "cpu":
            stream = self._read(8 * n)
            return stream.view(np.int64)
        words = self._stream(device).words(2 * n)
        return words.view(torch.int64)


class FastRng(Rng):
    """torch's generator behind the same face: for latent draws, initial weights and
    tests. Edges: not for noise that protects anybody, as later draws follow from
    earlier ones.
    """

    name = "torch.Generator (not secure)"
    secure = False

    def __init__(self, seed: int | None = None):
        self._seeded = seed is not None
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little") >> 1
        self._seed = seed
        self._generators: dict[str, torch.Generator] = {}

    def normal(self, *shape: int, device: Device = "cpu") -> Tensor:
        generator = self._generator(device)
        return torch.randn(shape, generator=generator, device=device)

    def uniform(self, *shape: int, device: Device = "cpu") -> Tensor:
        return torch.rand(
            shape,
            generator=self._generator(device),
            device=device,
            dtype=torch.float64,
        )

    def state_dict(self) -> dict[str, Tensor]:
        states = {
            name: generator.get_state() for name, generator in self._generators.items()
        }
        return {
            "seed": torch.tensor(self._seed),
            "seeded": torch.tensor(self._seeded),
            **states,
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._seed = int(state["seed"])
        self._seeded = bool(state["seeded"])
        self._generators = {}
        for name in state.keys() - {"seed", "seeded"}:
            generator = self._generator(name)
            generator.set_state(state[name])

    def _generator(self, device: Device) -> torch.Generator:
        name = str(_indexed(device))
        if name not in self._generators:
            generator = torch.Generator(device)
            self._generators[name] = generator.manual_seed(self._seed)
        return self._generators[name]

    def _words(self, n: int, device: torch.device) -> Any:
        halves = torch.empty(
            2,
            n,
            dtype=torch.int64,
            device=device,
        )
        halves.random_(0, 2**32, generator=self._generator(device))
        upper, lower = halves
        return plainly((upper << 32) | lower)


def poisson_samples(
    rng: Rng,
    n: int,
    rate: float,
    times: int,
) -> list[Tensor]:
    """Each of n people, independently, with probability `rate`, so many times over:
    each time the drawn, ascending.

    All n · times yes/no draws form one sequence, and the gaps between two yes are
    geometric: as many random numbers are needed as people are drawn, not as there are
    people (Fan, Muller, Rezucha 1962).
    Guarantee: people are drawn independently of one another and of all rows (the
    Poisson sampling that amplifies); the rate holds to 2⁻⁵³.
    Edges: rate 0 draws nobody, rate 1 everybody. The number drawn is as secret as the
    rows.
    """
    in_range(0, 1, rate=rate)
    if rate == 0:
        return [torch.arange(0) for _ in range(times)]
    if rate == 1:
        return [torch.arange(n) for _ in range(times)]
    positions = _bernoulli_positions(rng, n * times, rate)
    if not n:
        return [positions] * times
    bounds = torch.searchsorted(positions, torch.arange(1, times) * n)
    samples = torch.tensor_split(positions, bounds)
    return [sample % n for sample in samples]


def _bernoulli_positions(
    rng: Rng,
    length: int,
    rate: float,
) -> Tensor:
    """Where the successes are among so many Bernoulli(rate) trials, ascending."""
    mean = length * rate
    n_gaps = math.ceil(mean + 8 * math.sqrt(mean) + 8)
    positions = torch.tensor([-1])
    while int(positions[-1]) < length - 1:
        # 1 − u is exact, as u is a multiple of 2⁻⁵³: log1p would gain nothing and is
        # not vectorised.
        logs = (1 - rng.uniform(n_gaps)).log_()
        gaps = logs.div_(math.log1p(-rate)).clamp_(max=length)
        steps = gaps.long() + 1
        following = positions[-1] + steps.cumsum(0)
        positions = torch.cat([positions, following])
    end = int(torch.searchsorted(positions, length))
    return positions[1:end]


def _indexed(device: Device) -> torch.device:
    """ "cuda" and "cuda:0" are one device, and have one stream."""
    return torch.empty(0, device=device).device


def _subkey(key: bytes, name: str) -> bytes:
    secret = b"understudy chacha20 " + name.encode() + key
    return hashlib.sha256(secret).digest()


def _fill_normals(out: NDArray[np.float32], stream: NDArray[np.uint8]) -> None:
    """Box–Muller on the host: 12 bytes of the stream make two normals."""
    pairs = len(out) // 2
    radius_bits = stream[: 8 * pairs]
    angle_bits = stream[8 * pairs :]
    radius = radius_bits.view(np.uint64).astype(np.float64)
    radius += 0.5
    radius *= 2.0**-64  # in (0, 1]
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    angle = angle_bits.view(np.int32).astype(np.float32)
    angle *= _ANGLE
    coordinates = out.reshape(2, pairs)
    np.cos(angle, out=coordinates[0])
    np.sin(angle, out=coordinates[1])
    coordinates *= radius.astype(np.float32)


def _box_muller(words: Tensor) -> Tensor:
    """Box–Muller on a device: three 32-bit words make two normals. There is no uint64,
    so 63 bits it is.
    """
    pairs = len(words) // 3
    radius_words = words[: 2 * pairs]
    angle_words = words[2 * pairs :]
    random_bits = radius_words.view(torch.int64).bitwise_and(2**63 - 1)
    uniform = random_bits.to(torch.float64).add_(0.5).mul_(2.0**-63)
    radius = uniform.log_().mul_(-2).sqrt_().to(torch.float32)
    angle = angle_words.to(torch.float32).mul_(float(_ANGLE))
    x = angle.cos().mul_(radius)
    y = angle.sin().mul_(radius)
    return torch.cat([x, y])
