import os

import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from understudy.privacy.noise.ciphers import ChaCha20, fused


def reference(key: bytes, nonce: bytes, size: int) -> bytes:
    return (
        Cipher(algorithms.ChaCha20(key, nonce), mode=None)
        .encryptor()
        .update(bytes(size))
    )


def stream_bytes(stream: ChaCha20, words: int) -> bytes:
    return stream.words(words).numpy().tobytes()


def test_the_block_of_rfc_8439_appendix_a_1_test_vector_1():
    first = stream_bytes(ChaCha20(bytes(32)), 16)
    assert first.hex().startswith(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    )


@pytest.mark.parametrize("counter", [0, 1, 2**31 - 2, 2**31, 2**32 - 40])
@pytest.mark.parametrize("words", [16, 160, 16 * 33])
def test_the_keystream_equals_that_of_cryptography(counter, words):
    key = os.urandom(32)
    nonce = int.from_bytes(os.urandom(7), "little")
    ours = stream_bytes(ChaCha20(key, nonce=nonce, counter=counter), words)
    assert ours == reference(
        key, counter.to_bytes(8, "little") + nonce.to_bytes(8, "little"), 4 * words
    )


def test_the_counter_carries_into_its_upper_word():
    key = os.urandom(32)
    across = stream_bytes(ChaCha20(key, counter=2**32 - 1), 32)
    below = reference(key, (2**32 - 1).to_bytes(8, "little") + bytes(8), 64)
    above = reference(key, (2**32).to_bytes(8, "little") + bytes(8), 64)
    assert across == below + above


def test_draws_follow_one_another_block_by_block():
    key = os.urandom(32)
    whole = ChaCha20(key)
    parts = ChaCha20(key)
    assert stream_bytes(whole, 64) == stream_bytes(parts, 16) + stream_bytes(parts, 48)
    parts.words(1)
    assert int(parts.counter) == int(whole.counter) + 1


def test_a_restart_moves_the_same_tensors():
    stream = ChaCha20(os.urandom(32))
    key = os.urandom(32)
    tensors = stream.counter.data_ptr()
    stream.words(100)
    stream.restart(key, counter=5)
    assert stream.counter.data_ptr() == tensors
    assert torch.equal(stream.words(40), ChaCha20(key, counter=5).words(40))


def test_no_words_are_an_empty_tensor():
    assert ChaCha20(bytes(32)).words(0).shape == (0,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("counter", [0, 7, 2**32 - 3])
def test_the_kernel_gives_the_words_of_the_tensor_operations(counter: int) -> None:
    key = bytes(range(32))
    host, card = (
        ChaCha20(key, counter=counter, device=device) for device in ("cpu", "cuda")
    )
    if fused(card.counter.device) is None:
        pytest.skip("Triton cannot compile here")
    for n in (1, 17, 100_003):
        assert torch.equal(host.words(n), card.words(n).cpu())
