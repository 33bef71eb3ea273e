"""Who counts on the nodes' links as they are: while anybody does, nobody changes them."""

from __future__ import annotations

import socket
import traceback

from .errors import ClusterError
from .nodes import Nodes


class Links:
    """The links of a cluster's nodes, as its keeper holds them.

    Whoever measures holds them by an open connection. Its end gives them back, so that no way to die, power cuts
    included, leaves them limited.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._before: str | None = None  # what they are put back to
        self._held: dict[socket.socket, str] = {}

    @property
    def holders(self) -> list[socket.socket]:
        return list(self._held)

    @property
    def held_by(self) -> list[str]:
        """What measures over them now."""
        return list(self._held.values())

    @property
    def by_hand(self) -> str | None:
        """What they are limited to when nobody measures over them, so what somebody has set."""
        return self._before if self._held else self._nodes.rate

    def shape(self, rate: str | None) -> None:
        """Limit them to `rate`, None for no limit; ClusterError while somebody measures over them."""
        if self._held:
            raise ClusterError(self._refusal())
        self._nodes.shape(rate)

    def hold(self, connection: socket.socket, rate: str | None, by: str) -> None:
        """Limit them to `rate` until `connection` ends; ClusterError if somebody measures over others."""
        if not self._held:
            self._before = self._nodes.rate
        elif rate != self._nodes.rate:
            raise ClusterError(self._refusal())
        if rate != self._nodes.rate:
            self._nodes.shape(rate)
        self._held[connection] = by

    def release(self, connection: socket.socket) -> None:
        """`connection` has ended: the last one's end puts the links back."""
        if self._held.pop(connection, None) is not None and not self._held and self._nodes.rate != self._before:
            try:
                self._nodes.shape(self._before)
            except ClusterError:  # of a node that is dying
                traceback.print_exc()
        connection.close()

    def _refusal(self) -> str:
        rate = self._nodes.rate or "as fast as this machine"
        return f"the links stay {rate} while {', '.join(self.held_by)} is measured over them: wait for its end"
