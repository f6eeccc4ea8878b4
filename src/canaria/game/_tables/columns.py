"""Finds the column of the scores and the column that says which elements were included."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from canaria._core.errors import InputError, nearest, shown

HigherMeans = Literal["included", "excluded"]
_SCORES: Final = (
    *("score", "scores", "loss", "losses", "logit", "logits", "confidence", "confidences", "statistic"),
    *("mia_score", "membership_score", "attack_score", "llr", "log_likelihood_ratio", "likelihood_ratio"),
)
_INCLUDED: Final = (
    *("included", "include", "is_included", "inclusion", "member", "members", "membership", "is_member"),
    *("ismember", "in", "is_in", "in_train", "is_train", "in_training", "train", "trained", "canary_in"),
    *("bit", "bits", "coin", "label", "labels", "target", "y", "y_true"),
)
"""Long lists on purpose: two candidates are an error, so a class label is not taken for membership."""
_LOSSES: Final = frozenset({"loss", "losses", "nll", "perplexity", "ppl"})


class ColumnError(InputError):
    r"""Raised if the columns are not known; says which argument, or option, names them.

    Args:
        fact: What is wrong with the columns.
        advice: Which argument names them.

    Example:
        >>> import tempfile, pathlib
        >>> from canaria.game.score_files import ColumnError, read_scores
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "scores.csv"
        >>> _ = path.write_text("a,b\n1.5,0\n-0.5,1\n")
        >>> try:
        ...     read_scores(path)
        ... except ColumnError as error:
        ...     print(str(error).partition(";")[2].strip())
        name it with score_column
    """

    __module__ = "canaria"

    def __init__(self, fact: str, advice: str) -> None:
        super().__init__(f"{fact}; {advice}")
        self._fact, self._advice = fact, advice

    def as_options(self) -> str:
        """The message in the words of the command line."""
        advice = self._advice
        for argument in ("score_column", "included_column", "higher_means"):
            advice = advice.replace(argument, "--" + argument.replace("_", "-"))
        return f"{self._fact}; {advice}"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The columns that the user named; None leaves a column to detection."""

    file: str
    score: str | None = None
    included: str | None = None
    higher_means: HigherMeans | None = None

    def among(self, names: Sequence[str]) -> "Columns":
        """Find both columns among the names that a file has."""
        score = self._named(self.score, "score_column", names)
        included = self._named(self.included, "included_column", names)
        if score is None:
            score = self._guessed("scores", _SCORES, "score_column", names, included)
        if included is None:
            included = self._guessed("who was included", _INCLUDED, "included_column", names, score)
        self._require_direction(names[score])
        if score == included:
            raise ColumnError(
                f"{self.file}: scores and bits must be two columns, got {shown(names[score])} twice",
                "name them with score_column and included_column",
            )
        return Columns(score, included, names[score].strip(), names[included].strip())

    def _named(self, name: str | None, argument: str, names: Sequence[str]) -> int | None:
        """The place of a column that the user named: by its exact name, or else ignoring case and dashes."""
        if name is None:
            return None
        found = [place for place, other in enumerate(names) if other.strip() == name.strip()]
        found = found or [place for place, other in enumerate(names) if _plain(other) == _plain(name)]
        if len(found) == 1:
            return found[0]
        count = "several" if found else "no"
        raise ColumnError(
            f"{self.file} has {count} column{'s' if found else ''} named {shown(name)}, but {_list(names)}"
            f"{nearest(name, names) if not found else ''}",
            f"name one of them with {argument}" if not found else "give every column its own name",
        )

    def _guessed(
        self, what: str, known: tuple[str, ...], argument: str, names: Sequence[str], taken: int | None
    ) -> int:
        """The documented name if it is there, otherwise the only name that people use for this."""
        places = [place for place, name in enumerate(names) if _plain(name) in known and place != taken]
        documented = [place for place in places if _plain(names[place]) == known[0]]
        found = documented or places
        if len(found) == 1:
            return found[0]
        fact = f"{self.file} must have one column with {what} (such as {known[0]!r}), got {_list(names)}"
        raise ColumnError(
            fact, "give every column its own name" if len(documented) > 1 else f"name it with {argument}"
        )

    def _require_direction(self, name: str) -> None:
        """A loss is usually lower for included elements, but only the user knows."""
        if self.higher_means is None and any(part in _LOSSES for part in _plain(name).split("_")):
            raise ColumnError(
                f"{self.file} has a column {name.strip()!r}, and a higher loss may mean included or excluded",
                "say which with higher_means (losses are usually higher for excluded elements), or name "
                "another column with score_column",
            )


@dataclass(frozen=True)
class Columns:
    """The places of the two columns, and their names, which errors cite."""

    score: int
    included: int
    score_name: str
    included_name: str


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def _list(names: Sequence[str]) -> str:
    return shown([name.strip() for name in names])
