"""`synthesize` as estimators: what SDV's users and scikit-learn expect.

    synthesizer = us.Synthesizer(epsilon=1, schema=schema, name="people")
    synthesizer.fit(frame).sample(1_000)
    synthesizer.save("made")

    classifier = us.SyntheticClassifier(epsilon=1, schema=schema, target="smoker")
    classifier.fit(X, y).predict(others)

A parameter is the keyword of `synthesize` of the same name, and `fit` is a call of it.

Guarantee: that of `synthesize`, for each call of `fit`. Each is a release of its own,
charged to the same holder's ledger before it is used. `cross_val_score` with k folds
fits k times on overlapping rows, so a person pays for k releases, which the ledger
composes. Without `lifetime_epsilon` a new ledger allows `epsilon` in all, and a second
`fit` is refused. What `fit` leaves is the released generator, and what follows from it:
no number of rows, no name, dtype or category of the frame that the schema does not
have.
Edges: **a score on real rows is not private.** `score` and `cross_val_score` compute it
from rows without a price, for the holder alone. A step before it in a `Pipeline` that
learns from rows (a scaler, an encoder, a selector of columns) is outside ε as well.
`fit` takes no seed: noise that can be repeated protects nobody.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from understudy.answers.raking import Weights
from understudy.api.synthesize import in_pandas, synthesize
from understudy.data.column import OTHER
from understudy.data.kinds import TABLE, ArraySchema, load_schema, schema_from
from understudy.data.reading.files import Source
from understudy.data.reading.storage import dtype_kind
from understudy.data.reading.writing import coarsen
from understudy.data.schema import (
    Boolean,
    Categorical,
    Column,
    Document,
    Ordinal,
    Schema,
    was_bought,
)
from understudy.generators.generator import Generator
from understudy.ground.durable import read_json, replace_json
from understudy.ground.errors import ArtefactError, ConfigError, Effect
from understudy.privacy.accounts.budget import USUAL_DELTA
from understudy.privacy.accounts.statement import PrivacyStatement
from understudy.privacy.kinds import Kinds
from understudy.protocols.core import Watcher

PARAMETERS = "synthesizer.json"
_CLASSES = (Categorical.kind, Ordinal.kind, Boolean.kind)
_NOTHING = Effect.NOTHING_READ_OR_CHARGED


class Synthesizer(BaseEstimator):  # type: ignore[misc]
    """Learns to draw rows like those of one table, for at most ε for each `fit`.

    The parameters are the keywords of `synthesize`. `target`, `public_people` and the
    mapping `settings` are those of the protocol. `get_params`, `set_params` and
    `clone` are scikit-learn's. After `fit`, `generator_` is the released generator and
    `privacy_` says what this `fit` costs. The holder's ledger has what all of them cost
    together.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float = USUAL_DELTA,
        schema: Schema | ArraySchema | str | Path | None = None,
        kinds: Kinds | None = None,
        names_and_kinds_are_public: bool = False,
        one_of: Sequence[str | Sequence[str]] | None = None,
        person: str | None = None,
        rows_are_people: bool = False,
        header: bool | None = None,
        name: str | None = None,
        ledgers: str | Path = "ledgers",
        lifetime_epsilon: float | None = None,
        encoding: str | None = None,
        missing: Sequence[str] = (),
        without: Sequence[str] = (),
        target: str | None = None,
        public_people: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.kinds = kinds
        self.names_and_kinds_are_public = names_and_kinds_are_public
        self.one_of = one_of
        self.person = person
        self.rows_are_people = rows_are_people
        self.header = header
        self.name = name
        self.ledgers = ledgers
        self.lifetime_epsilon = lifetime_epsilon
        self.encoding = encoding
        self.missing = missing
        self.without = without
        self.target = target
        self.public_people = public_people
        self.settings = settings

    def fit(self, rows: Source, y: Any = None, *, watch: Watcher | None = None) -> Self:
        """Release a generator of rows like these. `y`, where it is given, is the column
        `target` beside them.

        Guarantee: that of `synthesize`. The price is in the ledger before it is used,
        at every call.
        Edges: whatever `synthesize` refuses. A refusal leaves what an earlier `fit`
        gave.
        """
        source = rows if y is None else _joined(rows, y, self.target)
        result = synthesize(source, watch=watch, **self._arguments())
        return self._keep(result.generator)

    def sample(
        self,
        n: int,
        *,
        where: str | None = None,
        weights: Weights | None = None,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """`n` synthetic rows in the schema's columns and dtypes, free
        (`Generator.sample`).
        """
        check_is_fitted(self)
        return self.generator_.sample(n, where=where, weights=weights, seed=seed)

    @property
    def privacy_(self) -> PrivacyStatement:
        """What the last `fit` costs a person. Other calls of `fit` cost more: the
        ledger has the sum.
        """
        check_is_fitted(self)
        return PrivacyStatement.from_dict(self.generator_.card["privacy"])

    def save(self, folder: str | Path) -> Path:
        """Write the generator into `generator/`, and the parameters beside it. Nothing
        is pickled. The parameters name the ledgers' folder: publish `generator/` alone.
        """
        check_is_fitted(self)
        folder = Path(folder)
        self.generator_.save(folder / "generator")
        parameters = self.get_params(deep=False)
        written = {name: _plain(value) for name, value in parameters.items()}
        replace_json(folder / PARAMETERS, written)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that was saved there, fitted. ArtefactError if it is missing or
        damaged.
        """
        folder = Path(folder)
        if not (folder / PARAMETERS).exists():
            raise ArtefactError(
                f"{folder} does not hold a synthesizer: {PARAMETERS} is missing."
            )
        try:
            parameters = read_json(folder / PARAMETERS)
            loaded = cls(**_from_plain(parameters))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise ArtefactError(
                f"{folder} holds a damaged synthesizer: {error}"
            ) from None
        return loaded._keep(Generator.load(folder / "generator"))

    def _arguments(self) -> dict[str, Any]:
        """The parameters as keywords of `synthesize`. TypeError where `settings` repeat
        one of them.
        """
        given = self.get_params(deep=False)
        settings = given.pop("settings") or {}
        for name in ("target", "public_people"):
            # not every protocol has them
            if given[name] is None:
                del given[name]
        return dict(**given, **settings)

    def _keep(self, generator: Generator) -> Self:
        self.generator_ = generator
        return self


class SyntheticClassifier(ClassifierMixin, Synthesizer):  # type: ignore[misc]
    """Predicts the column `target` of a table by a network that learned from synthetic
    rows alone (`Generator.classifier`).

    Guarantee: that of `Synthesizer`: the classifier is made of the released generator
    and costs nothing more.
    Edges: a target that is not one of classes → ConfigError, before anything is
    charged. Numbers are classes where `schema` or `kinds` declare them, as
    `Categorical(name="ill", categories=(0, 1))`. A class that too few people share to
    be bought is never predicted. Bounds that were bought may be ten times too wide, and
    the network then learns little: declare those of the columns that matter.
    """

    def fit(self, rows: Source, y: Any = None, *, watch: Watcher | None = None) -> Self:
        """Release a generator of these rows with the `target`, and learn from what it
        draws. Without `y` the target is a column of the rows.
        """
        source = rows if y is None else _joined(rows, y, self.target)
        self._require_classes(source)
        return super().fit(source, watch=watch)

    def predict_proba(self, rows: Source) -> NDArray[np.float32]:
        """The probability of each of `classes_`: (rows, classes)."""
        check_is_fitted(self)
        rows = in_pandas(rows)
        schema: Any = self.generator_.schema
        if was_bought(schema):
            # bounds that were bought leave some rows outside
            rows = coarsen(rows, schema.drop([self.target]))
        classifier = self.classifier_
        column_positions = np.flatnonzero(np.isin(classifier.classes_, self.classes_))
        scores = classifier.scores(classifier.features.rows(rows))[:, column_positions]
        return np.asarray(scores.softmax(1).numpy())

    def predict(self, rows: Source) -> NDArray[Any]:
        """The likeliest class of each row: (rows,)."""
        positions = self.predict_proba(rows).argmax(axis=1)
        return np.asarray(self.classes_[positions])

    def _keep(self, generator: Generator) -> Self:
        super()._keep(generator)
        self.classifier_ = generator.classifier(self.target)
        labels = self.classifier_.classes_
        declared = (self.kinds or {}).get(str(self.target))
        schema: Any = generator.schema
        if was_bought(schema) and not isinstance(declared, Column):
            labels = labels[labels != OTHER]
        self.classes_ = labels
        return self

    def _require_classes(self, source: Source) -> None:
        """ConfigError, before anything is charged, where the target is none of classes.

        Guarantee: by what is declared, and the column's dtype, which `synthesize` takes
        without a price.
        """
        if self.target is None:
            raise ConfigError(
                'which column is to be predicted? Say target="…".', effect=_NOTHING
            )
        kind = self._target_kind(source)
        if kind not in _CLASSES:
            example = f'us.Categorical(name="{self.target}", categories=(0, 1))'
            raise ConfigError(
                f'the classes of "{self.target}" are not known: declare them, as '
                f'kinds={{"{self.target}": {example}}}.',
                effect=_NOTHING,
            )

    def _target_kind(self, source: Source) -> str | None:
        """The kind of the target, by the schema, by `kinds`, or by a frame's dtype."""
        target = str(self.target)
        schema: Any = self.schema
        if isinstance(schema, str | Path):
            schema = load_schema(schema)
        if schema is not None:
            if not TABLE.describes(schema) or target not in schema.names:
                return None
            return str(schema.column(target).kind)
        declared = (self.kinds or {}).get(target)
        if isinstance(declared, Column):
            return declared.kind
        if declared is not None:
            return declared.partition(" ")[0]
        frame = in_pandas(source)
        if not isinstance(frame, pd.DataFrame) or target not in frame:
            return None
        dtype = frame[target].dtype
        if isinstance(dtype, pd.CategoricalDtype):
            dtype = dtype.categories.dtype
        return dtype_kind(dtype)


def _joined(rows: Any, y: Any, target: str | None) -> pd.DataFrame:
    """The rows with `y` as their last column. ConfigError where they do not fit."""
    if target is None:
        raise ConfigError('which column is y? Say target="…".', effect=_NOTHING)
    frame = in_pandas(rows)
    if not isinstance(frame, pd.DataFrame):
        raise ConfigError(
            "y goes with a table whose columns have names, and this is none. In a "
            'Pipeline, set_output(transform="pandas") keeps names.',
            effect=_NOTHING,
        )
    if target in frame:
        raise ConfigError(
            f'"{target}" is y, and a column of the rows, too: give one of them.',
            effect=_NOTHING,
        )
    if np.ndim(y) != 1 or len(y) != len(frame):
        raise ConfigError("y must be one label for each row.", effect=_NOTHING)
    labels = pd.Series(y).set_axis(frame.index)
    return frame.assign(**{target: labels})


def _plain(value: Any) -> Any:
    """A parameter as JSON has it."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Document | Column):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _from_plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `_plain` for the parameters that are more than JSON has."""
    read = dict(parameters)
    if isinstance(read["schema"], dict):
        read["schema"] = schema_from(read["schema"])
    if read["kinds"] is not None:
        read["kinds"] = {
            name: _column(kind) if isinstance(kind, dict) else kind
            for name, kind in read["kinds"].items()
        }
    return read


def _column(described: Mapping[str, Any]) -> Column:
    (column,) = Schema.from_dict({"columns": [described]}).columns
    return column
