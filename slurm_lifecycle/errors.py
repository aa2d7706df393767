"""Errors of the suite.

LifecycleError
├── ConfigError               the configuration is wrong; names the key and the remedy
├── BackendError              something outside did not do what was asked
│   ├── TransientError        nothing happened, asking again later may help
│   ├── PermanentError        refused; asking again will not help
│   └── AmbiguousOutcome      it may or may not have happened
└── StoreError                the store cannot be used
    ├── StoreBusy             locked by somebody else for longer than the timeout
    ├── SchemaTooNew          written by a newer release
    └── NotTheActor           another daemon, host or instance acts on this cluster

InvariantViolation            a plan was unsafe; outside the tree, so that no retry swallows it
"""


class LifecycleError(Exception):
    """Base of everything that the suite raises on purpose; its text is one line for an administrator."""


class ConfigError(LifecycleError):
    """The configuration is wrong; the text names the key and what to put there."""


class BackendError(LifecycleError):
    """An operation on something outside failed.

    Args:
        operation: what was asked, in short ("drain n3").
        detail: what came back, one line.
    """

    def __init__(self, operation: str, detail: str) -> None:
        self.operation = operation
        self.detail = " ".join(detail.split())[:500]
        super().__init__(f"{operation}: {self.detail}")


class TransientError(BackendError):
    """Nothing happened; asking again later may help."""


class PermanentError(BackendError):
    """Refused; asking again will not help."""


class AmbiguousOutcome(BackendError):
    """It may or may not have happened: only a fresh look tells."""


class StoreError(LifecycleError):
    """The store cannot be used."""


class StoreBusy(StoreError):
    """The store was locked for longer than the timeout."""


class SchemaTooNew(StoreError):
    """The store was written by a newer release."""


class NotTheActor(StoreError):
    """Another daemon, host or instance acts on this cluster."""


class InvariantViolation(Exception):
    """A plan breaks a safety rule. Nothing of it is carried out."""
