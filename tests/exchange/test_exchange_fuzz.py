"""Whatever fits the OpenAPI description, and whatever does not: no request breaks the
service, and every answer is one that the description names.
"""

from collections.abc import Iterator
from itertools import product

import pytest
import requests
import schemathesis
from exchange_cases import Served, generator, served
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]
FEW = settings(
    max_examples=3,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
REACHED = {
    "administrator": {200, 204, 404, 422},
    "member": {200, 403, 404, 422},
    "nobody": {200, 401},
}


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("fuzz")) as exchange:
        yield exchange


@pytest.mark.long
def test_no_request_breaks_the_service(exchange: Served) -> None:
    """Every request is sent in the name of everybody: to make one up takes longer than
    to answer it.
    """
    with exchange.member("member") as member:
        digest = member.push("ward", generator("member"))["digest"]
        bearer = member._http.headers["authorization"]
    tokens = {
        "administrator": f"Bearer {exchange.admin_token}",
        "member": bearer,
        "nobody": "Bearer usx_x",
    }
    statuses: dict[str, set[int]] = {role: set() for role in tokens}
    with requests.Session() as session:

        def call(case: schemathesis.Case) -> None:
            for role, token in tokens.items():
                answer = case.call(session=session, headers={"Authorization": token})
                statuses[role].add(answer.status_code)
                case.validate_response(answer, checks=CHECKS)

        schema = schemathesis.openapi.from_url(f"{exchange.address}/openapi.json")
        for operation in (found.ok() for found in schema.get_all_operations()):
            there = {"pool": "ward", "digest": digest, "id": "0" * 12}
            named = {
                name: value
                for name, value in there.items()
                if f"{{{name}}}" in operation.path
            }
            for mode, path in product(
                schemathesis.GenerationMode, (None, named) if named else (None,)
            ):
                taken = {one.name for one in operation.iter_parameters()} - (
                    path or {}
                ).keys()
                # any bytes are an upload
                body = operation.body and operation.method != "put"
                # else it cannot be called wrongly
                if mode.is_positive or taken or body:
                    FEW(
                        given(case=operation.as_strategy(mode, path_parameters=path))(
                            call
                        )
                    )()
    for role, seen in statuses.items():
        assert max(seen) < 500
        assert REACHED[role] <= seen, (
            f"the requests of {role} did not reach the rules: {seen}"
        )
