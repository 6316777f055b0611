"""Messages to the person at the terminal."""

from rich.console import Console, RenderableType


def say(message: RenderableType) -> None:
    """Show a message or a table on stdout, above a progress bar if one is running.

    The console is made anew each time: it must follow `sys.stdout`, which a running progress bar replaces.
    """
    is_text = isinstance(message, str)
    Console().print(message, markup=not is_text, highlight=False, soft_wrap=is_text)
