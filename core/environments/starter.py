"""A small world to start from, as `opd env new` writes it.

The student keeps a shop's till. It looks up prices, one tool call each, and answers with a total.

    opd env check starter.py        # does it keep the contract? say so before anything is trained
    opd env sample starter.py       # read what the oracle does

Change one thing at a time and check again. docs/environments.md explains every method.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from core.environments.base import (
    Difficulty,
    OracleAction,
    OracleFinal,
    Split,
    Task,
    ToolCall,
)
from core.environments.tool_specs import Argument, tool_spec
from core.environments.tool_world import Tool, ToolWorld, text_argument
from core.errors import ToolEnvironmentError

ITEMS = ("apple", "bread", "candle", "dates", "eggs", "flour")
BOUGHT: dict[Difficulty, int] = {"easy": 1, "medium": 2, "hard": 3}
"""Different items in a task: what makes it hard."""


class Starter(ToolWorld):
    """Tasks: what does this basket cost?"""

    # The name that a recipe's environment.name uses.
    name = "starter"

    def generate_task(self, index: int, *, seed: int, difficulty: Difficulty, split: Split) -> Task:
        """Draw a basket.

        The same arguments must give the same task for ever, in every process: draw from a private
        ``Random`` that is seeded by a text, and never from ``hash()``, a set, the clock or a
        global generator.
        """
        rng = Random(f"starter:{seed}:{difficulty}:{index}")
        shop = rng.randrange(100_000)
        basket = {item: rng.randrange(2, 6) for item in rng.sample(ITEMS, BOUGHT[difficulty])}
        prices = _prices(shop)
        wanted = " and ".join(f"{count} {item}" for item, count in basket.items())
        return Task(
            task_id=f"starter-{split}-{index}",
            # What the student reads. No two splits may share a prompt; the shop sees to it.
            prompt=f"Shop {shop}: what does {wanted} cost?",
            # What the verifier expects. It must not stand in the prompt.
            answer=str(sum(prices[item] * count for item, count in basket.items())),
            difficulty=difficulty,
            split=split,
            # Whatever the other methods need, as plain JSON. The student never sees it.
            metadata={"shop": shop, "basket": basket},
        )

    def tool_specs(self) -> list[dict[str, Any]]:
        """Say what the tools are; the system prompt is made from this."""
        item = Argument("string", f"one of {', '.join(ITEMS)}", example="apple")
        return [tool_spec("price", "Looks up the price of one item.", item=item)]

    def tools(self) -> Mapping[str, Tool]:
        """Return the functions behind the specs: arguments in, text out."""
        return {"price": self._price}

    def begin(self, task: Task) -> None:
        """Set an episode up. All that may change during an episode is set here, on ``self``."""
        self._stock = _prices(task.metadata["shop"])

    def _price(self, arguments: Mapping[str, Any]) -> str:
        item = text_argument(arguments, "item")  # refuses what is no text
        if item not in self._stock:
            # Never any other exception: the student reads this one and may try again.
            raise ToolEnvironmentError(
                f"there is no {item[:20]!r} here", f"Items: {', '.join(ITEMS)}."
            )
        return str(self._stock[item])

    def oracle_actions(self, task: Task) -> list[OracleAction]:
        """Solve the task as a perfect student would: demonstrations and the toy teacher use it."""
        calls = [ToolCall("price", {"item": item}) for item in task.metadata["basket"]]
        return [*calls, OracleFinal(task.answer)]

    def privileged_context(self, task: Task) -> str:
        """Return a hint that only a teacher reads (models.teacher.mode: privileged_context)."""
        return f"The right total is {task.answer}."

    def final_answer_example(self) -> str:
        """Return an answer in the right form, for the system prompt."""
        return "17"


def _prices(shop: int) -> dict[str, int]:
    rng = Random(f"starter-prices:{shop}")
    return {item: rng.randrange(2, 10) for item in ITEMS}
