"""One line a check, and a count at the end."""
import sys
import time
import traceback


class Skip(Exception):
    """The check cannot run here; why."""


class Report:
    def __init__(self, title, seconds=float("inf"), only=""):
        self.title, self.only = title, only
        self.end = time.monotonic() + seconds
        self.passed = self.failed = self.skipped = 0

    def left(self):
        return self.end - time.monotonic()

    def line(self, verdict, name, text=""):
        print(f"{verdict:4} {self.title}/{name}{': ' if text else ''}{text}", flush=True)

    def ok(self, name, text=""):
        self.passed += 1
        self.line("ok", name, text)

    def fail(self, name, text):
        self.failed += 1
        self.line("FAIL", name, text)

    def skip(self, name, text):
        self.skipped += 1
        self.line("skip", name, text)

    def run(self, name, check, *arguments):
        """`check` returns a text or None, and raises where it fails. Whether it passed."""
        if self.only and self.only not in name:
            return True
        if self.left() <= 0:
            self.skip(name, "the time is up")
            return True
        begun = time.monotonic()
        try:
            text = check(*arguments)
        except Skip as why:
            self.skip(name, str(why))
            return True
        except Exception as error:  # noqa: BLE001: whatever it is, it is the result
            where = traceback.extract_tb(sys.exc_info()[2])[-1]
            self.fail(name, f"{type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})")
            return False
        self.ok(name, f"{text + ', ' if text else ''}{time.monotonic() - begun:.2f} s")
        return True

    def finish(self):
        """The exit code."""
        print(f"{self.title}: {self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed or not self.passed else 0


def expect(condition, text):
    if not condition:
        raise AssertionError(text)
