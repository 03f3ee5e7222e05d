"""Canary passwords with every sign that means something in a URL, as they are typed and as they should be."""

from urllib.parse import quote

CANARY = "c4n4ry"
SIGNS = ("#", "/", "@", "?", "%", ":", "[", "&x=", "#/@?%", " ")
PASSWORDS = tuple(f"{CANARY}{sign}Zz{CANARY[::-1]}" for sign in SIGNS)
NUMBERS = tuple(f"12{sign}34{CANARY}" for sign in SIGNS)  # those whose beginning could be a port


def urls(scheme: str, rest: str) -> list[str]:
    """URLs with each password in it as it is, encoded, and as a parameter."""
    found = []
    for password in (*PASSWORDS, *NUMBERS):
        found += [f"{scheme}://u:{password}@{rest}", f"{scheme}://u:{quote(password, safe='')}@{rest}"]
        found += [f"{scheme}://{rest}?password={password}", f"{scheme}://u{password}@{rest}"]
    return found


def leaked(text: str) -> bool:
    """Whether a text shows a part of a password that is long enough to be one."""
    return CANARY in text or CANARY[::-1] in text
