"""A terminal that is none, for programs which tell of their progress to terminals only."""

import asyncio
import errno
import os
import termios


class PseudoTerminal:
    """The end at which we read what a child writes to its end, `child`, of a terminal."""

    def __init__(self) -> None:
        self._own, self.child = os.openpty()
        attributes = termios.tcgetattr(self.child)
        attributes[1] &= ~termios.OPOST  # or every line would end with a carriage return
        termios.tcsetattr(self.child, termios.TCSANOW, attributes)
        os.set_blocking(self._own, False)

    async def read(self, size: int) -> bytes:
        """Return the next bytes as soon as there are any, and none when the child is gone."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return os.read(self._own, size)
            except BlockingIOError:
                await _readable(loop, self._own)
            except OSError as error:
                if error.errno == errno.EIO:  # nobody has the other end open any longer
                    return b""
                raise

    def close(self) -> None:
        """Close our end."""
        os.close(self._own)


async def _readable(loop: asyncio.AbstractEventLoop, file: int) -> None:
    """Wait until there is something to read, or the end."""
    ready = asyncio.Event()
    loop.add_reader(file, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(file)
