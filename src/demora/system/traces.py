"""Traces of OpenTelemetry, after its conventions for messaging: a span that adds jobs, one for each run, and one for each
settlement.

The trace context of the first travels in the job, so runs in other processes belong to the same trace. Spans name queues,
types, ids and classes of errors; they hold no payload, result or text of an error.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..core.states import Status

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

SYSTEM = "demora"
_HEADER = "traceparent"
_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"  # names a provider that OpenTelemetry loads when it is first asked


def configured() -> "Traces | None":
    """Return the traces of this process; None unless OpenTelemetry is installed and has a tracer provider.

    Does not import OpenTelemetry, which takes long, in a process where nothing else has and no variable names a provider.
    """
    if "opentelemetry.trace" not in sys.modules and _PROVIDER not in os.environ:
        return None
    try:
        from opentelemetry import trace
    except ModuleNotFoundError:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return Traces(provider.get_tracer("demora"))


class RunSpan:
    """The span of one run, and of its settlement once the run has ended."""

    __slots__ = ("_ended_at", "_settles", "_span", "_tracer")

    def __init__(self, tracer: "Tracer", span: "Span", settles: dict[str, Any]) -> None:
        self._tracer, self._span, self._settles = tracer, span, settles
        self._ended_at = 0

    def end(self, error: str | None) -> None:
        """Note how the run ended. Of an error text only the class is kept."""
        from opentelemetry.trace import StatusCode

        if error is not None:
            kind = error.partition(":")[0].strip()[:100]
            self._span.set_attribute("error.type", kind if kind.isidentifier() else "error")
            self._span.set_status(StatusCode.ERROR)
        self._ended_at = time.time_ns()

    def settled(self, status: Status | None) -> None:
        """Record the settlement, from the end of the run until now; without a status the lease was lost."""
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

        destination = self._settles["messaging.destination.name"]
        span = self._tracer.start_span(
            f"settle {destination}",
            set_span_in_context(self._span),
            SpanKind.CLIENT,
            {**self._settles, **_operation("settle", "settle")},
            start_time=self._ended_at or None,
        )
        if status is None:
            span.set_attribute("error.type", "LeaseLost")
            span.set_status(StatusCode.ERROR)
        else:
            span.set_attribute("demora.job.status", status.name)
        span.end()


class Traces:
    """Makes spans with one tracer."""

    def __init__(self, tracer: "Tracer") -> None:
        self._tracer = tracer

    @contextmanager
    def adding(self, queues: Sequence[str], ids: Sequence[str | None], parent: str | None = None) -> Iterator[str | None]:
        """Make the span of a call that adds jobs, and yield the trace context for them. An id is None if another process
        makes it. `parent` is the trace context of a caller in another process."""
        from opentelemetry.trace import SpanKind

        [destination] = set(queues) if len(set(queues)) == 1 else [None]
        attributes: dict[str, Any] = {"messaging.system": SYSTEM, **_operation("enqueue", "send")}
        if destination is not None:
            attributes["messaging.destination.name"] = destination
        if len(ids) == 1 and ids[0] is not None:
            attributes["messaging.message.id"] = ids[0]
        elif len(ids) != 1:
            attributes["messaging.batch.message_count"] = len(ids)
        name = "enqueue" if destination is None else f"enqueue {destination}"
        with self._tracer.start_as_current_span(
            name, None if parent is None else _read(parent), SpanKind.PRODUCER, attributes, record_exception=False
        ):
            yield _current()

    @contextmanager
    def running(
        self, traceparent: str | None, *, queue: str, type: str, id: str, attempt: int, worker_id: str
    ) -> Iterator[RunSpan]:
        """Make the span of one run, as a child of the span that added the job. A retry is also linked to that."""
        from opentelemetry.trace import Link, SpanKind, get_current_span

        parent = None if traceparent is None else _read(traceparent)
        created = None if parent is None else get_current_span(parent).get_span_context()
        attributes: dict[str, Any] = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": queue,
            "messaging.message.id": id,
            "demora.job.type": type,
            "demora.job.attempt": attempt,
        }
        with self._tracer.start_as_current_span(
            f"process {queue}",
            parent,
            SpanKind.CONSUMER,
            {**attributes, **_operation("process", "process"), "messaging.client.id": worker_id},
            links=[Link(created)] if created is not None and attempt > 1 else None,
            record_exception=False,
        ) as span:
            yield RunSpan(self._tracer, span, attributes)


def _operation(name: str, type: str) -> dict[str, str]:
    return {"messaging.operation.name": name, "messaging.operation.type": type}


def _current() -> str | None:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(_HEADER)


def _read(traceparent: str) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({_HEADER: traceparent}, Context())
