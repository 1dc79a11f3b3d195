"""A small toy model, and a model that writes whatever a script says."""

import pytest
import torch

from core.environments.calculator import Calculator
from core.environments.registry import make_environment
from core.models.backend import KVCache
from core.models.toy import ToyBackend, ToyConfig
from core.models.toy_tokenizer import ToyTokenizer

SMALL = ToyConfig(
    hidden_size=32, num_layers=2, num_heads=2, intermediate_size=48, max_position_embeddings=512
)


class ScriptedBackend:
    """Writes ``script[p % len(script)]`` at position ``p``; its cache holds the ids it was fed.

    Args:
        script: Ids by position.
        rows: Physical rows.
        positions: Context length.
    """

    name = "scripted"
    device = torch.device("cpu")
    dtype = torch.float32

    def __init__(self, script: list[int], rows: int = 8, positions: int = 512) -> None:
        self.tokenizer = ToyTokenizer()
        self.vocab_size = self.hidden_size = self.tokenizer.vocab_size
        self.physical_rows = rows
        self.max_positions = positions
        self.step_positions = positions + 64
        self.script = torch.tensor(script)
        self.steps: list[tuple[int, ...]] = []
        self.caches: list[KVCache] = []

    def new_cache(self, rows: int, width: int) -> KVCache:
        cache = KVCache([torch.zeros(rows, 1, width, 1)], [torch.zeros(rows, 1, width, 1)])
        self.caches.append(cache)
        return cache

    def step(
        self, token_ids_SQ: torch.Tensor, positions_SQ: torch.Tensor, cache: KVCache
    ) -> torch.Tensor:
        assert 0 <= int(positions_SQ.min()) <= int(positions_SQ.max()) < cache.width
        assert int(positions_SQ.max()) < self.step_positions
        self.steps.append(tuple(token_ids_SQ.shape))
        rows_S1 = torch.arange(cache.rows)[:, None]
        cache.keys[0][rows_S1, 0, positions_SQ, 0] = token_ids_SQ.float()
        following = self.script[(positions_SQ + 1) % len(self.script)]
        return torch.nn.functional.one_hot(following, self.vocab_size).float()

    def project(self, hidden_NH: torch.Tensor) -> torch.Tensor:
        return hidden_NH * 30.0


class Faulty(Calculator):
    """A calculator in which one method raises."""

    def __init__(self, method: str, error: Exception) -> None:
        super().__init__()
        self.method, self.error = method, error

    def _maybe(self, method: str) -> None:
        if method == self.method:
            raise self.error

    def reset(self, task):
        self._maybe("reset")
        return super().reset(task)

    def step(self, call):
        self._maybe("step")
        return super().step(call)

    def verify(self, answer):
        self._maybe("verify")
        return super().verify(answer)


@pytest.fixture(scope="session")
def codec():
    return ToyTokenizer()


@pytest.fixture(scope="session")
def toy(codec):
    return ToyBackend(SMALL, 3, codec)


@pytest.fixture(scope="session")
def scripted():
    return ScriptedBackend


@pytest.fixture(scope="session")
def calculator():
    return lambda: make_environment("calculator", prompt_style="compact")


@pytest.fixture(scope="session")
def tasks(calculator):
    environment = calculator()
    return [
        environment.generate_task(index, seed=7, difficulty="medium", split="train")
        for index in range(24)
    ]


@pytest.fixture(scope="session")
def faulty():
    return Faulty
