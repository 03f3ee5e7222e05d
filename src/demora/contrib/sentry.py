"""Reports errors to Sentry: each job that has failed for good, once, with its facts, and what else demora logs as an error.

sentry_sdk.init(dsn=…)
report_errors(app)
"""

import contextlib
import logging
from typing import Any, Protocol

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import Scope, use_isolation_scope
from sentry_sdk.types import Event, Hint
from sentry_sdk.utils import event_from_exception

from ..handlers.context import Context
from ..handlers.registry import Middleware, Next

LOGGER = "demora"
_SCOPE = "_demora_sentry_scope"
_TAGS = {"type", "queue"}


class Wrapped(Protocol):
    """An application whose runs can be wrapped: `Demora`, or the demora of a framework."""

    def middleware(self, function: Middleware, /) -> Middleware: ...


def report_errors(app: Wrapped) -> None:
    """Report each job of this process that has failed for good: after its last attempt, or at once if it has no retries.

    An event has the exception, the job as its context, and the breadcrumbs and tags of its run. The payload is no part of
    the context. The log of demora and that of Django's tasks have the same errors, and make no events of their own. With the
    setting `log_errors=class`, events have no texts of errors. Events that a handler captures itself have the same context.
    """
    app.middleware(_in_scope_of_job)
    for name in (LOGGER, *getattr(app, "error_loggers", ())):
        ignore_logger(name)
    logger = logging.getLogger(LOGGER)
    if not any(isinstance(handler, _Reporter) for handler in logger.handlers):
        logger.addHandler(_Reporter(logging.ERROR))


async def _in_scope_of_job(ctx: Context, call_next: Next) -> Any:
    """Give each run a scope of its own, and each error the scope of its run."""
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()  # of the process, which are not of this run
        job = ctx.job
        _describe(scope, {"job_id": ctx.id, "type": job.type, "queue": job.queue, "attempt": ctx.attempt})
        try:
            return await call_next()
        except BaseException as problem:
            with contextlib.suppress(Exception):  # an error without room for attributes
                setattr(problem, _SCOPE, scope)
            raise


class _Reporter(logging.Handler):
    """Makes an event of each error in the log of demora. A failed attempt is an error there only if no attempt is left."""

    def emit(self, record: logging.LogRecord) -> None:
        facts: dict[str, Any] = getattr(record, "facts", {})
        problem = record.exc_info[1] if record.exc_info else None
        scope = getattr(problem, _SCOPE, None) or Scope()
        with use_isolation_scope(scope):
            _describe(scope, facts)
            event, hint = _event(record, problem)
            sentry_sdk.capture_event(event, hint)


def _event(record: logging.LogRecord, problem: BaseException | None) -> tuple[Event, Hint]:
    mechanism = {"type": "demora", "handled": False}
    if problem is not None:
        return event_from_exception(problem, client_options=sentry_sdk.get_client().options, mechanism=mechanism)
    return {"level": "error", "message": record.getMessage(), "logger": LOGGER, "fingerprint": _fingerprint(record)}, {}


def _fingerprint(record: logging.LogRecord) -> list[str]:
    """Return what groups events without an exception: the type of the job and the class of its error."""
    facts: dict[str, Any] = getattr(record, "facts", {})
    return [LOGGER, getattr(record, "event", ""), str(facts.get("type")), str(facts.get("error", "")).partition(":")[0]]


def _describe(scope: Scope, facts: dict[str, Any]) -> None:
    scope.set_context("job" if "job_id" in facts else "demora", dict(facts))
    for name in _TAGS & facts.keys():
        scope.set_tag(f"job.{name}", facts[name])
    if "type" in facts:
        scope.set_transaction_name(str(facts["type"]), source="task")
