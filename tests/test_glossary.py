"""One word, one meaning: no two public types share a name, and the code uses each word that the glossary defines."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import demora

PACKAGE = Path(demora.__file__).parent
GLOSSARY = Path(__file__).parents[1] / "docs" / "glossary.md"
CLASS_NAME = re.compile(r"[A-Z]\w*[a-z]\w*")
MIRRORED = ("engines/postgres/", "engines/sqlite/")  # engines have the same parts under the same names


def types_in(module: ast.Module) -> set[str]:
    """The public types that a module defines: its classes and its aliases of types. An alias is assigned to a name that is
    spelled like a class, as in `Address = IPv4Address | IPv6Address`."""
    names = set[str]()
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        else:  # `X = …`, `X: TypeAlias = …` and `type X = …` have their names in different fields
            targets = [*getattr(node, "targets", []), getattr(node, "target", None), getattr(node, "name", None)]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if CLASS_NAME.fullmatch(name)}


def places_of_public_types() -> dict[str, set[str]]:
    places = defaultdict[str, set[str]](set)
    for path in PACKAGE.rglob("*.py"):
        file = path.relative_to(PACKAGE).as_posix()
        for engine in MIRRORED:
            file = file.replace(engine, "engines/*/")
        for name in types_in(ast.parse(path.read_text())):
            places[name].add(file)
    return places


def test_no_two_public_types_share_a_name() -> None:
    assert {name: files for name, files in places_of_public_types().items() if len(files) > 1} == {}


def test_aliases_of_types_are_read() -> None:
    text = "class Dog: ...\nAge = int | float\nPlace: TypeAlias = str\nId = NewType('Id', int)\nMOST = 3\n_Own = int"
    assert types_in(ast.parse(text)) == {"Dog", "Age", "Place", "Id"}


def defined() -> list[str]:
    """The words of the glossary, without those of planned features."""
    rows = re.findall(r"^\| (\*\*.+?) \| (.+) \|$", GLOSSARY.read_text(), re.M)
    return sorted(
        {
            word
            for words, meaning in rows
            if not meaning.startswith("Planned:")
            for word in re.findall(r"\*\*(.+?)\*\*", words)
        }
    )


@cache
def words_of_the_code() -> str:
    """All names, comments and texts of the package, in small letters, with the parts of names apart."""
    text = " ".join(path.read_text() for kind in ("py", "sql", "lua") for path in sorted(PACKAGE.rglob(f"*.{kind}")))
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return re.sub(r"[\W_]+", " ", apart).lower()


def inflected(word: str) -> str:
    """A pattern for a word of the glossary and its forms: hand back, handed back, hands back."""
    parts = [rf"{part.removesuffix('e')}(?:e|s|es|ed|d|ing)?" for part in re.split(r"[ -]", word.lower())]
    return rf"\b{' '.join(parts)}\b"


@pytest.mark.parametrize("word", defined())
def test_the_code_uses_the_words_of_the_glossary(word: str) -> None:
    assert re.search(inflected(word), words_of_the_code())


def test_the_glossary_is_read() -> None:
    assert {"job", "dead letter", "hand-back", "pause", "COMPLETED", "schedule", "fire"} <= set(defined())
