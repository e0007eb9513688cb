"""What Gradio holds of each visit: half a megabyte for its copy of the page, and the values of its states."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gradio.state_holder import StateHolder

MAX_SESSIONS = 1000
"""Open ones as well; beyond that whoever has asked for nothing for longest begins anew."""

MAX_LEFT = 32
"""Visits that are over and are held all the same: a machine that wakes up goes on where it was."""

LEFT_AFTER, FORGOTTEN_AFTER = timedelta(minutes=5), timedelta(hours=1)
"""An open page asks every few seconds, in the background once a minute. One that was closed may still be connecting
anew; after an hour Gradio itself would have dropped its states."""


class Sessions(StateHolder):
    """Forgets visits that are over, with their states.

    Gradio alone keeps up to 10,000 of them, and drops the states of a closed one an hour after each was last set: what
    had been looked at for longer went while the page was loaded anew. Here they go with the visit, all at once.
    """

    def set_blocks(self, blocks: Any) -> None:
        """Begin to hold the sessions of a page."""
        super().set_blocks(blocks)
        self.capacity = MAX_SESSIONS

    def delete_all_expired_state(self) -> None:
        """Called by Gradio every second; no state of ours has a time to live, the one thing it would see to as well."""
        now = datetime.now()
        unused = {name: now - self.time_last_used.get(name, now) for name in list(self.session_data)}
        # From the one that has not been used for longest.
        left = [name for name, since in unused.items() if since > LEFT_AFTER and self._is_closed(name)]
        for name in {*left[:-MAX_LEFT], *(name for name, since in unused.items() if since > FORGOTTEN_AFTER)}:
            self.delete_state(name)
            with self.lock:
                self.session_data.pop(name, None)
                self.time_last_used.pop(name, None)

    def _is_closed(self, name: str) -> bool:
        session = self.session_data.get(name)
        return session is not None and session.is_closed
