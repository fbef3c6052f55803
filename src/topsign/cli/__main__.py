"""``python -m topsign.cli``"""

from . import main

main()
