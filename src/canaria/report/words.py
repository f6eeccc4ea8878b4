"""The sentences of the report: what a verdict, an adjacency and a gap mean."""

from typing import Final

HOW_TO_READ: Final = (
    "Each element (a record, a canary) was included by a hidden fair coin. The algorithm ran, and a "
    "guesser who saw its output (in an adaptive audit also coins that were revealed before) guessed "
    "the coins. If the algorithm keeps ε-differential privacy, each guess is right with probability at"
    " most e^ε / (1 + e^ε), so too many right guesses refute it. The bound is the largest ε such that "
    "it and every smaller one is refuted at the stated confidence. With δ > 0 the rare failures that δ"
    " allows are charged in full."
)
MEANING: Final = {
    True: (
        "The algorithm leaks more than it promises, or something that the audit assumes is not so (see"
        " what must be true, below), or chance played a trick, as it does with at most {wrong}% of "
        "correct algorithms."
    ),
    False: (
        "The audit found nothing that contradicts the claim. That is not a proof of it: the true ε may"
        " lie anywhere above the bound."
    ),
    None: ("No claim was given to compare with. The true ε may lie anywhere above the bound."),
}
ADJACENCY: Final = {
    "add-remove": (
        "An excluded element contributed nothing, so the bound is about adding or removing one record."
    ),
    "replace": (
        "Another record stood in for an excluded element, so the bound is about replacing one record. "
        "A replace-one ε can be up to twice the add-remove ε of the same algorithm."
    ),
    "unspecified": (
        "It was not recorded whether an excluded element contributed nothing (add-remove) or another "
        "record stood in for it (replace). The claim must be of the same kind."
    ),
}
GAPS: Final = {
    "interference": (
        "The other hidden bits blur each element. Put fewer canaries on a coordinate, make them "
        "orthogonal, or reveal bits round by round (adaptive auditing)."
    ),
    "outputs": (
        "The one output that was seen is not the worst that could have come. More canaries, or several"
        " runs, meet worse ones. Slack of the accountant is in here too."
    ),
    "elements": (
        "Guesses were spent on elements of which this output says little. Guess fewer, weigh the "
        "guesses (rule Soft, where losses are known), or use more exposed canaries."
    ),
    "elements, outputs, interference": (
        "What chance does not explain: weak scores or canaries, an output that was not the worst, "
        "hidden bits that blur each other, or a loose claim. Better scores come first."
    ),
    "chance": (
        "Finitely many guesses at this confidence, what looking at many numbers of guesses costs, and "
        "what δ allows. If the same share stays right, four times as many guesses about halve it."
    ),
}
ABOVE: Final = (
    "The bound lies above what is explained so far: luck, or less noise than stated. Look at conformance."
)
NOTHING: Final = "Nothing is lost here."
NO_LADDER: Final = "The bound lies above the claim, so there is no way down from the claim to it."
BY_CONFIDENCE: Final = (
    "What the same evidence shows at other confidences. The confidence was fixed before; the curve "
    "explains the bound and is not a choice to be made afterwards."
)
CHARGED: Final = (
    " With δ > 0 a bound can fall to 0 at high confidence: what δ allows then uses up all the error "
    "that may be made."
)
BY_GUESSES: Final = (
    "What each number of guesses would have shown, had it alone been fixed in advance. The best point "
    "of this curve is not a bound: it was found by looking. The reported bound is found without that "
    "choice."
)
PROJECTED: Final = (
    "What more or fewer guesses would show if the same share of them were right: how much is lost to chance."
)
SCORES: Final = (
    "Scores of included and excluded elements. Only the parts that do not overlap can be guessed well;"
    " a few elements far out can carry the whole bound."
)
CONFORMANCE: Final = (
    "Is what was released what was stated? Offset: something was added everywhere. Weight: included "
    "elements weigh more or less than they should. Layers: parameters differ. Noise: there is more or less "
    "of it. Steps: it comes and goes. This test is much more sensitive than the bound, but it trusts the "
    "stated law, and it is not a bound on ε. Correct code gives a p-value below 0.001 once in 1,000 runs."
)
KINDS: Final = {
    "Counts": "the same, as this number of guesses was fixed in advance",
    "Ranking": "with the price of looking at many numbers of guesses, from several ends",
    "Weighted": "with sure guesses weighing more",
    "Bets": "by bets that may stop at any time",
}
RULES: Final = {
    "Ranked()": (
        ": guesses both ends of the scores (with 70% of the error probability), the high end alone and the "
        "low end alone (15% each), and takes the largest bound"
    ),
}
DERIVED: Final = (
    "The guesses are counted where the evidence speaks most clearly, so the first number leans high and has "
    "no confidence."
)
