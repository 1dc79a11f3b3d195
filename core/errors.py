"""Typed errors: each says what is wrong (key, file, row) and what to do about it."""


class OpdError(Exception):
    """Any failure that this system understands.

    Args:
        message: What is wrong, with the exact key, file or row.
        hint: What to do about it.
    """

    exit_code = 3

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}"


class InterruptedRunError(OpdError):
    """A person stopped the run; what was finished is kept."""

    exit_code = 130


class RunOwnedError(OpdError):
    """Another process is at this run; nothing was started."""


class ChaosError(OpdError):
    """A disturbed run ended in something else than the bytes of the undisturbed one."""


class InputError(OpdError):
    """What the user gave cannot be used; nothing was started."""

    exit_code = 2


class RecipeError(InputError):
    """A recipe, an override or a combination of keys is refused."""


class MissingDependencyError(InputError):
    """An optional package is not installed."""


class PluginError(InputError):
    """Code that a recipe names is missing, is other code than was listed, or breaks a contract."""


class ConformanceError(InputError):
    """An environment does not do what every environment must."""


class ModelSourceError(InputError):
    """A model directory, file or Hub id cannot be loaded."""


class AbsentModelError(ModelSourceError):
    """A commit on the Hub is not on this disk, and could not be had."""


class PromptFileError(InputError):
    """A file of prompts, or a row of it, cannot be used."""


class QualificationError(InputError):
    """A teacher does not show what it must before it may teach."""


class TrajectoryError(InputError):
    """A trajectory row disagrees with itself or with its schema."""


class ChatTemplateError(TrajectoryError):
    """A chat template cannot write a conversation as it must be written here."""


class HistoryRewrittenError(ChatTemplateError):
    """A chat template changes what the model has already read or written."""


class AlignmentError(InputError):
    """Student and teacher views of one trajectory do not match."""


class TokenizerMismatchError(AlignmentError):
    """Student and teacher do not read the same tokens."""


class ToolCallParseError(InputError):
    """Text cannot be rendered or read as one protocol block."""


class ToolEnvironmentError(OpdError):
    """A tool refused its input; the episode sees it as a failed observation."""


class InvalidToolCallError(ToolEnvironmentError):
    """A tool was called with arguments of the wrong type."""


class StoreError(InputError):
    """The artifact store cannot be read or written."""


class StoreSchemaError(StoreError):
    """A record was written by a newer version of this system."""


class DamagedRecordError(StoreError):
    """A record is cut off or altered; its artifact counts as absent."""


class CacheError(StoreError):
    """A directory of cached teacher targets cannot be used."""


class CacheCorruptionError(CacheError):
    """A file of cached teacher targets is not what its index says; it is never served.

    Args:
        message: What is wrong, with the file.
        hint: What to do about it.
        file: Name of the file in the directory of the cache.
    """

    exit_code = 3

    def __init__(self, message: str, hint: str, file: str) -> None:
        super().__init__(message, hint)
        self.file = file


class KeyEncodingError(OpdError):
    """A value has no canonical encoding and so cannot enter a key."""


class BackendError(OpdError):
    """A model cannot do what was asked of it."""


class RoleScopeError(BackendError):
    """Roles on one base were mixed: a pass of one used or would have trained another's adapter."""


class NumericsError(OpdError):
    """A loss or gradient is not finite; the step was not committed."""


class BenchmarkError(OpdError):
    """Some arms of a benchmark failed; the others are there."""


class CanaryError(OpdError):
    """A self-test at the start of training failed; nothing was updated."""


class StalePolicyError(OpdError):
    """Rollouts or targets belong to another version of the student."""


class StaleCacheError(StalePolicyError):
    """Targets were scored for another version, or other tokens, of an episode."""


class MemoryExhaustedError(OpdError):
    """The device ran out of memory at the smallest permitted chunk."""


class ServerError(InputError):
    """The Prefect server cannot be started or reached."""
