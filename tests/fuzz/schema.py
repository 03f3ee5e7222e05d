"""Requests that schemathesis draws from our OpenAPI document, valid ones and others, against real services.

Each answer must be what the document says: its status, its media type and its shape, and never a 5xx. Services on different
databases must give the same status.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import hypothesis
import requests
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks as conformance

from demora.api.openapi import describe
from demora.api.routes import ROUTES

CHECKS = [
    not_a_server_error,
    conformance.status_code_conformance,
    conformance.content_type_conformance,
    conformance.response_schema_conformance,
]
PATIENCE = 20.0  # seconds for an answer
STREAMS = {route.path for route in ROUTES if route.media == "text/event-stream"}


class Findings:
    """What a run came to: how often each status was answered, and what was wrong."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.troubles: list[str] = []
        self.routes: set[str] = set()


def explore(urls: Sequence[str], *, examples: int, seconds: float = 0.0, seed: int | None = None) -> Findings:
    """Send so many drawn requests to each route of each service, and again with other draws until the seconds are over.
    Without a seed the draws are the same in every run."""
    found, until = Findings(), time.monotonic() + seconds
    schema = schemathesis.openapi.from_dict(describe(ROUTES), config=SchemathesisConfig())
    while True:
        for operation in (result.ok() for result in schema.get_all_operations()):
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                _ask(urls, operation, mode, found, examples, seed)
        if time.monotonic() >= until or found.troubles:
            return found
        seed = None if seed is None else seed + 1


def _ask(
    urls: Sequence[str], operation: Any, mode: GenerationMode, found: Findings, examples: int, seed: int | None
) -> None:
    def ask(case: Any) -> None:
        found.routes.add(f"{operation.method.upper()} {operation.path}")
        statuses = [_status(url, case, stream=operation.path in STREAMS) for url in urls]
        found.statuses.update(statuses)
        assert len(set(statuses)) == 1, f"{statuses}: {case.as_curl_command()}"

    test = hypothesis.settings(
        max_examples=examples,
        derandomize=seed is None,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(hypothesis.given(operation.as_strategy(generation_mode=mode))(ask))
    if seed is not None:
        test = hypothesis.seed(seed)(test)
    try:
        test()
    except hypothesis.errors.Unsatisfiable:
        pass  # nothing that is wrong can be sent to a route without a parameter
    except (FailureGroup, AssertionError, requests.RequestException) as problem:
        found.troubles.append(f"{operation.method.upper()} {operation.path}: {problem}")


def _status(url: str, case: Any, *, stream: bool) -> int:
    """The status of the answer, which is checked unless it is a stream, which has no end."""
    if not stream:
        response = case.call(base_url=url, timeout=PATIENCE)
        case.validate_response(response, checks=CHECKS)
        return int(response.status_code)
    with requests.request(**case.as_transport_kwargs(base_url=url), stream=True, timeout=PATIENCE) as answer:
        assert answer.status_code < 500
        return answer.status_code
