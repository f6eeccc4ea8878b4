"""The sentences of the report: the meaning of verdicts, adjacencies and gaps."""

from typing import Final

HOW_TO_READ: Final = (
    "A hidden fair coin decided whether each element (a record or canary) was included. The algorithm "
    "ran, and a guesser who saw its output (and, in an adaptive audit, the coins revealed so far) guessed"
    " the coins. If the algorithm satisfies ε-differential privacy, each guess is right with probability "
    "at most e^ε / (1 + e^ε), so too many right guesses refute it. The bound is the largest ε such that "
    "every value up to and including it is refuted at the stated confidence. With δ > 0, the bound also "
    "allows for the failures that δ permits. Where a family of claims is named, the bound is the ε that the "
    "accountant gives for its weakest refuted claim: it is about mechanisms of that family alone."
)
MEANING: Final = {
    True: (
        "The algorithm leaks more than it promises, or an assumption of the audit does not hold (see what"
        " must be true, below), or this is a false alarm, which happens in at most {wrong}% of audits of "
        "correct algorithms."
    ),
    False: (
        "The bound does not exceed the claimed ε. This does not prove the claim: the true ε may lie "
        "anywhere above the bound."
    ),
    None: "No claim was given for comparison. The true ε may lie anywhere above the bound.",
}
MEANING_OF_FAMILY: Final = {
    True: (
        "The mechanism is not as private as claimed: it is another one, with less noise or with other "
        "settings, or an assumption of the audit does not hold (see what must be true, below), or this is a"
        " false alarm, which happens in at most {wrong}% of audits of correct mechanisms."
    ),
    False: (
        "The claim is not refuted, which does not prove it. The ε that is shown is about mechanisms of the "
        "family alone, not about every mechanism."
    ),
    None: (
        "No claim was given for comparison. The ε that is shown is about mechanisms of the family alone, not "
        "about every mechanism; other steps, another rate or other clipping explain a refutation as well as "
        "too little noise."
    ),
}
NOT_CONFORMING: Final = (
    " The conformance test failed, however: training does not do what the claim assumes of it."
)
ADJACENCY: Final = {
    "add-remove": (
        "An excluded element contributed nothing, so the bound is about adding or removing one record."
    ),
    "replace": (
        "Another record stood in for an excluded element, so the bound is about replacing one record. A "
        "replace-one ε can be up to twice the add-remove ε of the same algorithm."
    ),
    "unspecified": (
        "It was not recorded whether an excluded element contributed nothing (add-remove) or another "
        "record stood in for it (replace). The claim must be of the same kind."
    ),
}
GAPS: Final = {
    "interference": (
        "The other hidden bits mask each element. Put fewer canaries on each coordinate, make them "
        "orthogonal, or reveal bits round by round (adaptive auditing)."
    ),
    "outputs": (
        "The observed output is not the worst case. Several runs, or more canaries that are independent, "
        "are more likely to include worse ones. This step also includes any slack in the accountant."
    ),
    "elements": (
        "Guesses were spent on elements about which this output reveals little. Make fewer guesses, "
        "weight the guesses (rule Soft, where privacy losses are known), or use canaries that are more "
        "exposed."
    ),
    "elements, outputs, interference": (
        "The part that chance does not explain: weak scores or canaries, an output that was not the "
        "worst, hidden bits that mask each other, or a loose claim. Try better scores first."
    ),
    "chance": (
        "The cost of having finitely many guesses at this confidence, of examining many numbers of "
        "guesses, and of δ. At the same accuracy, four times as many guesses roughly halve it."
    ),
}
ABOVE: Final = (
    "The bound exceeds what the preceding steps allow: either luck, or less noise than stated. See "
    "Conformance, if shown."
)
NOTHING: Final = "Nothing is lost here."
NO_LADDER: Final = "The bound exceeds the claim, so there is no gap between them to explain."
BY_CONFIDENCE: Final = (
    "The bound that the same evidence gives at other confidence levels. The confidence was fixed in "
    "advance; this curve is for explanation only and must not be used to choose it afterwards."
)
CHARGED: Final = (
    " With δ > 0, the bound can fall to 0 at high confidence, because the failures that δ permits then "
    "use up the entire error probability."
)
BY_GUESSES: Final = (
    "The bound that each number of guesses would have given, had it alone been fixed in advance. The best"
    " point of this curve is not a valid bound, because it was picked after the fact. The reported bound "
    "does not rely on that choice."
)
PROJECTED: Final = (
    "The bound that more or fewer guesses would give at the same accuracy; it shows how much is lost to "
    "chance."
)
SCORES: Final = (
    "Scores of included and excluded elements. Only the parts that do not overlap can be guessed well; a "
    "few elements in the tails can account for the whole bound."
)
CONFORMANCE: Final = (
    "Does the release match what was stated? Offset: a constant was added everywhere. Weight: included "
    "elements count for more or less than they should. Layers: the offset or the weight differs between "
    "parameters. Noise and size: there is more or less noise than stated. Steps, places: noise is missing "
    "in some steps, weights or parameters. Shape: the noise is not normal. Repeats: the noise of a step "
    "was used before. Copies: the same noise is used for several weights. This test is much more "
    "sensitive than the bound, but it assumes the stated noise distribution, and it is not a bound on ε. "
    "Correct code gives a p-value below 0.001 in about one run in 1,000."
)
RUNGS: Final = (
    "The first line is the bound, which holds for any mechanism. Each further line states what else it "
    "assumes. The audit does not prove these assumptions, but it withdraws a line if the observations "
    "contradict it. Each line holds by itself, at {sure} confidence. Lines without an upper end are lower "
    "bounds."
)
KINDS: Final = {
    "Counts": "unchanged, because this number of guesses was fixed in advance",
    "Ranking": "after correcting for every number of guesses and every ordering that was examined",
    "MatchedCounts": "for the numbers of guesses that were fixed for each claim, and their shares",
    "Weighted": "with confident guesses weighted more heavily",
    "Bets": "from an anytime-valid betting test",
}
RULES: Final = {
    "Around": (
        ": guesses from both ends of the ranked scores, and counts them at numbers of guesses near one that "
        "was planned"
    ),
    "Matched": (
        ": guesses from both ends of the ranked scores, and tests every claim of the family at numbers of "
        "guesses that were chosen for it in advance (86% of the error probability for one of them)"
    ),
    "Ranked": (
        ": guesses from both ends of the ranked scores (with 70% of the error probability), from the high"
        " end alone and from the low end alone (15% each), and reports the largest bound"
    ),
}
DERIVED: Final = (
    "The guesses are counted at the point where the evidence is strongest, so the first number is biased "
    "upward and carries no confidence guarantee."
)
CLAIM: Final = {
    True: (
        "refuted. The algorithm leaks more than it promises, unless an assumption of the audit does not hold "
        "or this is a false alarm (at most {wrong}% of audits of correct algorithms)."
    ),
    False: "not refuted. This does not prove it: the true ε may lie anywhere above the bound.",
    None: "none was given, so nothing could be refuted. The true ε may lie anywhere above the bound.",
}
NO_CLAIM_OF_FAMILY: Final = "none was given for comparison. The true ε may lie anywhere above the bound."
CLAIM_NOT_RELIED_ON: Final = "the guesses alone do not refute it, but the verdict says why not to rely on it."
CLAIM_WITH_AN_ASSUMPTION: Final = "not refuted without further assumptions, but refuted {assumes}."
WITH_AN_ASSUMPTION: Final = "refuted with an assumption"
NOTED: Final = "the notes above say what else to know"
AS_STATED: Final = "training matches what was stated, as far as it was tested"
NOT_AS_STATED: Final = "training does not match what was stated"
CONTRADICTED: Final = "the noise is as stated, but training is not; the verdict says where"
NEXT: Final = {
    "refuted": "do not rely on the claimed ε. Check what must be true, look for the fault, and audit again.",
    "open": (
        "the estimate, which has no guarantee, is above the claim: this audit does not settle it. Audit "
        "again with more canaries."
    ),
    "safe": "training differs from what was stated on the safe side: find out why, for the sake of accuracy.",
    "not as stated": "do not rely on the claimed ε until the difference is found; then audit again.",
    "assumption": "check whether the assumption holds. If it does, do not rely on the claimed ε.",
    "nothing shown": "this audit shows nothing. One with more canaries or with better scores may.",
    "not refuted": ("nothing here contradicts the claim. More canaries or better scores can show more."),
    "no claim": "name the ε that is promised, to have it tested.",
}
