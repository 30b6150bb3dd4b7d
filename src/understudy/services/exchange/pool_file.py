"""A pool written down, for whoever runs the exchange:

name = "ward"
schema = "ward.toml"          # beside this file
target = "outcome"            # the class column; for images a name, with classes = [0, 1, …]
epsilon = 1.5
delta = 1e-5
networks = ["class-decoder"]  # left out: all that SGDE knows
largest = 1_000_000           # bytes of weights
"""

from pathlib import Path

from understudy.data.kinds import load_schema
from understudy.ground.bounded import read_toml
from understudy.ground.errors import ConfigError
from understudy.protocols.sgde.offer import Requirements


def read_pool(path: str | Path) -> tuple[str, Requirements]:
    """The pool's name and what it requires. ConfigError names the file and what is wrong with it."""
    path = Path(path)
    try:
        values = read_toml(path)
        name = values.pop("name", path.stem)
        schema = load_schema(path.parent / values["schema"])
        return str(name), Requirements.from_dict({**values, "schema": schema.to_dict()})
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}).") from None
    except KeyError as error:
        raise ConfigError(f"{path.name} lacks {error}.") from None
    except (ValueError, TypeError) as error:  # ConfigError and SchemaError are ValueErrors
        raise ConfigError(f"{path.name}: {error}") from None
