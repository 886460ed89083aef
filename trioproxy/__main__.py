"""`python -m trioproxy`: the command line."""

from trioproxy.cli import main

if __name__ == "__main__":
    main(prog_name="trioproxy")
