"""Messages to the person at the terminal."""

from rich.console import Console, RenderableType

from ..distributed import is_main_process


def say(message: RenderableType) -> None:
    """Show a message or a table on stdout, above a progress bar if one is running; of several processes the first one does.

    The console is made anew each time: it must follow `sys.stdout`, which a running progress bar replaces.
    """
    if not is_main_process():
        return
    is_text = isinstance(message, str)
    Console().print(message, markup=not is_text, highlight=False, soft_wrap=is_text)
