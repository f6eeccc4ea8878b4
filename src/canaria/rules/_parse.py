"""Rules by name, as the command line takes them."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from canaria._validate import InputError, nearest, shown
from canaria.rules._guesses import Rule
from canaria.rules.adaptive import AdaptiveRule, All, Bet, UpTo
from canaria.rules.fixed import Soft, Surest, Tails, Threshold, Top
from canaria.rules.online import Online
from canaria.rules.ranked import Ranked

_PLAIN: Final[Mapping[str, Callable[[], Rule | AdaptiveRule]]] = {
    "all": All,
    "bet": Bet,
    "ranked": Ranked,
    "soft": Soft,
    "online": Online,
}
_WITH_NUMBER: Final[Mapping[str, Callable[[str], Rule | AdaptiveRule]]] = {
    "budget": lambda text: _up_to(*text.split(":")),
    "surest": lambda text: Surest(_whole(text)),
    "tails": lambda text: Tails(_whole(text)),
    "top": lambda text: Top(_whole(text)),
    "threshold": lambda text: Threshold(_number(text)),
}
_WHOLE: Final = re.compile(r"-?\d+", re.ASCII)
_NUMBER: Final = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf", re.ASCII | re.IGNORECASE)


def _up_to(budget: str, t: str = "0") -> UpTo:
    return UpTo(_whole(budget), _number(t))


def _whole(text: str) -> int:
    """An integer in plain digits: Python's own `int` also takes 1_0 and the digits of other scripts."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text)


def parse_rule(text: str) -> Rule | AdaptiveRule:
    """The rule of that name.

    >>> parse_rule("tails:100")
    Tails(k=100)
    """
    name, colon, number = text.partition(":")
    if name in _PLAIN and not colon:
        return _PLAIN[name]()
    if name in _WITH_NUMBER and number:
        try:
            return _WITH_NUMBER[name](number)
        except InputError:
            raise
        except (TypeError, ValueError):
            pass
    meant = nearest(name, [*_PLAIN, *_WITH_NUMBER])
    raise InputError(
        "rule must be ranked, tails:K, top:K, threshold:T, soft, online, surest:K, all, bet, budget:K "
        f"or budget:K:T (K an integer, T a number), got {shown(text)}{meant}"
    )
