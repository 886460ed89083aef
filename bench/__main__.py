"""`python -m bench`."""

import sys

from bench.cli import main
from bench.process import StartFailed

if __name__ == "__main__":
    try:
        main()
    except StartFailed as error:
        sys.exit(f"bench: {error}")
