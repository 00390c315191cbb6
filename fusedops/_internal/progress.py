"""How far long work has come: shown as a bar or in lines, or told to a function."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

Tell: TypeAlias = Callable[..., None]  # (part from 0 to 1, what is being done)


def quiet(part: float, doing: str = "") -> None:
    """Tells nobody."""


@contextlib.contextmanager
def shown(progress: Any, title: str) -> Iterator[Tell]:
    """Yields a function that is told what part is done, 0 to 1, and what is being done, in a few words.

    Parameters
    ----------
    progress : bool, callable or None
        True shows a bar on standard error where the package rich is installed, else a line for each tenth. A callable
        is given the part. None and False show nothing.
    """
    if progress is None or progress is False:
        yield quiet
    elif progress is True:
        with _bar(title) as tell:
            yield tell
    elif callable(progress):
        yield lambda part, doing="": progress(part)
    else:
        raise TypeError(f"progress must be True, or a function that takes the part that is done, not {progress!r}")


@contextlib.contextmanager
def _bar(title: str) -> Iterator[Tell]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        yield _lines(title)
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(title, total=1.0)

        def tell(part: float, doing: str = "") -> None:
            display.update(task, completed=part, description=f"{title}: {doing}" if doing else title)

        yield tell


def _lines(title: str) -> Tell:
    """A line for each tenth, and for what is done next."""
    last = [-1, ""]

    def tell(part: float, doing: str = "") -> None:
        here = [int(10 * part), doing]
        if here != last:
            last[:] = here
            print(f"{title}: {part:4.0%}{'  ' + doing if doing else ''}", file=sys.stderr, flush=True)

    return tell
