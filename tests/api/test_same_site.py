"""Which requests a page of another site may have sent, for the API and for a form of the dashboard."""

import pytest
from starlette.datastructures import Headers

from demora.api.access import is_same_site


@pytest.mark.parametrize(
    ("headers", "for_the_api", "for_a_form"),
    [
        ({"sec-fetch-site": "same-origin"}, True, True),
        ({"sec-fetch-site": "none"}, True, False),
        ({"sec-fetch-site": "same-site"}, False, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://Jobs.example:80"}, False, False),
        ({"origin": "http://Jobs.example:80"}, True, True),
        ({"origin": "http://jobs.example"}, False, False),
        ({"origin": "null"}, False, False),
        ({"origin": "http://["}, False, False),
        ({}, True, False),
    ],
)
def test_a_form_must_come_from_a_page_and_a_request_of_the_api_not_from_another_site(
    headers: dict[str, str], for_the_api: bool, for_a_form: bool
) -> None:
    sent = Headers({"host": "jobs.example:80", **headers})
    assert is_same_site(sent, from_a_page=False) is for_the_api
    assert is_same_site(sent, from_a_page=True) is for_a_form
