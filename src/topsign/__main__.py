"""Entry point of ``python -m topsign``."""

from .cli import main

main()
