"""The apps that a Flower federation runs: `understudy.network.flower:server` and `understudy.network.flower:client`.

A bundle for `flwr run` is a pyproject.toml that names them (`docs/flower.md`); the code is what is installed at the
server and at every node. A node's configuration names its holder's `seat` file (`network.holder.seat_from`), the run's
configuration the `federation` folder and the `run` file, both as the server sees them.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from understudy.ground.errors import ConfigError
from understudy.network.holder import seat_from
from understudy.network.serve import offer
from understudy.runs.runfile import RunFile
from understudy.runtime.flower import FlowerParties, client_app, server_app
from understudy.runtime.identity import Roster
from understudy.runtime.session import Seat


def _seat(config: Mapping[str, Any]) -> AbstractContextManager[Seat]:
    return seat_from(_path(config, "seat"))


def _serve(grid: Any, config: Mapping[str, Any]) -> None:
    """Offer the run to the nodes, train, save. A run that was begun resumes."""
    roster = Roster(_path(config, "federation") / "federation.toml")
    file = RunFile.load(_path(config, "run"), elsewhere=True)
    resume = (file.path(file.out) / "contract.json").exists()
    made = offer(file, roster.name, resume=resume)
    parties = FlowerParties(
        grid, made.contract, roster, kinds=made.protocol.messages, patience=float(config.get("patience", 3600.0))
    )
    parties.wait(float(config.get("wait", 3600.0)))
    made.note()
    made.train(parties, resume=resume)


def _path(config: Mapping[str, Any], key: str) -> Path:
    if not isinstance(config.get(key), str):
        raise ConfigError(f'"{key}" is missing in the configuration. Nothing was read or sent.')
    return Path(str(config[key]))


client = client_app(_seat)
server = server_app(_serve)
