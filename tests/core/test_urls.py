"""URLs that demora is asked to call."""

import string
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demora.core.outbound.targets import MOST_URL, Policy, check_target, forbidden, objection, read_networks, read_url
from demora.errors import Invalid

labels = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=20)
names = st.builds(lambda parts, last: ".".join([*parts, last]), st.lists(labels, max_size=3), st.sampled_from(["com", "io"]))
LOCAL = Policy(read_networks(["127.0.0.0/8"], "allow"))

ODD = (
    *("https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/", "https://127.1/", "https://0x7f.1/", "https://127.0.0.1./"),
    *("https://0/", "https://127.0.0.01/", "https://1.2.3.4.5/", "https://256.1.1.1/", "https://a.0x1/", "https://example.com./"),
    *("https://user@example.com/", "https://user:pw@example.com/", "https://example.com@127.0.0.1/", "https://@example.com/"),
    *("https://１２７.0.0.1/", "https://ⓔxample.com/", "https://example。com/", "https://exämple.com/", "https://example.com/ä"),  # noqa: RUF001
    *("https://example.com\\@127.0.0.1/", "https:\\\\example.com/", "https:/example.com", "https:example.com", "https://"),
    *("https:///a", "https://[::1", "https://[::1%25eth0]/", "https://[1.2.3.4]/", "https://[]/", "https://::1/", "https://[v1.a]/"),
    *("https://example.com:0/", "https://example.com:65536/", "https://example.com:/", "https://example.com:+1/"),
    *("https://a..b/", "https://-a.com/", "https://a-.com/", "https://.com/", "https://exa mple.com/"),
    *("https://example.com/\r\nX: y", "https://[::1]x/"),
    *("https://example.com/ a", "https://example.com/\x7f", "https://example.com#a", "https://example.com/?a#b", "file:///etc/passwd"),
    *("gopher://example.com/", "HTTPS://example.com/", " https://example.com/", "https://example.com/\n", "https://exa%6dple.com/"),
    *("https://127。0。0。1/", "https://" + "a" * 254 + "/", "https://" + "a" * 64 + ".com/"),
    *("https://example.com/" + "x" * MOST_URL, "https://example.com:443:443/"),
)  # fmt: skip


@pytest.mark.parametrize("url", ODD)
def test_a_url_that_others_may_read_otherwise_is_refused(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_url(url, "webhookUrl")
    assert refused.value.field == "webhookUrl"


@given(st.text(max_size=60) | st.text(max_size=60).map("https://".__add__))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        target = read_url(text)
    except Invalid:
        return
    assert read_url(str(target)) == read_url(str(read_url(str(target))))
    assert "@" not in target.origin
    assert target.origin.isascii()


@given(names, st.integers(1, 65535), st.sampled_from(["", "/", "/a/b", "/?q=1", "?q=1"]))
def test_a_name_is_read_as_it_is(name: str, port: int, rest: str) -> None:
    target = read_url(f"https://{name}:{port}{rest}")
    assert (target.host, target.port, target.rest, target.address) == (name, port, rest, None)


@given(st.ip_addresses())
def test_an_address_in_its_usual_spelling_is_read_and_judged_by_the_table(address: object) -> None:
    host = f"[{address}]" if ":" in str(address) else str(address)
    target = read_url(f"https://{host}/")
    assert target.address == ip_address(str(address))
    refused = forbidden(ip_address(str(address))) is not None
    try:
        check_target(target, Policy())
    except Invalid:
        assert refused
    else:
        assert not refused


def test_what_is_sent_to_is_told_without_path_and_query() -> None:
    assert read_url("https://example.com/secret?token=1").origin == "https://example.com"
    assert read_url("http://[::1]:8080/x").origin == "http://[::1]:8080"
    assert str(read_url("https://example.com?q=1")) == "https://example.com/?q=1"


def test_plain_http_needs_a_setting_or_an_opened_network() -> None:
    plain = read_url("http://example.com/")
    with pytest.raises(Invalid, match="DEMORA_OUTBOUND_HTTP"):
        check_target(plain, Policy())
    check_target(plain, Policy(plain_http=True))
    check_target(plain, LOCAL)  # its name may lead into the opened network
    assert objection(plain, ip_address("127.0.0.1"), LOCAL) is None
    assert objection(plain, ip_address("8.8.8.8"), LOCAL) is not None
    check_target(read_url("http://127.0.0.1:9/"), LOCAL)
    with pytest.raises(Invalid, match="plain http"):
        check_target(read_url("http://8.8.8.8/"), LOCAL)


def test_plain_http_opens_no_network() -> None:
    with pytest.raises(Invalid, match="this machine"):
        check_target(read_url("http://127.0.0.1/"), Policy(plain_http=True))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://exämple.com/", "must be in ASCII"),
        ("gopher://example.com/", "must be an http or https URL with a host$"),
        ("https://user:pw@example.com/", "must not hold a user name or password"),
        ("https://example.com/?a#b", "must not have a fragment"),
        ("https://example.com/ a", "and letters that a URL may not have written as %"),
    ],
)
def test_a_refusal_says_what_is_wrong(url: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        read_url(url, "url")
