"""The benchmark of products without a dealer, in a small version."""

from collections.abc import Callable
from types import ModuleType

import pytest

pytestmark = pytest.mark.benchmark


def test_a_small_encrypted_product_is_near_and_sends_what_its_readme_says(
    load_bench: Callable[..., ModuleType],
) -> None:
    row = load_bench("secure_product", "encrypted").encrypted(500)
    assert row["off"] < 0.1
    # eight bytes for each person and column, and a public key of 3,136 × 150
    assert row["sent_mb_there"] == pytest.approx(500 * 150 * 8e-6 + 3.8, abs=0.1)
    # of each level 3,136 + 150 numbers
    assert row["sent_mb_back"] == pytest.approx(3.9, abs=0.1)
    assert row["rho"] < -40


def test_a_product_under_paillier_is_exact_but_for_carries(
    load_bench: Callable[..., ModuleType],
) -> None:
    paillier = load_bench("secure_product", "paillier")
    row = paillier.measure(40, paillier.Key())
    assert row["off"] < 0.1
    # of each level one number modulo the square of the key
    assert row["sent_mb_back"] == pytest.approx(150 * 768e-6, abs=0.05)
