"""`python -m inout`: the `inout` command."""

from inout.cli import run

if __name__ == "__main__":
    run()
