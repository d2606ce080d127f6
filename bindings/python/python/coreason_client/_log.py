"""The one place that logs.

Imported when there is something to say: `logging` takes its time to import.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("coreason_client")


def log(is_warning: bool, text: str) -> None:
    """Logs an event between packets. The native half calls this."""
    logger.log(logging.WARNING if is_warning else logging.DEBUG, "%s", text)
