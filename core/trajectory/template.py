"""How messages are framed as text."""

from dataclasses import dataclass

from core.errors import TrajectoryError


@dataclass(frozen=True)
class TurnTemplate:
    """How messages are framed.

    Attributes:
        opening: Text before a message's role.
        after_role: Text between role and content.
        close: Text after a message's content.
    """

    opening: str = "<|im_start|>"
    after_role: str = "\n"
    close: str = "<|im_end|>\n"

    def header(self, role: str) -> str:
        """Return what opens a message of ``role``."""
        return f"{self.opening}{role}{self.after_role}"

    def message(self, role: str, content: str) -> str:
        """Return a whole message.

        Raises:
            TrajectoryError: The content holds a control text of this template and could so pose as
                another message.
        """
        for control in filter(None, (self.opening.strip(), self.close.strip())):
            if control in content:
                raise TrajectoryError(
                    f"a {role} message contains the control text {control}",
                    "Remove or escape it; only the template may frame messages.",
                )
        return f"{self.header(role)}{content}{self.close}"


CHATML = TurnTemplate()
"""The frames of Qwen and SmolLM2, and of the toy pair."""
