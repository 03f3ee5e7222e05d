"""What may be asked for: every field of a job has its values, its limits and its words for what is wrong."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demora.core.job import DEFAULT_QUEUE, DEFAULT_RETRIES, DEFAULT_RETRY_DELAY, NewJob, Priority, Unique
from demora.core.outbound.targets import MOST_URL
from demora.core.payload import unpack
from demora.core.request import (
    LONGEST_RETRY_DELAY,
    LONGEST_TIMEOUT,
    MOST_KEY,
    MOST_NAME,
    MOST_REASON,
    MOST_RETRIES,
    MOST_TAG,
    MOST_TAGS,
    TYPE_AND_PAYLOAD,
    JobOptions,
    check_cursor,
    check_priority,
    check_queue,
    check_reason,
    check_status,
    check_tag,
    make_job,
)
from demora.core.spans import CENTURY
from demora.core.states import Status
from demora.errors import Invalid
from tests.builders import NO_IDS, NO_SUCH_ID

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOUR, MILLI, MICRO = timedelta(hours=1), timedelta(milliseconds=1), timedelta(microseconds=1)
HOST = "https://shop.example/"


def asked(type: Any = "mail.send", payload: Any = None, **fields: Any) -> NewJob:
    return make_job("an id", type, payload, JobOptions(**fields), now=NOW)


def refused(**fields: Any) -> Invalid:
    with pytest.raises(Invalid) as refusal:
        asked(**fields)
    return refusal.value


def test_what_is_not_said_is_as_usual() -> None:
    job = asked()
    assert job == NewJob(
        id="an id",
        type="mail.send",
        name="mail.send",
        queue=DEFAULT_QUEUE,
        priority=Priority.NORMAL,
        payload=b"{}",
        max_retries=DEFAULT_RETRIES,
        retry_delay=DEFAULT_RETRY_DELAY,
    )
    assert (job.at, job.delay, job.timeout, job.tags, job.webhook_url, job.key, job.unique) == (*[None] * 3, (), *[None] * 3)


TAKEN: list[tuple[str, Any, str, Any]] = [
    ("type", "_", "type", "_"),
    ("type", "a" * 128, "type", "a" * 128),
    ("type", "a.b_c:d/e-9", "type", "a.b_c:d/e-9"),
    ("name", "Zoë 😀", "name", "Zoë 😀"),
    ("name", "n" * MOST_NAME, "name", "n" * MOST_NAME),
    ("queue", "...", "queue", "..."),
    ("queue", "q" * 64, "queue", "q" * 64),
    ("priority", "LOW", "priority", Priority.LOW),
    ("priority", Priority.CRITICAL, "priority", Priority.CRITICAL),
    ("at", NOW + CENTURY, "at", NOW + CENTURY),
    ("at", NOW - CENTURY, "at", NOW - CENTURY),
    ("at", NOW.astimezone(timezone(HOUR)), "at", NOW),
    ("delay", "1h", "delay", HOUR),
    ("delay", CENTURY, "delay", CENTURY),
    ("delay", timedelta(0), "delay", timedelta(0)),
    ("max_retries", 0, "max_retries", 0),
    ("max_retries", MOST_RETRIES, "max_retries", MOST_RETRIES),
    ("retry_delay", "0s", "retry_delay", timedelta(0)),
    ("retry_delay", LONGEST_RETRY_DELAY, "retry_delay", LONGEST_RETRY_DELAY),
    ("timeout", MICRO, "timeout", MICRO),
    ("timeout", LONGEST_TIMEOUT, "timeout", LONGEST_TIMEOUT),
    ("tags", [], "tags", ()),
    ("tags", iter(["b", "a", "b"]), "tags", ("b", "a")),
    ("tags", ["t" * MOST_TAG], "tags", ("t" * MOST_TAG,)),
    ("tags", [str(n) for n in range(MOST_TAGS)], "tags", tuple(str(n) for n in range(MOST_TAGS))),
    ("webhook_url", "http://localhost:8080/hook?a=b", "webhook_url", "http://localhost:8080/hook?a=b"),
    ("webhook_on_cancel", True, "webhook_on_cancel", True),
    ("webhook_url", HOST + "x" * (MOST_URL - len(HOST)), "webhook_url", HOST + "x" * (MOST_URL - len(HOST))),
    ("webhook_url", "https://[::1]/", "webhook_url", "https://[::1]/"),
    ("expires_at", NOW + MICRO, "expires_at", NOW + MICRO),
    ("expires_in", MICRO, "expires_in", MICRO),
    ("unique", "u" * MOST_KEY, "unique", Unique("u" * MOST_KEY)),
]


@pytest.mark.parametrize(("field", "value", "stored_as", "stored"), TAKEN)
def test_a_value_within_its_limits_is_taken(field: str, value: Any, stored_as: str, stored: Any) -> None:
    assert getattr(asked(**{field: value}), stored_as) == stored


NO_TEXT: list[Any] = ["", 7, None, b"bytes", ["list"], "a\0", "\ud800"]
REFUSED: dict[str, tuple[str, str, list[Any]]] = {
    "type": ("type", "1 to 128 letters", [*NO_TEXT, "a" * 129, ".a", "-a", "a b", "ä", "a\n"]),
    "name": ("name", "text", [*(bad for bad in NO_TEXT if bad is not None), "n" * (MOST_NAME + 1)]),
    "queue": ("queue", "1 to 64 letters", ["", 7, "q" * 65, ".", "..", "a/b", "a b", "ä", "a\n"]),
    "priority": ("priority", "CRITICAL, HIGH, NORMAL, LOW", ["", "low", 1, "URGENT", ["LOW"], "__class__"]),
    "payload": ("payload", "JSON object", [[], "text", 7, True]),
    "at": (
        "at",
        "",
        [datetime(2030, 1, 1), "2030-01-01T00:00:00Z", 7, NOW + CENTURY + MICRO, NOW - CENTURY - MICRO],
    ),
    "delay": ("delay", "span", [7, "7", "-1s", -MILLI, CENTURY + MICRO]),
    "max_retries": ("max_retries", "from 0 to 1000", [-1, MOST_RETRIES + 1, 1.0, "3", True]),
    "retry_delay": ("retry_delay", "span", [7, "soon", -MILLI, LONGEST_RETRY_DELAY + MICRO]),
    "timeout": ("timeout", "", [7, "0s", timedelta(0), -MILLI, LONGEST_TIMEOUT + MICRO]),
    "webhook_url": (
        "webhook_url",
        "",
        [
            *("", 7, "shop.example", "ftp://shop.example", "https://", "https:///path", "//shop.example", "https://a:port/"),
            *(
                "https://a:0/",
                "https://a:65536/",
                "https://[::1/",
                "https://a b/",
                "https://a/\n",
                "https://a/\x7f",
                "https://a/\0",
            ),
            HOST + "x" * (MOST_URL - len(HOST) + 1),
        ],
    ),
    "expires_at": ("expires_at", "", [NOW, NOW - HOUR, datetime(2031, 1, 1), NOW + CENTURY + MICRO]),
    "expires_in": ("expires_in", "", ["0s", 7, -MILLI, CENTURY + MICRO]),
    "unique": ("unique", "text of 1 to 255", ["", 7, "u" * (MOST_KEY + 1)]),
    "webhook_on_cancel": ("webhook_on_cancel", "true or false", ["yes", 1]),
    "key": ("key", "text of 1 to 255", ["", 7, "k" * (MOST_KEY + 1)]),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, (_, _, bad) in REFUSED.items() for value in bad])
def test_a_value_beyond_its_limits_is_refused_by_the_name_of_its_field(field: str, value: Any) -> None:
    named, words, _ = REFUSED[field]
    refusal = refused(**{field: value})
    assert refusal.field == named
    if not (isinstance(value, str) and ("\0" in value or "\ud800" in value)):
        assert words in refusal.reason


@pytest.mark.parametrize(
    ("tags", "field", "words"),
    [
        ("mail", "tags", "list of texts"),
        (7, "tags", "list of texts"),
        (["a", ""], "tags[1]", "1 to 64 characters"),
        (["a", 7], "tags[1]", "1 to 64 characters"),
        (["t" * (MOST_TAG + 1)], "tags[0]", "1 to 64 characters"),
        (["\0"], "tags[0]", "NUL"),
        ([str(n) for n in range(MOST_TAGS + 1)], "tags", "at most 32"),
    ],
)
def test_a_bad_tag_is_refused_by_its_place(tags: Any, field: str, words: str) -> None:
    refusal = refused(tags=tags)
    assert refusal.field == field
    assert words in refusal.reason


@pytest.mark.parametrize(
    ("fields", "named", "words"),
    [
        ({"at": NOW, "delay": "1s"}, "delay", "not both"),
        ({"expires_at": NOW + HOUR, "expires_in": "1h"}, "expires_in", "not both"),
        ({"if_waiting": "keep"}, "if_waiting", "give unique too"),
        ({"unique": "u", "if_waiting": "drop"}, "if_waiting", "keep or replace"),
        ({"at": NOW + HOUR, "expires_at": NOW + HOUR}, "expires_at", "before it is due"),
        ({"at": NOW + HOUR, "expires_in": "59m"}, "expires_in", "before it is due"),
        ({"delay": "1h", "expires_in": HOUR}, "expires_in", "before it is due"),
        ({"delay": "1h", "expires_at": NOW + HOUR}, "expires_at", "before it is due"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any], named: str, words: str) -> None:
    refusal = refused(**fields)
    assert refusal.field == named
    assert words in refusal.reason


@pytest.mark.parametrize("due", [{}, {"at": NOW + HOUR}, {"delay": HOUR}, {"at": NOW - HOUR}], ids=str)
@pytest.mark.parametrize("by", ["expires_at", "expires_in"])
def test_a_job_may_expire_as_soon_as_it_was_due(due: dict[str, Any], by: str) -> None:
    waits = HOUR if due.get("delay") or due.get("at", NOW) > NOW else timedelta(0)
    last = waits + MICRO
    job = asked(**due, **{by: last if by == "expires_in" else NOW + last})
    assert getattr(job, by) == (last if by == "expires_in" else NOW + last)
    assert "before it is due" in refused(**due, **{by: waits if by == "expires_in" else NOW + waits}).reason


def test_unique_by_payload_is_one_key_for_one_payload_whatever_the_order_of_its_keys() -> None:
    def key(payload: Any) -> str:
        unique = asked(payload=payload, unique=TYPE_AND_PAYLOAD).unique
        assert unique is not None
        return unique.key

    one = key({"a": 1, "b": {"c": 2, "d": 3}})
    assert one == key({"b": {"d": 3, "c": 2}, "a": 1})
    assert one.startswith(TYPE_AND_PAYLOAD)
    assert len({one, key({}), key({"a": 1}), key({"a": 1, "b": {"c": 2, "d": 4}})}) == 4


@pytest.mark.parametrize(("if_waiting", "replace"), [(None, False), ("keep", False), ("replace", True)])
def test_a_unique_job_says_what_becomes_of_the_one_that_waits(if_waiting: str | None, replace: bool) -> None:
    assert asked(unique="u", if_waiting=if_waiting).unique == Unique("u", replace=replace)


CHANGES: dict[str, Any] = {
    "type": "mail.fetch",
    "payload": {"to": "b"},
    "name": "another",
    "queue": "other",
    "priority": "HIGH",
    "at": NOW + HOUR,
    "delay": "2s",
    "max_retries": 7,
    "retry_delay": "9s",
    "timeout": "9s",
    "tags": ["a"],
    "webhook_url": HOST,
    "webhook_on_cancel": True,
    "expires_at": NOW + HOUR,
    "expires_in": "9h",
    "unique": "u",
}


def hash_of(**fields: Any) -> bytes:
    key = asked(**{"payload": {"to": "a", "cc": 1}} | fields, key="k").key
    assert key is not None
    assert key.key == "k"
    return key.request_hash


def test_the_same_request_has_the_same_hash_under_a_key() -> None:
    assert hash_of() == hash_of(payload={"cc": 1, "to": "a"}, queue=DEFAULT_QUEUE, name="mail.send", tags=[])
    assert hash_of(delay="60s") == hash_of(delay=timedelta(minutes=1))
    assert hash_of(tags=["a", "a"]) == hash_of(tags=("a",))


def test_every_other_request_has_another_hash_under_a_key() -> None:
    hashes = [hash_of(), *(hash_of(**{field: value}) for field, value in CHANGES.items())]
    hashes.append(hash_of(unique="u", if_waiting="replace"))
    assert len(set(hashes)) == len(hashes)


def test_every_field_of_a_request_is_tried_above() -> None:
    fields = {*JobOptions.__optional_keys__, "type", "payload"}
    assert fields == {*REFUSED, "tags", "if_waiting"}
    assert fields == {*CHANGES, "key", "if_waiting"}


types = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9._:/-]{0,127}\Z")
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=64)


@given(types, st.dictionaries(texts, st.integers(-9, 9), max_size=3), st.lists(texts, max_size=5), texts)
def test_what_was_asked_for_is_what_will_be_stored(type: str, payload: Any, tags: list[str], name: str) -> None:
    job = asked(type, payload, tags=tags, name=name)
    assert (job.type, unpack(job.payload), job.name) == (type, payload, name)
    assert set(job.tags) == set(tags)
    assert len(job.tags) == len(set(tags))


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
times = st.datetimes() | st.datetimes(timezones=st.just(UTC)) | st.timedeltas()
anything = plain | times | st.lists(st.text(), max_size=3) | st.dictionaries(st.text(), plain, max_size=2)


@settings(max_examples=500)
@given(st.dictionaries(st.sampled_from(sorted(JobOptions.__optional_keys__)), anything, max_size=2), st.just({}) | anything)
def test_whatever_is_asked_for_is_taken_or_refused_by_name(fields: dict[str, Any], payload: Any) -> None:
    answer = taken_or_refused(payload, fields)
    if isinstance(answer, Invalid):
        assert str(answer) == f"{answer.field}: {answer.reason}"
        assert answer.field.partition("[")[0] in NAMES
    else:
        assert isinstance(unpack(answer.payload), dict)


NAMES = {named for named, _, _ in REFUSED.values()} | {"tags", "if_waiting"}


def taken_or_refused(payload: Any, fields: dict[str, Any]) -> NewJob | Invalid:
    try:
        return asked(payload=payload, **fields)
    except Invalid as refusal:
        return refusal


@pytest.mark.parametrize("status", Status)
def test_a_status_is_known_by_its_name(status: Status) -> None:
    assert check_status(status) is check_status(status.name) is status


@pytest.mark.parametrize("priority", Priority)
def test_a_priority_is_known_by_its_name(priority: Priority) -> None:
    assert check_priority(priority) is check_priority(str(priority)) is priority


@pytest.mark.parametrize("bad", ["", "queued", "DONE", 3, None, ["QUEUED"]])
def test_a_status_that_is_none_is_refused_with_all_there_are(bad: Any) -> None:
    with pytest.raises(Invalid, match=f"^status: must be one of {', '.join(Status.__members__)}$"):
        check_status(bad)


def test_a_cursor_is_the_id_of_a_job() -> None:
    assert check_cursor(NO_SUCH_ID) == NO_SUCH_ID
    for bad in (*NO_IDS, None, 7):
        with pytest.raises(Invalid, match=r"^after: must be the next cursor of an earlier page"):
            check_cursor(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(("check", "field", "most"), [(check_tag, "tag", MOST_TAG), (check_reason, "reason", MOST_REASON)])
def test_a_text_is_as_long_as_it_may_be(check: Any, field: str, most: int) -> None:
    assert check("x" * most) == "x" * most
    for bad in ("", "x" * (most + 1)):
        with pytest.raises(Invalid, match=f"^{field}: must be text of 1 to {most} characters"):
            check(bad)


def test_a_queue_is_refused_by_the_name_that_it_was_given_under() -> None:
    with pytest.raises(Invalid, match=r"^queues\[1\]: a queue is named with"):
        check_queue("a b", "queues[1]")
