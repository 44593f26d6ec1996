"""`python -m wtawp`: the command `wtawp`, for environments in which it is not on the path."""

from wtawp.cli import app

if __name__ == "__main__":
    app(prog_name="wtawp")
