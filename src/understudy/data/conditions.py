"""Conditions on rows, read from text: `sex == 'F' and (age >= 70 or "body mass" between
18.5 and 25)`.

    condition  =  all-of { "or" all-of }
    all-of     =  part { "and" part }
    part       =  "not" part  |  "(" condition ")"  |  test
    test       =  column "is" ["not"] "missing"
               |  column ["not"] "in" "(" value { "," value } ")"
               |  column ["not"] "between" value "and" value    (both ends included)
               |  column compare value  |  value compare column [ compare value ]
               |  column order column               (in rules alone: <, <=, >, >=)
    compare    =  "==" | "!=" | "<" | "<=" | ">" | ">="    ("=" and "<>" are read, too)
    column     =  a plain word, or any text in `backticks` or "double quotes"
    value      =  'text' in single quotes (a date is text: '2020-01-31'), a number,
               true, false

A quote inside a quoted text is written twice. Words of the grammar may be in upper
case.

A missing cell meets no comparison, and so it meets the opposite of every one: `x != 1`,
`x not in (1, 2)` and `not x >= 1` hold where x is missing.

Guarantee: text is read by hand and never run. It is at most `LONGEST` characters long
and `DEEPEST` deep, so that reading ends soon whoever wrote it.
Edges: anything else → ConfigError, with the place. What a test means for a column is in
`data.rules`.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from understudy.ground.errors import ConfigError, Effect

Value = str | int | float | bool

LONGEST = 20_000
DEEPEST = 50
_LONGEST_NUMBER = 40

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<text>'(?:[^']|'')*')
      | (?P<column>`(?:[^`]|``)*`|"(?:[^"]|"")*")
      | (?P<number>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?!\w))
      | (?P<mark>==|!=|<>|<=|>=|[=<>(),])
      | (?P<word>[^\W\d]\w*)""",
    re.VERBOSE,
)
_GRAMMAR = {"and", "or", "not", "in", "is", "between", "missing", "true", "false"}
_ORDERS = {"<", "<=", ">", ">="}
_SAME = {"=": "==", "<>": "!="}
_MIRROR = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class Missing:
    column: str


@dataclass(frozen=True)
class OneOf:
    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Compare:
    """The cell stands in this order to a value: `order` is <, <=, > or >=."""

    column: str
    order: str
    value: Value


@dataclass(frozen=True)
class Order:
    """Two cells of a row stand in this order. Rules alone speak of it
    (`data.rules`).
    """

    column: str
    order: str
    other: str


@dataclass(frozen=True)
class Not:
    part: "Condition"


@dataclass(frozen=True)
class And:
    parts: tuple["Condition", ...]


@dataclass(frozen=True)
class Or:
    parts: tuple["Condition", ...]


Test = Missing | OneOf | Compare
Condition = Test | Order | Not | And | Or


def parse(text: str, *, orders: bool = False) -> Condition:
    """The condition that a text says. ConfigError where it says none. `orders`: two
    columns may be compared.
    """
    if not isinstance(text, str):
        raise ConfigError(
            f'a condition is a text such as "age >= 70", not {type(text).__name__}.'
        )
    if len(text) > LONGEST:
        raise ConfigError(
            f"a condition of {len(text):,} characters is longer than {LONGEST:,}."
        )
    reader = _Reader(text, _tokens(text), orders)
    condition = reader.any_of(0)
    reader.end()
    return condition


def columns(condition: Condition) -> tuple[str, ...]:
    """The columns that a condition speaks of, in the order of their first mention."""
    condition_tests = tests(condition)
    names = [
        (test.column, test.other) if isinstance(test, Order) else (test.column,)
        for test in condition_tests
    ]
    return tuple(dict.fromkeys(name for test_names in names for name in test_names))


def tests(condition: Condition) -> list[Test | Order]:
    if isinstance(condition, Not):
        return tests(condition.part)
    if isinstance(condition, And | Or):
        return [test for part in condition.parts for test in tests(part)]
    return [condition]


class _Token(NamedTuple):
    kind: str  # column, text, number, mark, word (of the grammar), end
    value: Value
    position: int


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            _refuse(text, position, f"{text[position]!r} has no meaning here")
        kind = match.lastgroup or ""
        text_of_token = match.group()
        if kind != "space":
            tokens.append(_token(text, kind, text_of_token, position))
        position = match.end()
    return [*tokens, _Token("end", "", position)]


def _token(text: str, kind: str, text_of_token: str, position: int) -> _Token:
    if kind in ("text", "column"):
        inner = text_of_token[1:-1].replace(text_of_token[0] * 2, text_of_token[0])
        return _Token(kind, inner, position)
    if kind == "number":
        if len(text_of_token) > _LONGEST_NUMBER or not math.isfinite(
            float(text_of_token)
        ):
            _refuse(text, position, "this number is too long or too large")
        return _Token(
            kind,
            int(text_of_token)
            if text_of_token.lstrip("+-").isdigit()
            else float(text_of_token),
            position,
        )
    if kind == "word" and text_of_token.lower() not in _GRAMMAR:
        return _Token("column", text_of_token, position)
    return _Token(kind, _SAME.get(text_of_token, text_of_token.lower()), position)


def _refuse(text: str, position: int, problem: str) -> NoReturn:
    before = text[max(0, position - 20) : position]
    after = text[position : position + 20]
    raise ConfigError(
        f"the condition cannot be read: {problem}, at character {position + 1}: "
        f"…{before}⟨here⟩{after}… "
        "Text stands in 'single quotes', a column's name as it is, in `backticks` or "
        'in "double quotes".',
        effect=Effect.NOTHING_SAMPLED,
    )


class _Reader:
    """Recursive descent, one method for a line of the grammar."""

    def __init__(self, text: str, tokens: list[_Token], orders: bool) -> None:
        self.text = text
        self.tokens = tokens
        self.orders = orders
        self.position = 0

    def any_of(self, depth: int) -> Condition:
        return self._chain(
            "or", lambda: self._chain("and", lambda: self.part(depth), And), Or
        )

    def _chain(
        self, word: str, read: Callable[[], Condition], kind: type[And] | type[Or]
    ) -> Condition:
        parts = [read()]
        while self._accept(word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else kind(tuple(parts))

    def part(self, depth: int) -> Condition:
        if depth > DEEPEST:
            self._stop(f"it is nested more than {DEEPEST} deep")
        if self._accept("not"):
            return Not(self.part(depth + 1))
        if self._accept("("):
            inner = self.any_of(depth + 1)
            self._need(")")
            return inner
        return self.test()

    def test(self) -> Condition:
        first = self._next()
        if first.kind != "column":
            return self._value_first(self._value(first))
        column = str(first.value)
        if self._accept("is"):
            inverse = self._accept("not")
            self._need("missing")
            return _inverse(Missing(column), inverse)
        inverse = self._accept("not")
        if self._accept("in"):
            return _inverse(OneOf(column, self._values()), inverse)
        if self._accept("between"):
            low = self._value(self._next())
            self._need("and")
            bounds = And(
                (
                    Compare(column, ">=", low),
                    Compare(column, "<=", self._value(self._next())),
                )
            )
            return _inverse(bounds, inverse)
        if inverse:
            self._stop('"not" after a column is followed by "in" or "between"')
        order = self._order()
        if (
            self.orders
            and order in _ORDERS
            and self.tokens[self.position].kind == "column"
        ):
            return Order(column, order, str(self._next().value))
        return _compared(column, order, self._value(self._next()))

    def _value_first(self, value: Value) -> Condition:
        """`70 <= age`, and `70 <= age < 80`."""
        order = self._order()
        middle = self._next()
        if middle.kind != "column":
            self._stop(
                "a value is compared with a column, not with another value", back=1
            )
        column = str(middle.value)
        first = _compared(column, _MIRROR[order], value)
        if (
            self.tokens[self.position].kind == "mark"
            and self.tokens[self.position].value in _MIRROR
        ):
            return And(
                (first, _compared(column, self._order(), self._value(self._next())))
            )
        return first

    def _values(self) -> tuple[Value, ...]:
        self._need("(")
        values = [self._value(self._next())]
        while self._accept(","):
            values.append(self._value(self._next()))
        self._need(")")
        return tuple(values)

    def _value(self, token: _Token) -> Value:
        if token.kind in ("text", "number"):
            return token.value
        if token.kind == "word" and token.value in ("true", "false"):
            return token.value == "true"
        problem = (
            "a column stands where a value is needed"
            if token.kind == "column"
            else "a value is needed"
        )
        return self._stop(problem, back=1)

    def _order(self) -> str:
        token = self._next()
        if token.kind != "mark" or token.value not in _MIRROR:
            self._stop(
                "a comparison (==, !=, <, <=, >, >=, in, between, is missing) is "
                "needed",
                back=1,
            )
        return str(token.value)

    def _next(self) -> _Token:
        token = self.tokens[self.position]
        if token.kind == "end":
            self._stop("it ends too soon")
        self.position += 1
        return token

    def _accept(self, word: str) -> bool:
        token = self.tokens[self.position]
        matches = token.kind in ("mark", "word") and token.value == word
        self.position += matches
        return matches

    def _need(self, word: str) -> None:
        if not self._accept(word):
            self._stop(f'"{word}" is needed')

    def end(self) -> None:
        if self.tokens[self.position].kind != "end":
            self._stop('"and", "or" or the end is needed')

    def _stop(self, problem: str, *, back: int = 0) -> NoReturn:
        _refuse(self.text, self.tokens[self.position - back].position, problem)


def _inverse(condition: Condition, inverse: bool) -> Condition:
    return Not(condition) if inverse else condition


def _compared(column: str, order: str, value: Value) -> Condition:
    if order in ("==", "!="):
        return _inverse(OneOf(column, (value,)), order == "!=")
    return Compare(column, order, value)
