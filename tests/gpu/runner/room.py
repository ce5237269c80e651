"""Memory of a GPU, shared by checks that run side by side."""
import contextlib
import threading


class Room:
    """`total` bytes of each GPU. What needs more than is left waits for those that are there; what needs more than all runs alone."""

    def __init__(self, total):
        self.total, self.used, self.changed = total, 0, threading.Condition()

    @contextlib.contextmanager
    def taken(self, amount):
        with self.changed:
            self.changed.wait_for(lambda: self.used == 0 or self.used + amount <= self.total)
            self.used += amount
        try:
            yield
        finally:
            with self.changed:
                self.used -= amount
                self.changed.notify_all()
