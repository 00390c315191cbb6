"""A line on the terminal that says what takes so long, and is gone in the end."""

import contextlib
import shutil
import sys
import threading
from time import monotonic

PATIENCE = 2.0  # seconds without a word
PERIOD = 0.5  # seconds between changes of the line
CLEAR = "\r\x1b[K"


@contextlib.contextmanager
def progress(what, silent=False):
    """Yields a function that is told what is being done, in a few words. Where standard error is a terminal it shows
    them there from PATIENCE on, and leaves nothing behind. silent: shows nothing."""
    stream, doing = sys.stderr, [""]
    if silent or not _is_terminal(stream):
        yield lambda text: None
        return
    over = threading.Event()
    thread = threading.Thread(target=_show, args=(stream, what, doing, over), daemon=True)
    thread.start()
    try:
        yield lambda text: doing.__setitem__(0, text)
    finally:
        over.set()
        thread.join()


def _is_terminal(stream):
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # none, as of a program without a console, or a closed one
        return False


def _show(stream, what, doing, over):
    start = monotonic()
    if over.wait(PATIENCE):
        return
    with contextlib.suppress(OSError, ValueError):  # the terminal has gone, or the stream was closed
        while True:
            line = f"{what}: {doing[0]} ({monotonic() - start:.0f} s)"
            stream.write(CLEAR + line[: shutil.get_terminal_size().columns - 1])
            stream.flush()
            if over.wait(PERIOD):
                break
        stream.write(CLEAR)
        stream.flush()
