"""The page of problems: one section for each type that a caller can meet, and none besides."""

import re
from pathlib import Path

import pytest

from demora.api.http_server import http1
from demora.wire.problems import KINDS, ProblemKind
from tests.api.test_documented import NEVER_MET

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "problems.md").read_text()
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
SERVER = [kind for kind in vars(http1).values() if isinstance(kind, ProblemKind)]
MET = [kind for error, kind in KINDS.items() if error not in NEVER_MET] + SERVER


def name(kind: ProblemKind) -> str:
    return kind.type.removeprefix("urn:demora:problem:")


def test_there_is_a_section_for_each_type_and_no_other() -> None:
    assert set(SECTIONS) == set(map(name, MET))
    assert len(SECTIONS) == PAGE.count("\n## ")


@pytest.mark.parametrize("kind", {name(kind): kind for kind in MET}.values(), ids=name)
def test_a_section_says_what_the_problem_is_and_what_to_do(kind: ProblemKind) -> None:
    section = SECTIONS[name(kind)]
    assert section.startswith(f"\n**{kind.status}, {kind.title}.** ")
    assert len(section.partition("\nWhat to do: ")[2].split()) >= 3
    assert kind.retry_after is None or "Retry-After" in section


def test_one_type_has_one_status() -> None:
    assert len({(name(kind), kind.status) for kind in MET}) == len(set(map(name, MET)))


@pytest.mark.parametrize("page", ["http.md", "../how-to/find-out-what-is-wrong.md"])
def test_other_pages_lead_to_it(page: str) -> None:
    assert "problems.md" in (Path(__file__).parents[2] / "docs" / "reference" / page).read_text()
