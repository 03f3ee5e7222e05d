"""`python -m demora` is `demora`."""

from .cli import main

main()
