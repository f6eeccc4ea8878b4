"""The accountant of a private optimizer, and its record."""

import functools
from collections.abc import Iterator
from contextlib import suppress
from types import FunctionType, MethodType, MethodWrapperType

from opacus.accountants.accountant import IAccountant
from opacus.optimizers import DPOptimizer


def accountant_of(optimizer: DPOptimizer) -> IAccountant | None:
    """The accountant that counts the optimizer's steps, if any. Only the optimizer's step hook refers to it.

    Programs may wrap that hook in their own, which may refer to other accountants. The one in Opacus' own
    hook has priority. If there are several others, it is unknown which one counts.
    """
    waiting: list[object] = [optimizer.step_hook]
    seen: list[object] = []
    others: list[IAccountant] = []
    while waiting:
        hook = waiting.pop(0)
        if any(hook is one for one in seen):
            continue
        seen.append(hook)
        held = list(_captured(hook))
        found = [one for one in held if isinstance(one, IAccountant)]
        if found and isinstance(hook, FunctionType) and hook.__module__.startswith("opacus."):
            return found[0]
        others += [one for one in found if not any(one is other for other in others)]
        waiting += held
    return others[0] if len(others) == 1 else None


def _captured(hook: object) -> Iterator[object]:
    """The objects that a function, a method or a partial function refers to, one level deep."""
    if isinstance(hook, MethodType | MethodWrapperType):
        yield hook.__self__
    if isinstance(hook, MethodType):
        yield hook.__func__
    elif isinstance(hook, functools.partial):
        yield from (hook.func, *hook.args)
    elif isinstance(hook, FunctionType):
        for cell in hook.__closure__ or ():
            with suppress(ValueError):
                yield cell.cell_contents


def steps_counted(accountant: IAccountant) -> int:
    """The number of steps that an accountant has counted."""
    return sum(steps for *_, steps in history_of(accountant))


def history_of(accountant: IAccountant) -> list[tuple[float, float, int]]:
    """The accountant's record: noise multiplier, sampling rate, and number of consecutive steps."""
    return [(float(noise), float(rate), int(steps)) for noise, rate, steps in accountant.history]
