import copy
import math
import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from understudy.ground.errors import ConfigError
from understudy.privacy.noise import rng as rng_module
from understudy.privacy.noise.ciphers import SMALL, ChaCha20, Keystream, keystream
from understudy.privacy.noise.rng import FastRng, Rng, SecureRng

KEY = bytes(range(32))
KINDS = {"secure": lambda: SecureRng.from_seed(1), "fast": lambda: FastRng(seed=1)}


@pytest.fixture(params=KINDS)
def rng(request) -> Rng:
    return KINDS[request.param]()


def normals_on_a_gpu(n: int) -> torch.Tensor:
    return rng_module._box_muller(ChaCha20(KEY).words(3 * n // 2))


NORMALS = {
    "host": lambda n: SecureRng(KEY).normal(n),
    "gpu": normals_on_a_gpu,
    "fast": lambda n: FastRng(seed=3).normal(n),
}


@pytest.mark.parametrize("draw", NORMALS.values(), ids=NORMALS)
def test_normals_follow_the_normal_law(draw):
    x = draw(400_000).double().numpy()
    assert stats.kstest(x, "norm").pvalue > 1e-4
    assert stats.kstest(x[np.abs(x) < 1e-2], "uniform", (-1e-2, 2e-2)).pvalue > 1e-4
    tail = int((np.abs(x) > 4).sum())
    assert abs(tail - 400_000 * 2 * stats.norm.sf(4)) < 5 * math.sqrt(
        400_000 * 2 * stats.norm.sf(4)
    )


@pytest.mark.parametrize("draw", NORMALS.values(), ids=NORMALS)
def test_the_two_normals_of_a_pair_are_independent(draw):
    x, y = (
        draw(200_000).double().view(2, -1).numpy()
        if draw is not NORMALS["host"]
        else host_pairs()
    )
    edges = stats.norm.ppf(np.linspace(0, 1, 9))
    counts = np.histogram2d(x, y, bins=(edges, edges))[0]
    assert stats.chisquare(counts.ravel()).pvalue > 1e-4


def host_pairs() -> tuple[np.ndarray, np.ndarray]:
    chunks = (
        SecureRng(KEY)
        .normal(12 * 2 * rng_module._CHUNK)
        .double()
        .view(12, 2, -1)
        .numpy()
    )
    return chunks[:, 0].ravel(), chunks[:, 1].ravel()


def pair_on_the_host(radius: int, angle: int) -> list[float]:
    words = radius.to_bytes(8, "little") + angle.to_bytes(4, "little", signed=True)
    out = np.empty(2, np.float32)
    rng_module._fill_normals(out, np.frombuffer(words, np.uint8))
    return out.tolist()


def pair_on_a_gpu(radius: int, angle: int) -> list[float]:
    words = (radius >> 1).to_bytes(8, "little") + angle.to_bytes(
        4, "little", signed=True
    )
    return rng_module._box_muller(
        torch.frombuffer(bytearray(words), dtype=torch.int32)
    ).tolist()


@pytest.mark.parametrize("pair", [pair_on_the_host, pair_on_a_gpu])
@pytest.mark.parametrize(
    "bits", [0, 5, 1 << 20, 1 << 40, 1 << 63, 2**64 - 2**50, 2**64 - 2**20]
)
def test_the_radius_is_precise_from_zero_to_the_tail(pair, bits):
    exact = (
        math.sqrt(-2 * math.log1p(-(2**64 - bits - 0.5) / 2**64))
        if bits > 2**63
        else None
    )
    exact = exact or math.sqrt(-2 * (math.log(bits + 0.5) - 64 * math.log(2)))
    for angle in (0, 2**30, -(2**30), 2**29):
        x, y = pair(bits, angle)
        turn = 2 * math.pi * angle / 2**32
        # A GPU's radius has one bit less: it is the middle of the two that the host
        # tells apart.
        slack = 2e-6 * exact + (0.2 if bits < 8 else 0)
        assert math.hypot(x, y) == pytest.approx(exact, abs=slack)
        assert (x, y) == pytest.approx(
            (exact * math.cos(turn), exact * math.sin(turn)), abs=slack
        )


def test_the_tail_reaches_beyond_eight_and_a_half_sigma():
    assert pair_on_the_host(0, 0)[0] > 9.4
    assert pair_on_a_gpu(0, 0)[0] > 9.4


def test_every_word_makes_a_finite_normal():
    for bits in (0, 2**63, 2**64 - 1):
        for angle in (-(2**31), -1, 0, 2**31 - 1):
            assert all(
                map(
                    math.isfinite,
                    pair_on_the_host(bits, angle) + pair_on_a_gpu(bits, angle),
                )
            )


def test_bytes_are_the_aes_counter_keystream():
    expected = (
        Cipher(algorithms.AES(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(112))
    )
    rng = SecureRng(KEY)
    assert rng.bytes(40) + rng.bytes(64) == expected[:40] + expected[48:]


def test_the_number_of_threads_does_not_change_the_stream(monkeypatch):
    n = 5 * rng_module._CHUNK + 7
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    one = SecureRng(KEY).normal(n)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(SecureRng(KEY).normal(n), one)


def test_a_kept_cipher_reads_what_a_new_one_reads():
    kept = Keystream()
    places = [
        (0, 16),
        (1, 80),
        (6, 5),
        (7, SMALL),
        (2, 40),
        (5, 0),
        (5, 16),
        (6, 16),
        (2**70, 33),
    ]
    for key in (KEY, KEY[::-1]):
        for block, size in [*places, *places[::-1]]:
            assert np.array_equal(
                kept.read(key, block, size), keystream(key, block, size)
            )


def test_who_is_interrupted_while_a_cipher_works_never_reads_those_blocks_in_another_place():
    class Interrupted:
        def __init__(self, cipher, after):
            self.cipher = cipher
            self.after = after

        def update(self, zeros):
            if self.after:
                self.cipher.update(zeros)
            raise KeyboardInterrupt

    for after in (False, True):
        kept = Keystream()
        kept.read(KEY, 0, 16)
        kept._encryptor = Interrupted(kept._encryptor, after)
        with pytest.raises(KeyboardInterrupt):
            kept.read(KEY, 1, 64)
        assert np.array_equal(kept.read(KEY, 5, 64), keystream(KEY, 5, 64))


def test_a_large_draw_never_reads_a_block_twice(monkeypatch):
    read: list[range] = []

    def spied(keystream):
        def spy(key, block, size):
            read.append(range(block, block - (-size // 16)))
            return keystream(key, block, size)

        return spy

    monkeypatch.setattr(rng_module, "keystream", spied(keystream))
    rng = SecureRng(KEY)
    monkeypatch.setattr(rng._keystream, "read", spied(rng._keystream.read))
    for n in (1, 3 * rng_module._CHUNK + 5, 8, 2 * rng_module._CHUNK):
        rng.normal(n)
        rng.uniform(n % 100)
    blocks = [block for piece in read for block in piece]
    assert len(blocks) == len(set(blocks)) == int(rng.state_dict()["host"])


def test_no_whole_numbers_can_be_read_as_halves_like_any_number_of_them(rng):
    for n in (0, 1, 2):
        assert rng.integers(2**63, n).view(torch.int32).shape == (2 * n,)


def test_a_state_continues_exactly(rng):
    rng.normal(5)
    rng.uniform(3)
    state = {name: value.clone() for name, value in rng.state_dict().items()}
    expected = rng.normal(7), rng.uniform(2, 2), rng.integers(10, 9), rng.bytes(5)
    other = type(rng)()
    other.load_state_dict(state)
    for want, got in zip(
        expected[:3],
        (other.normal(7), other.uniform(2, 2), other.integers(10, 9)),
        strict=True,
    ):
        assert torch.equal(want, got)
    assert other.bytes(5) == expected[3]


def test_a_state_keeps_the_place_of_a_gpu_that_is_not_here():
    rng = SecureRng(KEY)
    rng.load_state_dict(rng.state_dict() | {"gpu0": torch.tensor(2**40)})
    assert int(rng.state_dict()["gpu0"]) == 2**40


def test_a_seeded_state_stays_seeded():
    rng = SecureRng()
    rng.load_state_dict(SecureRng.from_seed(4).state_dict())
    assert rng.seeded


def test_a_seed_repeats_and_the_system_key_does_not():
    assert torch.equal(
        SecureRng.from_seed(7).normal(9), SecureRng.from_seed(7).normal(9)
    )
    assert not torch.equal(
        SecureRng.from_seed(7).normal(9), SecureRng.from_seed(8).normal(9)
    )
    assert not torch.equal(SecureRng().normal(9), SecureRng().normal(9))
    assert not torch.equal(FastRng().normal(9), FastRng().normal(9))


def test_only_the_cipher_is_secure_and_only_seeds_are_seeded():
    made = (
        SecureRng(),
        SecureRng(KEY),
        SecureRng.from_seed(1),
        FastRng(),
        FastRng(seed=1),
    )
    assert [rng.secure for rng in made] == [True, True, True, False, False]
    assert [rng.seeded for rng in made] == [False, False, True, False, True]


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize(
    "how",
    [copy.copy, copy.deepcopy, pickle.dumps, lambda rng: copy.deepcopy({"rng": [rng]})],
)
def test_a_generator_cannot_be_copied(how, seeded):
    with pytest.raises(TypeError, match="the same noise twice"):
        how(SecureRng.from_seed(1) if seeded else SecureRng())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_generator_and_its_streams_are_pickled_by_no_protocol(protocol):
    for one in (SecureRng(), ChaCha20(bytes(32)), Keystream()):
        with pytest.raises(TypeError, match="the same noise twice"):
            pickle.dumps(one, protocol)
        with pytest.raises(TypeError, match="the same noise twice"):
            copy.copy(one)


def test_threads_share_a_generator_without_sharing_noise():
    rng = SecureRng()
    drawn = []
    threads = [
        threading.Thread(target=lambda: drawn.extend(rng.bytes(16) for _ in range(200)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 800


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_makes_other_noise():
    rng = SecureRng()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send_bytes(rng.bytes(32)))
    child.start()
    assert ours.poll(120)
    child.join(120)
    assert ours.recv_bytes() != rng.bytes(32)


def test_shapes_types_and_empty_draws(rng):
    assert rng.normal(2, 3).shape == (2, 3)
    assert rng.normal(2, 3).dtype == torch.float32
    assert rng.normal().shape == ()
    assert rng.normal(4, 0).shape == (4, 0)
    assert rng.uniform(5).dtype == torch.float64
    assert rng.uniform(0).shape == (0,)
    assert rng.integers(3, 2, 2).dtype == torch.int64
    assert rng.bytes(0) == b""
    assert len(rng.bytes(13)) == 13


def test_uniforms_fill_the_half_open_unit_interval(rng):
    x = rng.uniform(100_000)
    assert float(x.min()) >= 0
    assert float(x.max()) < 1
    assert stats.kstest(x.numpy(), "uniform").pvalue > 1e-4


def test_uniforms_keep_53_bits():
    assert float((SecureRng(KEY).uniform(1000) * 2**53 % 2).sum()) == pytest.approx(
        500, abs=80
    )


@pytest.mark.parametrize("high", [1, 2, 7, 1000])
def test_integers_are_uniform(rng, high):
    x = rng.integers(high, 60_000).numpy()
    counts = np.bincount(x, minlength=high)
    assert len(counts) == high
    assert high == 1 or stats.chisquare(counts).pvalue > 1e-4


def test_integers_of_an_awkward_range_are_unbiased(rng):
    # Of 2⁶³ words a third would fall on the lower half twice, were none refused: P(x <
    # high/2) = 2/3.
    high = 2**62 + 2**61
    low = (rng.integers(high, 20_000) < high // 2).double().mean()
    assert float(low) == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(20_000))


def test_integers_reach_the_whole_range(rng):
    x = rng.integers(2**63, 1000)
    assert int(x.min()) >= 0
    assert int(x.max()) > 2**62


@pytest.mark.parametrize("high", [0, -1, 2**63 + 1])
def test_integers_refuse_a_range_they_cannot_fill(rng, high):
    with pytest.raises(ConfigError, match="high"):
        rng.integers(high, 1)


def test_a_key_of_the_wrong_length_is_refused():
    with pytest.raises(ConfigError, match="32 bytes"):
        SecureRng(b"short")


def test_an_empty_key_is_refused_not_replaced():
    with pytest.raises(ConfigError, match="32 bytes"):
        SecureRng(b"")
