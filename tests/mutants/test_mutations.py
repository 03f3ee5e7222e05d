"""The generator of bugs: what it changes, and that it chooses the same ones again."""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import choice, generated, trials, verdicts
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutations import Mutation, Named, all_mutations, compiles, mutations, named
from tests.mutants.statements import VARIABLE, StatementMap, statements_of
from tests.mutants.surroundings import around
from tests.mutants.verdicts import Verdict

PYTHON = b'''
async def go(n: int = 0) -> int:
    """Go on while n < 3."""
    if n < 3 and ready:
        first()
        await second(n - 1)
    return n
'''
SQL = b"""-- name: take
-- Takes a row, where it is due and free; \xe2\x80\xa6
update jobs set status = 3, token = token + 1
where id = :id and (due_at <= :wall or :now) and status < 3
returning token

-- name: lock
select seq from jobs where id = :id order by seq for update skip locked
"""
LUA = b"""-- if it is there
if redis.call('ZSCORE', KEYS[1], 'a < b') == false then
    redis.call('ZADD', KEYS[1], n + 1, ARGV[2])
end
"""


def changes(file: str, source: bytes) -> set[tuple[int, str, str, str]]:
    return {(one.line, one.kind, one.old, one.new) for one in mutations(file, source)}


def test_python_is_changed_where_it_runs() -> None:
    assert changes("core/a.py", PYTHON) == {
        (2, "off by one", "0", "1"),
        (4, "negated condition", "n < 3 and ready", "(not (n < 3 and ready))"),
        (4, "changed comparison", "n < 3", "n <= 3"),
        (4, "and for or", "n < 3 and ready", "(n < 3 or ready)"),
        (4, "off by one", "3", "4"),
        (5, "dropped call", "first()", "pass"),
        (5, "swapped statements", "first()\n        await second(n - 1)", "await second(n - 1)\n        first()"),
        (6, "dropped await", "await second(n - 1)", "pass"),
        (6, "plus for minus", "n - 1", "(n + 1)"),
        (6, "off by one", "1", "2"),
    }


def test_sql_loses_predicates_columns_and_locks() -> None:
    assert changes("engines/a.sql", SQL) == {
        (3, "dropped column", "status = 3,", ""),
        (3, "dropped column", ", token = token + 1", ""),
        (4, "dropped predicate", "id = :id", "true"),
        (4, "dropped predicate", "(due_at <= :wall or :now)", "true"),
        (4, "dropped predicate", "status < 3", "true"),
        (8, "dropped predicate", "id = :id", "true"),
        (8, "dropped lock", " for update skip locked", ""),
        (8, "waits for locks", " skip locked", ""),
    }


def test_lua_is_changed_outside_of_words_and_comments() -> None:
    condition = "redis.call('ZSCORE', KEYS[1], 'a < b') == false"
    assert changes("line/a.lua", LUA) == {
        (2, "negated condition", condition, f"not ({condition})"),
        (2, "changed comparison", "==", "~="),
        (3, "dropped call", "redis.call('ZADD', KEYS[1], n + 1, ARGV[2])", ""),
        (3, "plus for minus", "+", "-"),
        (3, "off by one", "1", "2"),
    }


@pytest.mark.parametrize(
    ("statements", "swapped"),
    [
        ("self.a = 1\n    self.b = f()", False),
        ("self.a = 1\n    self.b = self.a", True),
        ("a = go()\n    self.b = lambda: a", False),
        ("a = []\n    self.go()", False),
        ("a = self.b\n    self.go()", True),
        ("a = self.b\n    c = self.d", False),
        ("self.go()\n    self.stop()", True),
    ],
)
def test_statements_are_swapped_where_their_order_matters(statements: str, swapped: bool) -> None:
    kinds = [one.kind for one in mutations("core/a.py", f"def go(self):\n    {statements}\n".encode())]
    assert ("swapped statements" in kinds) is swapped


def test_what_a_type_checker_alone_reads_stays_as_it_is() -> None:
    port = b"class Port(Protocol):\n    def go(self, n: int = 1) -> None:\n        if n: go()\n"
    assert changes("store/a.py", port) == set()
    assert changes("store/a.py", b"def go() -> 'Literal[1]':\n    x: 'Literal[2]' = y\n") == set()


def test_a_change_is_applied_at_its_place_and_nowhere_else() -> None:
    twice = "a = '…'\nif x == 1:\n    pass\nif x == 1:\n    pass\n".encode()
    second = [one for one in mutations("core/a.py", twice) if one.kind == "changed comparison"][1]
    assert second.applied(twice).decode() == "a = '…'\nif x == 1:\n    pass\nif x != 1:\n    pass\n"


def test_a_change_that_leaves_no_program_is_not_tried() -> None:
    source = b"def go():\n    return 1\n"
    assert not compiles(Mutation("core/a.py", 2, "", "return 1", "return (", 14), source)


TWICE = b"def go(x):\n    if x == 1:\n        pass\n    if x == 1:\n        pass\n"


def names(*files: tuple[str, bytes]) -> list[str]:
    return [one.name for one in named(files)]


def test_a_name_stays_while_lines_move() -> None:
    found = names(("core/a.py", TWICE))
    assert len(set(found)) == len(found)
    assert found == names(("core/a.py", b"y = 5\n\n" + TWICE))[1:]


def test_a_name_stays_while_its_file_moves() -> None:
    found = names(("core/a.py", TWICE))
    assert found == names(("core/outbound/a.py", TWICE))
    assert found == names(("line/a.py", TWICE))
    sqlite = names(("engines/sqlite/a.py", TWICE))
    assert sqlite == names(("engines/sqlite/jobs/a.py", TWICE))


def test_a_name_says_the_function_and_the_file() -> None:
    found = set(names(("core/a.py", TWICE)))
    assert found.isdisjoint(names(("core/b.py", TWICE)))
    assert found.isdisjoint(names(("core/a.py", TWICE.replace(b"go", b"stop"))))
    before = TWICE.replace(b"go", b"stop") + TWICE  # the same text in another function does not count
    assert found < set(names(("core/a.py", before)))


def test_no_two_changes_have_one_name() -> None:
    engines = names(("engines/postgres/a.py", TWICE), ("engines/sqlite/a.py", TWICE))
    assert set(names(("engines/sqlite/a.py", TWICE))) < set(engines)  # whatever the other engine has
    apart = names(("core/a.py", TWICE), ("worker/a.py", TWICE))
    assert len(set(apart)) == len(apart)
    everything = [one.name for one in all_mutations(generated.SOURCE)]
    assert len(set(everything)) == len(everything)


@pytest.mark.slow
def test_a_seed_chooses_the_same_sample() -> None:
    assert generated.sample(20, 7) == generated.sample(20, 7)
    assert generated.sample(20, 7) != generated.sample(20, 8)


def test_every_room_has_tests() -> None:
    for _, mutation in all_mutations(generated.SOURCE):
        assert any(mutation.file.startswith(room) for room, _, _ in generated.ROOM_TESTS)
    for _, _, folders in generated.ROOM_TESTS:
        assert all((generated.ROOT / folder).exists() for folder in folders)


def test_a_line_of_sql_belongs_to_all_statements_that_contain_its_block(tmp_path: Path) -> None:
    source = "-- name: take\nselect {due}\n\n-- name: due\ndue_at <= {now}\n\n-- name: now\n1\n\n-- name: other\n2\n"
    assert [statements_of(source, line) for line in (1, 2, 5, 8, 11)] == [
        {"take"},
        {"take"},
        {"due", "take"},
        {"now", "due", "take"},
        {"other"},
    ]
    path = tmp_path / "statements"
    path.write_text('{"sqlite take": ["t::both", "t::one"], "sqlite other": ["t::both"], "postgres take": ["t::three"]}')
    assert StatementMap(path).tests("engines/sqlite/queries.sql", source, 8) == ["t::one", "t::both"]
    assert StatementMap(tmp_path / "none").tests("engines/sqlite/queries.sql", source, 8) == []


def test_a_run_notes_the_statements_of_each_test(tmp_path: Path) -> None:
    path = tmp_path / "statements"
    test = "tests/conformance/test_leased.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.statements", test]
    environment = os.environ | {VARIABLE: str(path), "DEMORA_TEST_ENGINE": "sqlite-memory"}
    subprocess.run(command, cwd=generated.ROOT, env=environment, check=True, capture_output=True)
    noted = json.loads(path.read_text())
    assert all(one.startswith(test) for one in noted["sqlite leased"])
    assert len(noted["sqlite claim_take"]) >= len(noted["sqlite leased"]) > 0


def test_equivalent_bugs_still_exist() -> None:
    assert EQUIVALENT.keys() <= {one.name for one in all_mutations(generated.SOURCE)}


@pytest.mark.slow
def test_a_verdict_in_the_file_is_not_reached_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that finds all its verdicts in the file runs no test, and reports the survivors among them."""
    path, chosen = tmp_path / "verdicts", generated.sample(3, 7)
    for number, one in enumerate(chosen):
        verdicts.note(path, _verdict(one, "survived" if number == 0 else "caught"))
    assert _run("--sample", "3", "--seed", "7", "--verdicts", str(path)) == 1
    out = capsys.readouterr().out
    assert f"survived: {chosen[0].mutation.file}:{chosen[0].mutation.line}" in out
    assert "The first 3 of the sample" in out
    assert "Of the 3 among them that are not equivalent 2 were caught" in out
    assert verdicts.read(path).keys() == {one.name for one in chosen}


@pytest.mark.slow
def test_a_verdict_on_code_that_has_changed_is_dropped(tmp_path: Path) -> None:
    path, (one, other) = tmp_path / "verdicts", generated.sample(2, 7)
    verdicts.note(path, _verdict(one, "caught"))
    verdicts.note(path, _verdict(other, "caught")._replace(around="before"))
    verdicts.note(path, Verdict("gone", "before", "caught", "tests/core/test_backoff.py"))
    assert list(trials.still_valid(verdicts.read(path), all_mutations(generated.SOURCE))) == [one.name]


def test_the_verdicts_in_the_tree_can_be_read() -> None:
    for verdict in verdicts.read(verdicts.FILE).values():
        assert verdict.verdict in ("caught", "survived", "undecided")
        assert verdict.by


def test_what_surrounds_a_change_is_its_function_or_its_statement() -> None:
    source = (
        "A = 1\n\n\nclass One:\n    def go(self):\n        if x:\n            pass\n\n    def stay(self):\n        pass\n"
    )
    assert around("core/a.py", source, 6) == (
        "One.go",
        "    def go(self):\n        if x:\n            pass",
    )
    assert around("core/a.py", source, 1) == ("", source)
    name, text = around("engines/a.sql", SQL.decode(), 4)
    assert (name, "for update" in text) == ("take", False)


def test_the_tests_that_name_what_was_changed_come_first() -> None:
    backoff = next(one for one in all_mutations(generated.SOURCE) if one.mutation.file == "core/retention.py")
    files = choice.ranked(backoff.mutation, _source("core/retention.py"), ["tests/core", "tests/conformance"], Counter())
    assert files[0] == "tests/core/test_retention.py"
    learnt = choice.ranked(backoff.mutation, _source("core/retention.py"), ["tests/core"], Counter({files[-1]: 10**9}))
    assert learnt.index(files[-1]) < len(learnt) // 2


@pytest.mark.slow
def test_bugs_are_planted_and_caught(tmp_path: Path) -> None:
    path = tmp_path / "verdicts"
    arguments = ["--sample", "2", "--in", "core/retention.py", "--processes", "1", "--verdicts", str(path)]
    command = [sys.executable, "-m", "tests.mutants", "--generated", *arguments]
    run = subprocess.run(command, cwd=generated.ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert [verdict.verdict for verdict in verdicts.read(path).values()] == ["caught", "caught"]


def _verdict(one: Named, verdict: str) -> Verdict:
    return Verdict(one.name, trials.digest(one.mutation), verdict, f"{one.mutation.file}:{one.mutation.line}")


def _run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    trials.add_arguments(parser)
    generated.add_arguments(parser)
    return generated.main(parser.parse_args(arguments))


def _source(file: str) -> str:
    return (generated.SOURCE / file).read_text()
