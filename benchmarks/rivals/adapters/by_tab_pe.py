"""Tab-PE by microsoft/DPSDA, with the settings of its authors' script for Adult.

Tran, Backurs, Lin, Reis, Xiong, Yekhanin, "Differentially private synthetic data via
APIs 4: tabular data" (ICML 2026). Ordered columns are given as whole numbers, others as
categories. Its accounting is exact for Gaussian noise. The shares of the classes are
taken as public, as its code does. It makes 1,000 rows, which are drawn from with
replacement up to the number of real ones.
"""

import logging
from typing import Any

import aside  # noqa: F401  before pe
import numpy as np
import pandas as pd
from omegaconf import OmegaConf
from pe.api import TabularAPI
from pe.constant.data import (
    LABEL_ID_COLUMN_NAME,
    TABULAR_DATA_COLUMN_NAME,
    VARIATION_API_FOLD_ID_COLUMN_NAME,
)
from pe.data import Data, TabularColumnType
from pe.embedding import TabularEmbedding
from pe.histogram import NearestNeighbors
from pe.population import CompositePopulation, PEPopulation
from pe.runner import PE

ITERATIONS = 30
SAMPLES = 1000
logging.disable(logging.INFO)


def synthesise(
    rows: pd.DataFrame, domain: dict[str, int], task: dict[str, Any]
) -> pd.DataFrame:
    target = task["target"]
    numbers = [
        name
        for name in domain
        if name in task["ordered"] and name != target and domain[name] > 1
    ]
    words = [name for name in domain if name not in numbers and name != target]
    features = words + numbers
    kinds = {
        name: {
            "type": TabularColumnType.CATEGORICAL,
            "categories": list(range(domain[name])),
        }
        for name in words
    }
    ranges = {
        name: {"type": TabularColumnType.INTEGER, "min": 0, "max": domain[name] - 1}
        for name in numbers
    }
    info = kinds | ranges
    classes = sorted(rows[target].unique().tolist())
    held = {
        TABULAR_DATA_COLUMN_NAME: rows[features].to_numpy().tolist(),
        LABEL_ID_COLUMN_NAME: rows[target]
        .map({label: i for i, label in enumerate(classes)})
        .to_numpy(),
    }
    metadata = {
        "label_columns": [target],
        "label_info": [
            {"name": f"{target}: {label}", "column_values": {target: label}}
            for label in classes
        ],
        "cat_columns": words,
        "int_columns": numbers,
        "float_columns": [],
        "feature_columns": features,
    }
    api = TabularAPI(
        info=info,
        mutation_rate_init=0.5,
        mutation_rate_final=0.01,
        decay_type="polynomial",
        gamma=0.2,
        num_iterations=ITERATIONS,
    )
    first = PEPopulation(
        api=api,
        initial_variation_api_fold=0,
        next_variation_api_fold=1,
        keep_selected=False,
        selection_mode="sample",
        histogram_threshold=0,
    )
    then = PEPopulation(
        api=api,
        initial_variation_api_fold=3,
        next_variation_api_fold=3,
        keep_selected=True,
        selection_mode="rank",
    )
    runner = PE(
        priv_data=Data(
            data_frame=pd.DataFrame(held), metadata=OmegaConf.create(metadata)
        ),
        population=CompositePopulation(
            populations=[first] * 5 + [then] * (ITERATIONS - 5)
        ),
        histogram=NearestNeighbors(
            embedding=TabularEmbedding(info=info),
            mode="L2",
            lookahead_degree=0,
            backend="sklearn",
        ),
    )
    made = runner.run(
        num_samples_schedule=[SAMPLES] * ITERATIONS,
        delta=task["delta"],
        epsilon=task["epsilon"],
        save_checkpoint=False,
    ).data_frame
    made = made[made[VARIATION_API_FOLD_ID_COLUMN_NAME] == -1]
    found = pd.DataFrame(
        made[TABULAR_DATA_COLUMN_NAME].tolist(), columns=features
    ).astype(int)
    found[target] = [classes[i] for i in made[LABEL_ID_COLUMN_NAME]]
    drawn = np.random.default_rng(task["seed"]).integers(len(found), size=len(rows))
    return found.iloc[drawn].reset_index(drop=True)
