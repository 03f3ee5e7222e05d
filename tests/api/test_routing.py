"""Paths and headers are found as the table of routes and HTTP mean them."""

import pytest

from demora.api.headers import RequestHeaders
from demora.api.routes import ROUTES
from demora.api.routing import Paths, path_below_root

PATHS = Paths({path: path for path in ("/", "/a/batch", "/a/{id}", "/a/{id}/why", "/a/actions/{id}", "/b/{one}/c/{two}")})


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/", ("/", {})),
        ("/a/batch", ("/a/batch", {})),
        ("/a/1", ("/a/{id}", {"id": "1"})),
        ("/a/batch/why", ("/a/{id}/why", {"id": "batch"})),
        ("/a/actions", ("/a/{id}", {"id": "actions"})),
        ("/a/actions/1", ("/a/actions/{id}", {"id": "1"})),
        ("/b/1/c/2", ("/b/{one}/c/{two}", {"one": "1", "two": "2"})),
    ],
)
def test_a_path_is_found_with_its_parameters(path: str, found: tuple[str, dict[str, str]]) -> None:
    assert PATHS.find(path) == found


@pytest.mark.parametrize("path", ["", "/a", "/a/", "/a/batch/", "/a/1/", "/a//why", "/a/1/why/2", "/A/batch", "x/a/1"])
def test_another_path_is_not_found(path: str) -> None:
    assert PATHS.find(path) is None


def test_no_path_of_the_api_hides_another() -> None:
    paths = {operation.path: operation.path for operation in ROUTES}
    found = {path: Paths(paths).find(path.replace("{", "").replace("}", "")) for path in paths}
    assert {path: one and one[0] for path, one in found.items()} == paths


@pytest.mark.parametrize(
    ("path", "root", "below"),
    [
        ("/x", "", "/x"),
        ("/jobs/x", "/jobs", "/x"),
        ("/jobs", "/jobs", ""),
        ("/jobsx", "/jobs", "/jobsx"),
        ("/x", "/jobs", "/x"),
    ],
)
def test_a_mounted_application_sees_the_path_below_its_root(path: str, root: str, below: str) -> None:
    assert path_below_root({"path": path, "root_path": root}) == below


def test_headers_are_found_by_name_in_any_case_and_keep_their_repetitions() -> None:
    headers = RequestHeaders([(b"host", b"one"), (b"accept", b"a"), (b"accept", b"\xe9")])
    assert (headers.get("Accept"), headers["HOST"], headers.getlist("accept")) == ("a", "one", ["a", "\xe9"])
    assert ("Host" in headers, "origin" in headers, headers.getlist("origin"), headers.get("origin", "-")) == (
        True,
        False,
        [],
        "-",
    )
    with pytest.raises(KeyError):
        headers["origin"]
