"""The terms that a page explains, each with one sentence that the glossary holds, too."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Term:
    """A term of the field.

    Args:
        name: as the glossary prints it in bold.
        meaning: one sentence, word for word as in the glossary.
        section: anchor of the glossary's section that defines it.
        spellings: as pages print it, if not as ``name``.
    """

    name: str
    meaning: str
    section: str
    spellings: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The id of the term's entry on a page."""
        return "term-" + re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def printed(self) -> tuple[str, ...]:
        return self.spellings or (self.name,)


_CLAIMS, _AUDITS, _METRICS, _INTERVALS = "privacy-claims", "audits", "metrics", "intervals"
TERMS = (
    Term(
        name="epsilon",
        meaning="Epsilon (ε) limits how much one unit can change the probability of any result: by the factor "
        "e^epsilon at most, so that a smaller epsilon is a stronger claim.",
        section=_CLAIMS,
        spellings=("ε", "epsilon", "eps"),
    ),
    Term(
        name="delta",
        meaning="Delta (δ) is the small probability by which a result may exceed the limit that epsilon sets.",
        section=_CLAIMS,
        spellings=("δ", "delta"),
    ),
    Term(
        name="add/remove",
        meaning="Add/remove means that one unit is present in one dataset and absent from the other.",
        section=_CLAIMS,
    ),
    Term(
        name="replace-one",
        meaning="Replace-one means that one unit is replaced by another unit.",
        section=_CLAIMS,
    ),
    Term(
        name="zero-out",
        meaning="Zero-out means that the contribution of one unit is replaced by zero.",
        section=_CLAIMS,
    ),
    Term(
        name="trade-off curve",
        meaning="The trade-off curve of a claim gives, for each rate of false alarms, the smallest share of units that "
        "any attack misses.",
        section=_CLAIMS,
    ),
    Term(
        name="noise law",
        meaning="The noise law of a defense is the public description of its noise: clip norm, scale and distribution.",
        section=_CLAIMS,
        spellings=("noise law", "of the law", "the law's"),
    ),
    Term(
        name="null attack",
        meaning="A null attack ignores the data that it observes, so its score shows what an attack achieves without "
        "these data.",
        section="adversaries",
        spellings=("null attack", "null attacks", "Null attacks"),
    ),
    Term(
        name="PSI",
        meaning="PSI (privacy-sensitive information) is the part of an image that identifies a person, given as a mask "
        "of pixels.",
        section="adversaries",
    ),
    Term(
        name="canary",
        meaning="A canary is a record that is inserted into the data to measure leakage.",
        section=_AUDITS,
        spellings=("canary", "canaries"),
    ),
    Term(
        name="arm",
        meaning="An arm of an audit is the set of all its runs with the canary, or the set of all its runs without "
        "the canary.",
        section=_AUDITS,
        spellings=("runs per arm", "Runs per arm"),
    ),
    Term(
        name="control",
        meaning="A control is a defense that breaks its claim on purpose, so that an audit must refute the claim.",
        section=_AUDITS,
        spellings=("control", "controls"),
    ),
    Term(
        name="minimum detectable epsilon",
        meaning="The minimum detectable epsilon is the smallest true epsilon at which an audit refutes the claim with "
        "a probability of 90 %.",
        section=_AUDITS,
        spellings=("min detectable", "Min detectable", "minimum detectable"),
    ),
    Term(
        name="largest certifiable epsilon",
        meaning="The largest certifiable epsilon is the lower bound on epsilon that an attack without errors would "
        "reach with the same number of runs.",
        section=_AUDITS,
        spellings=("max certifiable", "Max certifiable"),
    ),
    Term(
        name="REFUTED",
        meaning="REFUTED means that the audit measured more than the claim allows, or that a check of its "
        "implementation failed.",
        section=_AUDITS,
    ),
    Term(
        name="NOT REFUTED",
        meaning="NOT REFUTED means that the audit found no violation, which does not prove the claim.",
        section=_AUDITS,
    ),
    Term(
        name="UNDERPOWERED",
        meaning="UNDERPOWERED means that the audit was too weak to decide about the claim.",
        section=_AUDITS,
    ),
    Term(
        name="OUT OF SCOPE",
        meaning="OUT OF SCOPE means that the claim does not cover the evidence, which then neither supports nor "
        "refutes it.",
        section=_AUDITS,
        spellings=("OUT OF SCOPE", "out of scope"),
    ),
    Term(
        name="NOT TESTED",
        meaning="NOT TESTED means that the run holds no result of an audit of the claim.",
        section=_AUDITS,
    ),
    Term(
        name="AUC",
        meaning="AUC (area under the ROC curve) is the share of pairs of a member and a non-member in which the attack "
        "gives the member the higher score; guessing reaches 0.5.",
        section=_METRICS,
    ),
    Term(
        name="ROC curve",
        meaning="A ROC curve (receiver operating characteristic) shows the true-positive rate of an attack at each "
        "false-positive rate.",
        section=_METRICS,
        spellings=("ROC curve", "ROC curves", "ROC"),
    ),
    Term(
        name="TPR",
        meaning="TPR (true-positive rate) is the share of members that an attack recognises as members.",
        section=_METRICS,
    ),
    Term(
        name="FPR",
        meaning="FPR (false-positive rate) is the share of non-members that an attack takes for members: its rate of "
        "false alarms.",
        section=_METRICS,
    ),
    Term(
        name="FNR",
        meaning="FNR (false-negative rate) is the share of members that an attack misses.",
        section=_METRICS,
    ),
    Term(
        name="PSNR",
        meaning="PSNR (peak signal-to-noise ratio) measures in decibels (dB) how close an image is to the original: "
        "at 20 dB the mean squared error is 0.01 for pixels from 0 to 1.",
        section=_METRICS,
    ),
    Term(
        name="MSE",
        meaning="MSE (mean squared error) is the mean squared difference of two images, pixel by pixel.",
        section=_METRICS,
    ),
    Term(
        name="SSIM",
        meaning="SSIM (structural similarity index) compares the local patterns of two images; 1 means that they are "
        "equal.",
        section=_METRICS,
    ),
    Term(
        name="LPIPS",
        meaning="LPIPS (learned perceptual image patch similarity) is the distance of two images in the features of a "
        "neural network; 0 means that they are equal.",
        section=_METRICS,
    ),
    Term(
        name="IoU",
        meaning="IoU (intersection over union) is the overlap of the pixels that a model marks and those that it "
        "should mark, as a share of all pixels in either.",
        section=_METRICS,
    ),
    Term(
        name="R2",
        meaning="R2 (coefficient of determination) is the share of the variance that a regression explains; always "
        "answering the mean has an R2 of 0.",
        section=_METRICS,
    ),
    Term(
        name="F score",
        meaning="The F score (F1) is the harmonic mean of precision and recall; macro F1 is its mean over labels.",
        section=_METRICS,
        spellings=("F score", "macro F1"),
    ),
    Term(
        name="Clopper-Pearson",
        meaning="A Clopper-Pearson bound is an exact confidence bound on a proportion.",
        section=_INTERVALS,
    ),
    Term(
        name="DeLong",
        meaning="A DeLong interval is a confidence interval of an AUC that needs no assumption about the distribution "
        "of the scores.",
        section=_INTERVALS,
    ),
    Term(
        name="Bonferroni",
        meaning="A Bonferroni correction widens each of several intervals so that all of them hold together.",
        section=_INTERVALS,
    ),
    Term(
        name="t interval",
        meaning="A t interval is a confidence interval of a mean from the scatter of the values, by Student's t "
        "distribution.",
        section=_INTERVALS,
        spellings=("t interval", "t intervals"),
    ),
    Term(
        name="bootstrap",
        meaning="A bootstrap interval shows how a value varies when its data are drawn again at random from "
        "themselves.",
        section=_INTERVALS,
    ),
    Term(
        name="jackknife",
        meaning="A jackknife estimates how a value varies by leaving out one group of its data after the other.",
        section=_INTERVALS,
    ),
)
"""In the order in which a page lists them."""
