"""Clients that were never closed: their worker must be gone before the interpreter is, whether the
client is still there or was dropped.
"""

from __future__ import annotations

import atexit
import weakref

from . import _core

_open: weakref.WeakSet[_core.Client] = weakref.WeakSet()


def remember(client: _core.Client) -> None:
    """Closes the client at exit, if it is still open."""
    _open.add(client)


@atexit.register
def _close_all() -> None:
    for client in list(_open):
        client.close()
    _core.wait_for_threads()
