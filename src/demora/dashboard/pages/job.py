"""One job: its life as a picture, why it is where it is, its payload when asked for, and what can be done with it."""

import re
from collections.abc import Mapping
from datetime import datetime

import msgspec
from starlette.responses import Response

from ...client.why import Why
from ...core.access import Scope
from ...core.action import TYPE as ACTION
from ...core.job import Job, Priority
from ...core.spans import timestamp
from ...core.states import RETRYABLE, Status
from ...errors import Invalid
from ...system import notices
from ..drawing import clip, state_of, visible
from ..reading import in_short
from ..timeline import HEIGHT, THICK, TOP, WIDTH, draw_life
from ..times import read_time, told
from ..visit import Acted, NoPage, Route, View, Visit

MOST_SHOWN = 32 * 1024  # bytes of a payload, result or log; the rest is a download


async def show_job(visit: Visit) -> View:
    client, id = visit.client, visit.path["id"]
    job, why = await client.get(id), await client.why(id)
    deliveries = await client.webhooks.of(id) if job.webhook_url or job.status.ended else []
    until = datetime.fromisoformat(why.data["releaseAt"]) if why.reason == "held_by_pace" else None
    life = draw_life(job, visit.now, reason=why.reason, until=until, deliveries=deliveries)
    values = {
        "page": "jobs",
        "job": job,
        "why": why,
        "sentence": told(clip(_without_span(why), 600), why.data),
        "short": in_short(job, why),
        "state": state_of(job.status.name, why.reason),
        "life": life,
        "size": {"width": WIDTH, "height": HEIGHT, "top": TOP, "thick": THICK},
        "deliveries": deliveries,
        "log": _last_lines(job),
        "is_action": job.type == ACTION,
        "retryable": job.status in RETRYABLE,
        "until": _until(why),
        "until_words": _UNTIL.get(why.reason, ""),
    }
    return View("job.html", values)


_UNTIL = {
    "not_due": "Due in",
    "retry_due": "It runs again in",
    "held_by_pace": "Released in about",
    "handed_back": "Offered again in",
}


def _until(why: Why) -> str | None:
    """Return the time until which the job waits, where that is known."""
    return why.data.get("releaseAt") or (why.data.get("dueAt") if why.reason in _UNTIL else None)


def _without_span(why: Why) -> str:
    """Return the sentence without how long the job still waits: the page counts that down below it."""
    return _SPAN.sub(r"\1.", why.sentence) if why.reason in ("not_due", "retry_due") else why.sentence


_SPAN = re.compile(r", in \w+(; then the pace of its queue releases it)?\.$")


def _last_lines(job: Job) -> list[object]:
    """Return the last lines of the log, up to 32 KiB of them."""
    lines, room = list[object](), MOST_SHOWN
    for line in reversed(job.log):
        room -= len(line.line)
        if room < 0:
            break
        lines.append(line)
    return lines[::-1]


# Payload and result, which stay masked until someone asks for them


async def reveal(visit: Visit) -> View:
    """Show the payload or the result: as a part of the page of its job or, without a script, as a page of its own."""
    job, field = await visit.client.get(visit.path["id"]), visit.path["field"]
    shown = msgspec.json.format(_field(visit, job, field), indent=2).decode()
    values = {"page": "jobs", "text": shown[:MOST_SHOWN], "cut": len(shown) > MOST_SHOWN, "job": job, "field": field}
    return View("parts/json.html" if "hx-request" in visit.request.headers else "reveal.html", values)


async def download(visit: Visit) -> Response:
    """Send the whole payload or result as JSON, or the whole log as text."""
    job, field = await visit.client.get(visit.path["id"]), visit.path["field"]
    if field == "log":
        lines = "".join(f"{timestamp(line.at)} {visible(line.line)}\n" for line in job.log)
        return Response(lines, headers=_attached(f"{job.id}.log"), media_type="text/plain; charset=utf-8")
    return Response(_field(visit, job, field), headers=_attached(f"{job.id}-{field}.json"), media_type="application/json")


def _attached(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


def _field(visit: Visit, job: Job, field: str) -> bytes:
    """Return the payload or the result as JSON, after the hook that takes secrets out of it."""
    if field not in ("payload", "result"):
        raise NoPage
    return visit.redacted(job, field) or b"null"


# Actions


async def cancel(visit: Visit) -> Acted:
    id = visit.path["id"]
    status = await visit.client.cancel(id)
    notices.acted(visit.by, "cancel", id)
    if status is Status.CANCELLED:
        return Acted("Cancelled.", undo=visit.link("jobs", id, "undo-cancel"))
    return Acted("Its worker was asked to stop it.")


async def undo_cancel(visit: Visit) -> Acted:
    id = visit.path["id"]
    await visit.client.undo_cancel(id)
    notices.acted(visit.by, "undo the cancel of", id)
    return Acted("It waits again, as before.")


async def retry(visit: Visit) -> Acted:
    id = visit.path["id"]
    await visit.client.retry(id)
    notices.acted(visit.by, "retry", id)
    return Acted("It runs again as soon as a slot is free.")


async def delete(visit: Visit) -> Acted:
    id = visit.path["id"]
    await visit.client.delete(id)
    notices.acted(visit.by, "delete", id)
    return Acted("Deleted.", go=visit.link("jobs"))


async def reschedule(visit: Visit) -> Acted:
    """Change the time or the priority of a waiting job, whichever the form names."""
    id, form = visit.path["id"], visit.form
    delay, at, priority = form.get("delay", "").strip(), form.get("at", "").strip(), form.get("priority", "")
    if not (delay or at or priority):
        raise Invalid("delay", "say when it is due: in how long, for instance 90s or 2h, or at what time")
    time = read_time(at, "at") if at else None
    job = await visit.client.reschedule(id, at=time, delay=delay or None, priority=priority or None)
    notices.acted(visit.by, "reschedule", id)
    return Acted(f"Due at {{at}}, priority {job.priority.name.lower()}.", at=job.due_at)


async def redeliver(visit: Visit) -> Acted:
    id = visit.path["id"]
    await visit.client.webhooks.redeliver(id)
    notices.acted(visit.by, "redeliver", id)
    return Acted("Failed deliveries are tried again.")


_DIALOGS: Mapping[str, str] = {
    "run": "dialogs/run.html",
    "reschedule": "dialogs/reschedule.html",
    "delete": "dialogs/delete.html",
}


async def show_dialog(visit: Visit) -> View:
    """Show the question before an action, with what it will mean for this job as it is now."""
    template = _DIALOGS.get(visit.path["dialog"])
    if template is None:
        raise NoPage
    id = visit.path["id"]
    job, why = await visit.client.get(id), await visit.client.why(id)
    is_due = job.due_at <= visit.now
    values = {"job": job, "why": why, "is_due": is_due, "what": _what_happens(job, why, is_due=is_due)}
    return View(template, values | {"priorities": list(Priority)})


def _what_happens(job: Job, why: Why, *, is_due: bool) -> str:
    """Say what becomes of a job that is made due now, or for what else it waits if it is due already."""
    if why.reason == "queue_paused":
        return f"Its queue {job.queue} is paused, so it still waits until the queue is resumed."
    if why.reason == "held_by_pace":
        return f"It is due already. The pace of its queue {job.queue} releases it in its turn; this does not change that."
    if "the pace of its queue" in why.sentence:
        return f"It becomes due at once. The pace of its queue {job.queue} then releases it in its turn, not at once."
    if why.reason in ("no_worker", "no_handler"):
        return clip(why.sentence, 300)
    return f"It {'is due already' if is_due else 'becomes due at once'}, and runs as soon as a slot is free."


ROUTES = (
    Route("GET", "/jobs/{id}", Scope.READ, show_job),
    Route("GET", "/jobs/{id}/show/{field}", Scope.READ, reveal),
    Route("GET", "/jobs/{id}/download/{field}", Scope.READ, download),
    Route("GET", "/jobs/{id}/ask/{dialog}", Scope.OPERATE, show_dialog),
    Route("POST", "/jobs/{id}/cancel", Scope.OPERATE, cancel),
    Route("POST", "/jobs/{id}/undo-cancel", Scope.OPERATE, undo_cancel),
    Route("POST", "/jobs/{id}/retry", Scope.OPERATE, retry),
    Route("POST", "/jobs/{id}/delete", Scope.OPERATE, delete),
    Route("POST", "/jobs/{id}/reschedule", Scope.OPERATE, reschedule),
    Route("POST", "/jobs/{id}/redeliver", Scope.OPERATE, redeliver),
)
