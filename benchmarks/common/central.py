"""The reference without any privacy, for public rows: the network of fed-wae or
fed-stdg, trained in one place.
"""

from typing import Any

from understudy.data.encoding.population import population_of
from understudy.data.kinds import Rows
from understudy.generators.generator import Generator
from understudy.generators.parts import GeneratorParts
from understudy.models.nets.autoencoder import fit
from understudy.models.network import pick_device
from understudy.privacy.noise import FastRng
from understudy.protocols.core.common_rule import common_rule


def central(config: Any, rows: Rows, *, steps: int, batch: int = 256) -> Generator:
    rule = common_rule({"the rows": rows.schema})
    rng = FastRng(config.seed)
    network = config.network_for(rule)
    data = rule.expand(population_of(rows).rows)
    weights = fit(
        network,
        network.init(rng),
        data,
        rng,
        steps=steps,
        batch=batch,
        lr=config.learning_rate,
        penalty=config.penalty,
        device=pick_device(config.device),
    )
    card = {
        "ended": f"after {steps} central steps",
        "privacy": {"guarantee": "none: all rows lay in one place"},
    }
    return Generator.from_parts(
        GeneratorParts(network.decoder(weights), rule.schema, card)
    )
