"""What can go wrong, and the exit code each kind ends with (documented in docs/command-line.md)."""


class RegardError(Exception):
    """A mistake or failure that is told to the user in one message, without a traceback."""

    exit_code = 1


class ConfigError(RegardError):
    """An option, override or recipe that cannot be used."""

    exit_code = 2


class DataError(RegardError):
    """A file that cannot be read as promised: misaligned, undecodable, wrong keys."""

    exit_code = 3


class ModelError(RegardError):
    """A model or run directory that is missing, damaged or of another kind."""

    exit_code = 4


class Diverged(RegardError):
    """Training ran into non-finite losses or gradients and stopped."""

    exit_code = 5


class Stopped(RegardError):
    """SIGTERM: the state was saved; the same command goes on."""

    exit_code = 75


class Interrupted(RegardError):
    """Ctrl-C: the state was saved; the same command goes on."""

    exit_code = 130
