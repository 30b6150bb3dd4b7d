"""Processes that look at offers, and the one they are forked from (`python -m
…exchange.check_worker`).

`checker` starts that one, with a socket as its input. At a "+" with another socket it
forks a process that speaks there: it says that it is ready, reads a job a line (JSON),
answers each with one line, and ends with its line, or after `_JOBS` of them. Before a
job it gives up the right to more memory and time than the job may have; the kernel ends
it when its time is over. It also draws a sheet of synthetic samples, to look at before
pulling: drawing costs no privacy.
"""

import base64
import contextlib
import gc
import json
import math
import os
import resource
import signal
import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from understudy.data.images import png
from understudy.data.kinds import IMAGES
from understudy.generators.generator import Generator
from understudy.ground.errors import ArtefactError, Effect, UnderstudyError
from understudy.models.offered import OfferedGram, OfferedMoments, of_column
from understudy.privacy.noise import FastRng
from understudy.protocols.papers.sgde.offer import Requirements, check_generator
from understudy.services.exchange.offer_file import OfferFile

_JOBS = 256
ROWS = 12
CLASSES = 24  # that are shown
_BESIDE = 6  # images in a line of the sheet: a phone still shows them
_SIDE = 56  # pixels on the screen for an image of the sheet, about
_SAID = 1000  # letters of a refusal: it may quote what the file says
_STATM, _STATUS, _REFS = (
    Path("/proc/self") / name for name in ("statm", "status", "clear_refs")
)


def main() -> None:
    """Fork processes until nobody asks for them any more."""
    # Ctrl-C is for the process above, which then closes the socket
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # nobody waits for those that have ended
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends them
    torch.set_num_threads(1)
    gc.freeze()  # what was imported stays: no search for cycles looks at it again
    os.dup2(2, 1)  # whatever a library prints goes where errors go
    with socket.socket(fileno=os.dup(0)) as orders:
        while (order := socket.recv_fds(orders, 1, 1))[0]:
            (line,) = order[1]
            if os.fork() == 0:
                orders.close()
                _work(line)
            os.close(line)


def _work(handle: int) -> NoReturn:
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        with socket.socket(fileno=handle) as line, line.makefile("rb") as jobs:
            line.sendall(b'{"ready": true}\n')
            for job in islice(jobs, _JOBS):
                line.sendall(json.dumps(_answer(json.loads(job))).encode() + b"\n")
    finally:
        os._exit(0)


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    begun = _peak(reset=True)
    try:
        with _limited(job["memory"], job["seconds"]):
            answer = look(
                job["path"], Requirements.from_dict(job["requirements"]), job["seed"]
            )
    except UnderstudyError as error:
        answer = {"refused": error.to_dict() | {"text": _short(error.message)}}
    except MemoryError:
        answer = {"spent": "memory"}
    except (RuntimeError, OverflowError) as error:
        # torch's words for the same, or for shapes and numbers
        words = _short(str(error)).partition("\n")[0].rstrip(".")
        failed = ArtefactError(f"this generator cannot be rebuilt: {words}.")
        answer = {"refused": failed.to_dict()}
        if "memory" in words:
            answer = {"spent": "memory"}
    return answer | {"peak": max(0, _peak() - begun)}


def _short(text: str) -> str:
    return text[:_SAID].encode(errors="replace").decode()


def look(
    path: str | Path, requirements: Requirements, seed: int | None
) -> dict[str, Any]:
    """All that can be checked of a file, in the order of what it costs; with a `seed` a
    few rows, too.
    """
    file = OfferFile.read(path, requirements)
    generator = file.generator()
    check_generator(requirements, generator)
    preview = None if seed is None else preview_of(generator, seed=seed)
    return {"card": file.card, "size": file.size, "preview": preview}


@contextlib.contextmanager
def _limited(memory: int, seconds: float) -> Iterator[None]:
    """At most so many bytes more than now, so many seconds, and as many of a
    processor.
    """
    space, hard = resource.getrlimit(resource.RLIMIT_AS)
    _, last = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime + seconds) + 2
    # and then it ends, whatever it is at; its caller left before
    signal.setitimer(signal.ITIMER_REAL, seconds + 0.25)
    resource.setrlimit(
        resource.RLIMIT_CPU, (until if last < 0 else min(until, last), last)
    )
    if _STATM.exists():
        now = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(
            resource.RLIMIT_AS,
            (now + memory if hard < 0 else min(now + memory, hard), hard),
        )
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (space, hard))


def _peak(*, reset: bool = False) -> int:
    """The most memory that this process held, in bytes; with `reset`, counted from now
    on.
    """
    if reset and _REFS.exists():
        _REFS.write_text("5")
    if not _STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(_STATUS.read_text().partition("VmHWM:")[2].split()[0])


def preview_of(generator: Generator, *, seed: int) -> dict[str, Any]:
    """The same for the same seed: a few rows as text, or a row of images as one PNG in
    a data URL.
    """
    if isinstance(generator.network, OfferedMoments):
        return _class_sheet(generator.network, seed) | _people_told(generator.network)
    if IMAGES.describes(generator.schema):
        low, high = generator.schema.bounds
        scaled = (
            255
            * (generator.images(ROWS, seed=seed).astype(np.float64) - low)
            / (high - low)
        )
        return _image_sheet(scaled.round().astype(np.uint8))
    frame = generator.sample(ROWS, seed=seed)
    figures = (
        _people_told(generator.network)
        if isinstance(generator.network, OfferedGram)
        else {}
    )
    return figures | {
        "columns": [str(name) for name in frame.columns],
        "rows": [
            [_cell(value) for value in row] for row in frame.itertuples(index=False)
        ],
    }


def _people_told(network: OfferedMoments | OfferedGram) -> dict[str, Any]:
    """What released sums say: about how many people of each class there are, give or
    take two deviations of noise.
    """
    if isinstance(network, OfferedMoments):
        first, _, _ = network.read()
        people = first["people"]
        noise = float(first["people_noise"])
    else:
        target_levels = of_column(network.sizes, network.target)
        people = network.counts.diagonal()[target_levels].double()
        noise = network.noise[0]
    return {
        "people": [max(0, round(one)) for one in people.tolist()],
        "beside": math.ceil(2 * noise),
    }


def _cell(value: Any) -> str:
    if pd.isna(value):
        return "missing"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, pd.Timestamp):
        return value.date().isoformat()
    return str(value)


def _class_sheet(network: OfferedMoments, seed: int) -> dict[str, Any]:
    """Rows of each class in a line: images as they are, series as lines, channel after
    channel, a picture each.
    """
    fit = network.fit
    rng = FastRng(seed)
    lines = []
    for one in range(min(network.classes, CLASSES)):
        with torch.no_grad():
            rows = (
                fit.rows(fit.aimed(rng.normal(_BESIDE, fit.latent), one))
                .double()
                .numpy()
            )
        if not np.isfinite(rows).all():
            raise ArtefactError(
                "nothing can be fitted to these sums.", effect=Effect.NOTHING_EXCHANGED
            )
        if network.frame.sides == 1:
            channels = [
                _lines(rows[:, :, channel])
                for channel in range(min(rows.shape[2], _BESIDE))
            ]
            rows = np.stack(
                channels + [np.zeros_like(channels[0])] * (_BESIDE - len(channels))
            )
        lines.append(rows)
    return _image_sheet((255 * np.concatenate(lines)).round().astype(np.uint8)) | {
        "classes": len(lines)
    }


def _lines(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Series in [0, 1], (n, length), as lines in one picture, (_SIDE, _SIDE)."""
    picture = np.zeros((_SIDE, _SIDE))
    at = np.linspace(0, series.shape[1] - 1, _SIDE)
    for one in series:
        level = np.rint(
            (1 - np.interp(at, np.arange(len(one)), one)) * (_SIDE - 1)
        ).astype(int)
        for place, (low, high) in enumerate(
            zip(level, np.append(level[1:], level[-1]), strict=True)
        ):
            picture[min(low, high) : max(low, high) + 1, place] = 1.0
    return picture


def _image_sheet(images: NDArray[np.uint8]) -> dict[str, Any]:
    """Images (n, height, width), or with colours, side by side in lines, a blank one
    between them.
    """
    _, height, width, *colours = images.shape
    padded = np.pad(images, ((0, 0), (0, 1), (0, 1), *((0, 0) for _ in colours)))
    tiles = padded.reshape(-1, _BESIDE, height + 1, width + 1, *colours).swapaxes(1, 2)
    sheet = tiles.reshape(len(tiles) * (height + 1), _BESIDE * (width + 1), *colours)
    scale = max(1, round(_SIDE / height))
    url = "data:image/png;base64," + base64.b64encode(png(sheet)).decode()
    return {
        "image": url,
        "width": scale * sheet.shape[1],
        "height": scale * sheet.shape[0],
    }


if __name__ == "__main__":
    main()
