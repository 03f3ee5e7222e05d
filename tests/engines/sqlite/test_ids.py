"""The stored form of ids."""

import pytest

from demora.engines.sqlite.rows import id_bytes, id_text

ID = "01a1e930-cbcf-70f2-9d80-c00548c2d7b6"


def test_an_id_is_stored_in_16_bytes() -> None:
    packed = id_bytes(ID)
    assert packed is not None
    assert (len(packed), id_text(packed), id_bytes(ID.upper())) == (16, ID, packed)


@pytest.mark.parametrize(
    "text",
    [
        *("", ID[:-1], ID + "0", ID.replace("-", ""), ID.replace("-", "0"), ID.replace("a", "g")),
        *(ID[:9] + "--" + ID[11:], ID[:24] + "  " + ID[26:], ID[:-1] + "٣"),
    ],
)
def test_other_text_is_no_id(text: str) -> None:
    assert id_bytes(text) is None
