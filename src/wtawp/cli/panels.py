"""The order in which `wtawp --help` lists the commands, under the question that they answer."""

import typer

PANELS = {
    "Train and compare": ("compare", "tune", "train", "demo"),
    "Robustness": ("attack", "certify", "audit"),
    "The loss around a model": ("landscape", "sharpness", "smoothness", "bound"),
    "The paper, and plans of your own": ("reproduce", "run", "report"),
    "Data, results, installation": ("doctor", "data", "results"),
}


def arrange(app: typer.Typer) -> None:
    """Put every command and group of commands into its panel.

    Args:
        app: The app, with all its commands.

    Raises:
        KeyError: If a command has no panel.
    """
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    place = {name: i for i, name in enumerate(panel_of)}
    for command in app.registered_commands:
        command.rich_help_panel = panel_of[_name_of(command)]
    for group in app.registered_groups:
        group.rich_help_panel = panel_of[group.name or ""]
    app.registered_commands.sort(key=lambda command: place[_name_of(command)])
    app.registered_groups.sort(key=lambda group: place[group.name or ""])


def _name_of(command: typer.models.CommandInfo) -> str:
    """The name of a command: its own, or that of its function."""
    return str(command.name or getattr(command.callback, "__name__", ""))
