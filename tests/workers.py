"""Tests in several processes: `--workers N`.

Each is forked when all tests have been collected, so that libraries are imported and
tests are found once, not once in each process. A worker asks for some tests whenever it
has hardly any left, and tells what came of each; the process that collected them hands
them out, in large pieces first and in small ones at the end, and prints. A piece ends
where a file ends, so that what a file's tests share is made once. Files beside the
folders come first: they hold the longest tests. Tests that wait for other processes
more than they compute are one worker's from the start on, so that the others keep the
processors busy.

Edges: a worker that dies fails the test that it was at, and another goes on with the
rest of its piece.
"""

import os
import signal
import sys
import traceback
import warnings
from collections import deque
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

_PIECES = 4  # so many for each worker, if they all were as large as the first
# folders whose tests wait for other processes
_WAITING = {"runtime", "exchange", "collect", "console"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="run the tests in N processes",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Pytest rewrites the asserts of one file after the other, seconds of work where no
    run has kept them yet. A child rewrites them from the last file on, while the first
    files are collected and libraries are imported; and has hypothesis keep what it
    knows of letters, which each worker would find out else.
    """
    if (
        session.config.getoption("workers")
        and not sys.dont_write_bytecode
        and os.fork() == 0
    ):
        with suppress(Exception):  # they would do it all by themselves
            _rewrite(session.config)
            strategies = sys.modules.get("hypothesis.strategies")
            if strategies:
                strategies.text().validate()
        os._exit(0)


def _rewrite(config: pytest.Config) -> None:
    """Files down to the first that has been rewritten already."""
    from _pytest.assertion import rewrite

    for path in sorted(Path(config.rootpath, "tests").rglob("test_*.py"), reverse=True):
        kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(path, kept) is not None:
            return
        rewrite.try_makedirs(kept.parent)
        source, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, kept)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In place of pytest's own, which says what is to be said where tests could not be
    collected.
    """
    workers = session.config.getoption("workers")
    option = session.config.option
    uncollected = session.testsfailed and not option.continue_on_collection_errors
    if not workers or option.collectonly or uncollected:
        return None
    Foreman(session, workers).run()
    return True


def _waits(item: pytest.Item) -> bool:
    named = {"forker", "chromium"}.intersection(getattr(item, "fixturenames", ()))
    return item.path.parent.name in _WAITING or bool(named)


class Foreman:
    """Hands out tests, by their places in the session, and hears what came of them."""

    def __init__(self, session: pytest.Session, workers: int) -> None:
        self.session = session
        self.workers = workers
        # those that wait apart
        self.todo: dict[bool, deque[int]] = {False: deque(), True: deque()}
        for place, item in sorted(
            enumerate(session.items), key=lambda placed: len(placed[1].path.parts)
        ):
            self.todo[_waits(item)].append(place)
        # a process, and what it has not done yet
        self.at_work: dict[Connection, tuple[int, deque[int]]] = {}
        self.waiter: Connection | None = None  # who takes those that wait first

    def run(self) -> None:
        self.session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all
        try:
            for _ in range(self.workers):
                self._hire()
            while self.at_work:
                for line in wait([*self.at_work]):
                    assert isinstance(line, Connection)
                    self._hear(line)
                    self._stop_if_told()
        finally:
            for process, _ in self.at_work.values():
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)

    def _hire(self) -> None:
        ours, theirs = Pipe()
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            # of several threads; those that libraries keep for themselves stay behind
            process = os.fork()
        if process == 0:
            for line in (ours, *self.at_work):
                line.close()
            work(self.session, theirs)
        theirs.close()
        self.at_work[ours] = process, deque()
        self.waiter = self.waiter if self.waiter in self.at_work else ours

    def _hear(self, line: Connection) -> None:
        process, given = self.at_work[line]
        hook = self.session.config.hook
        try:
            said = line.recv()
        except (EOFError, ConnectionResetError):
            del self.at_work[line]
            self._gone(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), given)
            return
        if said == "more":
            todo = self.todo[line is self.waiter] or self.todo[line is not self.waiter]
            piece = max(1, len(todo) // (_PIECES * self.workers))
            some = [todo.popleft() for _ in range(min(piece, len(todo)))]
            while todo and self._file(todo[0]) == self._file(some[-1]):
                some.append(todo.popleft())
            given.extend(some)
            line.send(some)
            return
        for told in said:
            report = hook.pytest_report_from_serializable(
                config=self.session.config, data=told
            )
            hook.pytest_runtest_logreport(report=report)
        item = self.session.items[given.popleft()]
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _file(self, place: int) -> Path:
        return self.session.items[place].path

    def _gone(self, code: int, given: deque[int]) -> None:
        """A worker has ended; it should not have, if there was something that it had
        not done.
        """
        if not given:
            return
        item = self.session.items[given.popleft()]
        report = pytest.TestReport(
            item.nodeid,
            item.location,
            {},
            "failed",
            f"The process of this test ended with {code}.",
            "call",
        )
        self.session.config.hook.pytest_runtest_logreport(report=report)
        self.todo[False].extendleft(reversed(given))
        self._hire()

    def _stop_if_told(self) -> None:
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)


# In a worker


class Teller:
    """Keeps what came of a test for the process that prints, which is woken once for
    each. Prints nothing itself.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.said = list[Any]()
        self._tw = config.get_terminal_writer()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.said.append(
            self.config.hook.pytest_report_to_serializable(
                config=self.config, report=report
            )
        )


def work(session: pytest.Session, line: Connection) -> None:
    """A child: never returns."""
    code = 1
    try:
        _settle(session.config)
        plugins = session.config.pluginmanager
        teller = Teller(session.config)
        plugins.unregister(name="terminalreporter")
        plugins.register(teller, "terminalreporter")
        _work(session, line, teller)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def _settle(config: pytest.Config) -> None:
    """What was forked with it and is not its own: the terminal, and the files that
    catch output.
    """
    config.get_terminal_writer()._file = open(os.devnull, "w")  # noqa: SIM115
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()


def _work(session: pytest.Session, line: Connection, teller: Teller) -> None:
    held: list[int] = []
    ended = False
    while True:
        # what a test leaves standing depends on the test after it
        while len(held) < 2 and not ended:
            line.send("more")
            held += (more := line.recv())
            ended = not more
        if not held:
            return
        item = session.items[held.pop(0)]
        after = session.items[held[0]] if held else None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        line.send(teller.said)
        teller.said.clear()
