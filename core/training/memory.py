"""Running out of device memory: try again with smaller chunks, and with nothing else changed."""

import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from core.errors import MemoryExhaustedError

Result = TypeVar("Result")
logger = logging.getLogger(__name__)


class ChunkSize:
    """Positions whose logits exist at the same time; it shrinks and stays small.

    Args:
        size: First chunk size.
        retries: Times that it may be halved for one attempt.
        smallest: Smallest size tried.
    """

    def __init__(self, size: int, retries: int, smallest: int) -> None:
        self.size = size
        self.history: list[int] = []
        """Sizes that were too large, in order."""
        self._retries = retries
        self._smallest = smallest

    def run(self, attempt: Callable[[int], Result], reset: Callable[[], None]) -> Result:
        """Call ``attempt`` with the chunk size, halving it each time the device is full.

        Args:
            attempt: Work that starts from the same state every time. It draws no random numbers.
            reset: Undoes a failed attempt, e.g. clears gradients.

        Raises:
            MemoryExhaustedError: The smallest size does not fit, or the retries are spent.
        """
        for retry in range(self._retries + 1):
            try:
                return attempt(self.size)
            except torch.OutOfMemoryError as error:
                reset()
                smaller = max(self.size // 2, self._smallest)
                if retry == self._retries or smaller >= self.size:
                    raise self._exhausted() from error
                logger.warning("out of memory at chunk size %d; trying %d", self.size, smaller)
                self.history.append(self.size)
                self.size = smaller
        raise self._exhausted()

    def _exhausted(self) -> MemoryExhaustedError:
        return MemoryExhaustedError(
            f"the device is out of memory at runtime.chunk_size={self.size}",
            "Lower runtime.trajectory_batch_size or runtime.max_update_padded_tokens; both leave "
            "the objective as it is.",
        )
