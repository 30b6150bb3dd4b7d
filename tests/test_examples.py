"""The examples run, with as little work as they allow."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from understudy.data import samples
from understudy.protocols.gram import protocol as gram
from understudy.protocols.papers.fed_stdg import protocol as fed_stdg
from understudy.runs import registry

pytestmark = pytest.mark.usefixtures("light_masks")
EXAMPLES = Path(__file__).parent.parent / "examples"
Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs an example as a program of this process, where a warning is an error: what
    it prints.
    """

    def run(name: str, *args: str) -> str:
        monkeypatch.setattr("sys.argv", [name, *args])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_two_holders_print_rows_and_prices(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, few in (("components", 64), ("steps", 50)):
        monkeypatch.setitem(gram.Config.__init__.__kwdefaults__, setting, few)
    tables, schemas = samples.rand_health()
    fewer = {name: table[table["zper"] % 10 == 0] for name, table in tables.items()}
    monkeypatch.setattr(samples, "rand_health", lambda: (fewer, schemas))
    out = run("two_holders.py")
    assert "coinsurance" in out
    assert "one person, over both holders: ε ≤" in out


@pytest.mark.long
def test_people_with_years_print_two_tables_and_a_price(run: Run) -> None:
    out = run("people_with_years.py", "--kinds", "4", "--steps", "3")
    assert "in each of which a person weighs 1" in out
    assert "years a person" in out
    assert "one person, with all years: ε ≤ 0.99" in out or "ε ≤ 1.000" in out


@pytest.mark.long
def test_two_regions_print_a_plan_and_what_hospitals_and_registries_know_together(
    run: Run,
) -> None:
    out = run("two_regions.py", "--people", "60", "--kinds", "4", "--steps", "3")
    assert "4 holders with some columns of some of the people each" in out
    assert "female\n" in out.split("by what registries know:")[1]
    assert "one person, over all holders: ε ≤ 0.99" in out or "ε ≤ 1.000" in out


def test_phones_draw_series_and_say_their_price(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting in ("hidden", "latent"):
        monkeypatch.setitem(fed_stdg.Config.__init__.__kwdefaults__, setting, 4)
    out = run("series_of_phones.py", "--rounds", "2")
    assert "wave_1" in out
    assert "γ went down with [[1, 25.0]" in out


def test_three_holders_of_images_draw_a_sheet(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("mnist_train_a", "emnist_bymerge_balanced", "fashion_mnist_train15k"):
        np.savez(
            tmp_path / f"{name}.npz", X=rng.integers(0, 256, (40, 8, 8), dtype=np.uint8)
        )
    sheet = tmp_path / "sheet.png"
    out = run(
        "three_party_images.py",
        str(tmp_path),
        "--rounds",
        "1",
        "--batch",
        "8",
        "--out",
        str(sheet),
    )
    assert "one person, over all holders: ε ≤" in out
    with Image.open(sheet) as image:
        assert image.size == (2 * 12 * 8, 2 * 3 * 8)


def test_two_clinics_train_a_protocol_of_one_file(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # it stays in no other test's
    monkeypatch.setattr(registry, "PROTOCOLS", dict(registry.PROTOCOLS))
    out = run("dp_fedavg.py")
    right, base = (int(share) for share in re.findall(r"(\d+)%", out.splitlines()[0]))
    assert right > base + 15
    assert "ε=1 at δ=1e-05 against anyone" in out


def test_every_example_is_tested() -> None:
    text = (
        Path(__file__).read_text()
        + (Path(__file__).parent / "protocols" / "test_phone.py").read_text()
    )
    assert all(f'"{example.name}"' in text for example in EXAMPLES.glob("*.py"))
