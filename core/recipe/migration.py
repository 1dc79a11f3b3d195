"""Keys of older recipes that are read under their present name."""

from collections.abc import Iterator

from core.recipe.document import Document
from core.recipe.problems import Problem

CE_WEIGHT = ("loss", "ce_weight")
NLL_WEIGHT = ("loss", "sampled_token_nll_weight")


def migrate(document: Document) -> Iterator[Problem]:
    """Rename ``loss.ce_weight`` where its meaning is certain; yield a problem where it is not.

    In a supervised run it was the weight of the cross-entropy, as
    ``loss.sampled_token_nll_weight`` is now. In a distillation run a positive value was ambiguous.
    """
    if not document.has(CE_WEIGHT):
        return
    weight = document.get(CE_WEIGHT)
    if document.get(("run", "mode"), "opd") == "sft" and not document.has(NLL_WEIGHT):
        document.move(CE_WEIGHT, NLL_WEIGHT)
    elif weight == 0:
        document.pop(CE_WEIGHT)
    else:
        yield Problem(
            CE_WEIGHT,
            "is ambiguous in a distillation run",
            "Use loss.sampled_token_nll_weight for the sampled token's likelihood.",
        )
