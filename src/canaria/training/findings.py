"""What is known of an audited training run without statistics, in words for its report."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Facts about a training run that need no p-value. Each part of an audit gives its own; `+` joins them.

    Attributes:
        contradictions: Differences between training and what was stated that are certain.
        remarks: Other facts for the reader, such as differences on the safe side.
        doubts: Possible unlimited leaks. If there are any, the measured noise alone proves nothing.
        untested: For each topic, such as "weights", the reason why it was not tested; empty if it was.

    Example:
        >>> from canaria.training import Findings
        >>> twice = Findings(contradictions=("a row was drawn twice",))
        >>> (twice + Findings(remarks=("an epoch was cut short",)) + twice).contradictions
        ('a row was drawn twice',)
    """

    contradictions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    untested: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: "Findings") -> "Findings":
        """The findings of both, in this order, each once: a resumed audit may find a fault again."""
        return Findings(
            contradictions=tuple(dict.fromkeys((*self.contradictions, *other.contradictions))),
            remarks=tuple(dict.fromkeys((*self.remarks, *other.remarks))),
            doubts=tuple(dict.fromkeys((*self.doubts, *other.doubts))),
            untested=self.untested | other.untested,
        )
