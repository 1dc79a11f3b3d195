"""A small data set in the layout of GSM8K: ``python -m core.prompts.word_problems DIRECTORY``.

Rows hold ``question`` and ``answer``, the answer a solution whose last line is ``#### NUMBER``. The
command writes the files of ``recipes/prompts_toy.yaml``.
"""

import json
import random
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from core.seeding import derive_seed

NAMES = ("Ann", "Bob", "Eve", "Max")
THINGS = ("eggs", "figs", "nuts", "pens")
LARGEST = 9
SEED = 7
SPLITS = {"word_problems_train.jsonl": 384, "word_problems_val.jsonl": 96}
"""File name to number of rows; no question is in both."""


def problems() -> Iterator[dict[str, str]]:
    """Yield every problem once: sums of two digits, and differences that are at least 1."""
    digits = range(1, LARGEST + 1)
    for name, thing, a, b in product(NAMES, THINGS, digits, digits):
        yield _row(f"{name} has {a} {thing} and gets {b} more. How many?", f"{a}+{b}", a + b)
        if a > b:
            yield _row(f"{name} has {a} {thing} and loses {b}. How many?", f"{a}-{b}", a - b)


def _row(question: str, sum_: str, answer: int) -> dict[str, str]:
    return {"question": question, "answer": f"{sum_}={answer}\n#### {answer}"}


def write_word_problems(directory: Path) -> list[Path]:
    """Write the files of ``SPLITS``: a shuffle of all problems, cut in order.

    Args:
        directory: Where to write; it exists.
    """
    rows = list(problems())
    random.Random(derive_seed(SEED, "word problems", len(rows))).shuffle(rows)
    written, start = [], 0
    for name, count in SPLITS.items():
        lines = [json.dumps(row, sort_keys=True) + "\n" for row in rows[start : start + count]]
        path, start = directory / name, start + count
        path.write_text("".join(lines), encoding="utf-8", newline="\n")
        written.append(path)
    return written


if __name__ == "__main__":
    write_word_problems(Path(sys.argv[1]))
