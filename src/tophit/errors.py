"""Errors a user can act on: the command line prints their one sentence and no traceback."""


class TophitError(Exception):
    """Something failed for a reason the user can understand and fix."""

    exit_code = 1


class UsageError(TophitError):
    """The call, recipe or arguments are wrong."""

    exit_code = 2


class DiskFull(TophitError):
    """There is no room on the disk; nothing was written."""


class NonFinite(TophitError):
    """A loss or a gradient became infinite or not a number; the step was not taken."""


class Interrupted(TophitError):
    """The user stopped the work; what was done is kept and can be continued."""

    exit_code = 130
