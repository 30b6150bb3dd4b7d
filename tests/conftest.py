"""What tests in several folders share."""

import atexit
import gc
import hashlib
import importlib
import importlib.util
import logging
import os
import pickle
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tomli_w
from browser import CHROMIUM, Browser
from hypothesis import HealthCheck, settings

from forker import Forker, light_point, light_product, stand_by
from nursery import bear
from postgres import postgres
from workers import pytest_addoption, pytest_collection, pytest_runtestloop  # noqa: F401  hooks

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

# How long an example takes depends on who else uses the machine.
settings.register_profile(
    "patient",
    deadline=None,
    max_examples=40,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")
MEMORY = Path("/dev/shm")  # thousands of small files are flushed there without a disk
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
# each further one imports torch; tests of several ask for them
os.environ.setdefault("UNDERSTUDY_PROCESSES", "1")
# else warnings go to stderr, where commands speak
logging.getLogger().addHandler(logging.NullHandler())
gc.disable()  # until all is imported: what comes in stays
# libraries that count at the end what nobody let go of find nothing
atexit.register(gc.unfreeze)

LINE = pytest.StashKey[socket.socket]()  # to the program that forks
# the accountant's own, and those that are kept
PRICES = pytest.StashKey[tuple[Any, Any]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of benchmarks stand in files that say so, and `make test` leaves them to
    `make test-benchmarks`.
    """
    for item in items:
        if "bench" in item.path.name:
            item.add_marker("benchmark")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Prices are kept in pytest's cache, where there is one."""
    from known_prices import OF_THE_ACCOUNTANT, KnownPrices, accounting

    stash = item.config.stash
    cache = getattr(item.config, "cache", None)
    if PRICES not in stash:
        own = accounting._epsilon
        stash[PRICES] = (
            own,
            own if cache is None else KnownPrices(cache.mkdir("known-prices")),
        )
    price = stash[PRICES][item.path.name not in OF_THE_ACCOUNTANT]
    setattr(accounting, "_epsilon", price)  # noqa: B010


def pytest_collection_finish(session: pytest.Session) -> None:
    """No search for cycles looks at the libraries and at thousands of collected tests
    again.
    """
    config = session.config
    wanted = any(
        "forker" in getattr(item, "fixturenames", ()) for item in session.items
    )
    if wanted and config.getoption("workers") and not config.option.collectonly:
        config.stash[LINE] = stand_by(config._tmp_path_factory.getbasetemp())  # type: ignore[attr-defined]
        # After that: programs start without it. Else each worker loads it with the
        # first optimiser of torch.
        importlib.import_module("torch._dynamo")
        # Numbers and words of all our files, which it tries: each worker would look for
        # them anew.
        importlib.import_module(
            "hypothesis.internal.conjecture.providers"
        )._get_local_constants()
    patches = ExitStack()
    config.add_cleanup(patches.close)
    folder = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    for patch in (
        masked_once(),
        read_once(),
        commands_once(),
        trusted_once(),
        one_nursery(folder),
    ):
        # as fixtures of all tests they would be looked at before each
        patches.enter_context(patch)
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)  # little of what a test makes is in cycles
    gc.enable()


@contextmanager
def masked_once() -> Iterator[None]:
    """A masked id follows from the key and the id alone, and rehearsals of one seed
    mask the same ids again.
    """
    from understudy.privacy.secure import set_intersection

    with pytest.MonkeyPatch.context() as patch:
        for name in ("crypto_scalarmult", "crypto_core_ed25519_from_uniform"):
            patch.setattr(
                set_intersection,
                name,
                lru_cache(1 << 15)(getattr(set_intersection, name)),
            )
        yield


@contextmanager
def read_once() -> Iterator[None]:
    """The cells of a small frame follow from the frame, the schema and the names alone,
    and tests open the same frames again and again. Each table has a frame of its own.
    """
    import pandas as pd

    from understudy.data import table

    own = table.read_columns
    known = dict[bytes, Any]()

    def read(source: Any, *how: Any, **more: Any) -> Any:
        if not isinstance(source, pd.DataFrame) or len(source) > 500:
            return own(source, *how, **more)
        key = hashlib.sha256(pickle.dumps((source, how, more))).digest()
        if key not in known:
            known[key] = own(source, *how, **more)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "read_columns", read)
        yield


@contextmanager
def commands_once() -> Iterator[None]:
    """The tree of commands is a pure function of the program, which builds it at each
    call.
    """
    import typer.main
    import typer.testing

    once = lru_cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", once)
        # the name by which it was imported
        patch.setattr(typer.testing, "_get_command", once)
        yield


@contextmanager
def trusted_once() -> Iterator[None]:
    """Browsers that ask this machine alone share the authorities of the world, which
    each would read anew.
    """
    with pytest.MonkeyPatch.context() as patch:
        transport = sys.modules.get("httpx._transports.default")
        if transport:
            patch.setattr(
                transport, "create_ssl_context", lru_cache(transport.create_ssl_context)
            )
        yield


@contextmanager
def one_nursery(folder: Path) -> Iterator[None]:
    """What looks at offers is forked from one process for all tests, where they were
    collected from files that ask for looks. The command that serves an exchange starts
    its own.
    """
    with pytest.MonkeyPatch.context() as patch:
        checker = sys.modules.get("understudy.services.exchange.checker")
        if checker and hasattr(os, "pidfd_open"):
            patch.setattr(checker, "_started", partial(bear, folder))
        yield


@pytest.fixture(scope="module")
def light_masks() -> Iterator[None]:
    """Ids are masked by products with their hashes, which commute as points of the
    curve do and hide nothing: thousands of people in a moment, where they are shared
    among holders of a page or of a benchmark and hiding them is not the matter.
    """
    from understudy.privacy.secure import set_intersection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_intersection, "crypto_scalarmult", light_product)
        patch.setattr(set_intersection, "crypto_core_ed25519_from_uniform", light_point)
        yield


@contextmanager
def trained_shortly() -> Iterator[None]:
    """A report trains few trees in few steps and attacks few people, where how good
    these are is not the matter.
    """
    from understudy.evaluate.comparison import attack_tables
    from understudy.evaluate.utility import downstream, series

    def shortened(build: Callable[..., Any]) -> Callable[..., Any]:
        def built(*how: Any) -> Any:
            model = build(*how)
            steps = [
                name
                for name in model.get_params()
                if name.endswith(("n_estimators", "max_iter"))
            ]
            return model.set_params(**dict.fromkeys(steps, 5))

        return built

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_classifier", "_regressor"):
            patch.setattr(downstream, name, shortened(getattr(downstream, name)))
        patch.setitem(attack_tables.__kwdefaults__, "targets", 50)
        next_step = series.next_step_mae
        patch.setattr(
            series,
            "next_step_mae",
            lambda *rows, steps, seed: next_step(*rows, steps=20, seed=seed),
        )
        yield


@pytest.fixture(scope="module")
def short_training() -> Iterator[None]:
    with trained_shortly():
        yield


@pytest.fixture
def short_training_here() -> Iterator[None]:
    """In one test of a module."""
    with trained_shortly():
        yield


@pytest.fixture(scope="module")
def short_fits() -> Iterator[None]:
    """Mixtures of few parts and smooth laws, fitted in few steps, effects on a target
    and classifiers of few drawn rows, unless a test says otherwise.
    """
    from understudy.generators.generator import Generator
    from understudy.models.moments import released
    from understudy.models.offered import OfferedGram
    from understudy.models.tables import law_fit, smooth_laws
    from understudy.models.tables import target as target_effects
    from understudy.protocols.aggregators.protocol import Config as Aggregators
    from understudy.protocols.gram.protocol import Config as Gram
    from understudy.protocols.one_report.party import Config as OneReport
    from understudy.protocols.papers.sgde import counted
    from understudy.protocols.tied.protocol import Config as Tied

    few = {"components": 32, "steps": 20}
    changed = dict.fromkeys(
        [config.__init__ for config in (Gram, Aggregators, OneReport, Tied)], few
    )
    changed |= {OfferedGram.added: few, Generator.classifier: {"rows": 2_000}}
    changed |= {target_effects.with_effects: {"rows": 1_000}}
    changed |= {smooth_laws.smooth_laws: {"looks": 1}}
    changed |= {law_fit.Systems.least: {"steps": 4}}
    with pytest.MonkeyPatch.context() as patch:
        for function, defaults in changed.items():
            for name, value in defaults.items():
                patch.setitem(function.__kwdefaults__, name, value)
        patch.setattr(counted, "_CLASSIFIER_ROWS", 2_000)
        patch.setattr(released, "_STEPS", 20)
        yield


@pytest.fixture(scope="session")
def load_bench() -> Callable[..., ModuleType]:
    """A script of benchmarks/<folder>/ as a module."""
    return _load


@pytest.fixture(scope="module")
def phone() -> ModuleType:
    """The program of a person's own device."""
    script = BENCHMARKS.parent / "examples" / "phone.py"
    spec = importlib.util.spec_from_file_location("phone", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forker]:
    """Starts programs without their imports; all workers have the same."""
    forker = Forker(tmp_path_factory.getbasetemp())
    yield forker
    forker.close()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: install it to try pages in it")
    chromium = Browser(tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """A real one, which knows nothing of the tests before."""
    chromium.anew()
    return chromium


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL for the tests, with its password in it."""
    with postgres() as url:
        if url is None:
            pytest.skip(
                "no PostgreSQL here: install it, or set UNDERSTUDY_TEST_POSTGRES"
            )
        yield url


def _load(folder: str, script: str = "bench") -> ModuleType:
    """Under a name of its own: several folders have a bench.py, a speed.py, a
    tables.py.
    """
    here = BENCHMARKS / folder
    spec = importlib.util.spec_from_file_location(
        f"{folder}_{script}", here / f"{script}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = sys.path[:]
    own = {file.stem for file in here.glob("*.py")}
    others = {name: sys.modules.pop(name) for name in own & sys.modules.keys()}
    sys.path[:0] = [str(here), str(BENCHMARKS)]
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
        for name in own:
            sys.modules.pop(name, None)
        sys.modules.update(others)
    return module


@pytest.fixture
def understudy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command in this process, as its entry point would: exit code, output,
    errors.
    """
    from understudy import cli

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["understudy", *map(str, args)])
        monkeypatch.setenv("COLUMNS", "200")
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two holders' files and a run file."""
    from understudy.data.samples import overlap_people, toy

    frame, schema = toy(rows=40, seed=1)
    rows = overlap_people(frame, "id", {"clinic": 0.9, "insurer": 0.9}, seed=2)
    held = {
        "clinic": ["colour", "smoker", "age"],
        "insurer": ["grade", "treated", "income"],
    }
    for name, columns in held.items():
        frame.loc[rows[name], ["id", *columns]].to_csv(
            tmp_path / f"{name}.csv", index=False
        )
        schema.select(columns).save(tmp_path / f"{name}.toml")
    parties = {
        name: {
            "table": f"{name}.csv",
            "schema": f"{name}.toml",
            "epsilon": 3.0,
            "delta": 1e-4,
        }
        for name in held
    }
    small = {"latent": 4, "common": [8], "critic_hidden": [4]}
    settings = {
        "rounds": 3,
        "critic_steps": 2,
        "batch": 8,
        "checkpoint_every": 2,
    } | small
    body = {
        "protocol": "verti-gan",
        "out": "joint",
        "rows": 50,
        "settings": settings,
        "parties": parties,
    }
    (tmp_path / "run.toml").write_text(tomli_w.dumps(body))
    return tmp_path


@pytest.fixture
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few as a bound can be made of: 14 trials without a mistake prove an ε of 4 at
    δ = 0.001. How much of it is searched for coarsely, which can only find less; what
    was released first is read in a few steps.
    """
    from understudy.evaluate.audit import auditing, bounds
    from understudy.models.tables import law_fit, smooth_laws

    monkeypatch.setitem(smooth_laws.smooth_laws.__kwdefaults__, "looks", 1)
    monkeypatch.setitem(law_fit.Systems.least.__kwdefaults__, "steps", 4)
    monkeypatch.setattr(auditing, "MIN_TRIALS", 10)
    monkeypatch.setattr(bounds, "_LOG_NOISE_WIDTH", 0.25)
