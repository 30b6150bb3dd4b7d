"""Whatever fits the receiver's OpenAPI description, and whatever does not: no request
breaks it, and every answer is one that the description names.
"""

from itertools import product
from pathlib import Path

import pytest
import requests
import schemathesis
from hypothesis import given
from test_collect import CODES, CONTEXT, FAST, gathering, stored
from test_exchange_fuzz import CHECKS, FEW

from understudy.services.collect.app import serving
from understudy.services.collect.box import Box


@pytest.mark.long
def test_no_request_breaks_the_receiver(tmp_path: Path) -> None:
    box = Box(tmp_path / "uploads", codes=CODES)
    statuses = set()
    with (
        gathering(box),
        serving(box, port=0, limits=FAST) as port,
        requests.Session() as session,
    ):

        def call(case: schemathesis.Case) -> None:
            for code in (CODES[0], "of-nobody-at-all"):
                answer = case.call(
                    session=session, headers={"Authorization": f"Bearer {code}"}
                )
                statuses.add(answer.status_code)
                case.validate_response(answer, checks=CHECKS)

        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")
        for operation in (found.ok() for found in schema.get_all_operations()):
            named = {"context": CONTEXT.hex()} if "{context}" in operation.path else {}
            for mode, path in product(
                schemathesis.GenerationMode, (None, named) if named else (None,)
            ):
                taken = {one.name for one in operation.iter_parameters()} - (
                    path or {}
                ).keys()
                if mode.is_negative and not taken:
                    continue  # any bytes are an upload: it cannot be called wrongly
                FEW(
                    given(case=operation.as_strategy(mode, path_parameters=path))(call)
                )()
        assert stored(box) == 0
    assert {200, 401, 409, 422} <= statuses
    assert max(statuses) < 500
