"""`python -m wtawp.cli`, for environments in which the command `wtawp` is not installed."""

from wtawp.cli import app

if __name__ == "__main__":
    app(prog_name="wtawp")
