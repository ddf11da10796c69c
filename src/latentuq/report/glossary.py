"""What the words of a report mean."""

GLOSSARY = {
    "prior": "What was known before the data: which images are possible, and how probable each is."
    " It was learned from clean examples.",
    "generator": "The part of the prior that draws an image g(u) from a few numbers u.",
    "u": "The numbers, standard normal before the data, that decide what the generator draws.",
    "model error": "What the generator cannot draw: the difference between a clean image and the"
    " nearest one that it makes, as measured on images that were kept from training.",
    "posterior": "What is known after the data: which clean images are possible now, and how"
    " probable each is.",
    "black and white": "The values of the file that the prior calls 0 and 1.",
    "noise": "The random error of the instrument, as a standard deviation for each datum.",
    "data": "What was observed. Missing pixels are not data.",
    "most probable": "The image that the generator draws at the deepest mode.",
    "posterior mean": "The average of all clean images that the data allow, each counted as often"
    " as it is probable. It is blurred where these differ.",
    "standard deviation": "How far the clean images that the data allow differ in a pixel, the"
    " model error included.",
    "mode": "One way to explain the data: a peak of the probability of u, with all that surrounds"
    " it.",
    "weight": "The probability of a mode: the share of all possible images that belong to it. The"
    " number after ± is its standard error.",
    "sample": "A clean image drawn at random, as often as it is probable. Together samples show"
    " what the data leave open.",
    "replicate": "What the instrument would have seen if a sample were the truth.",
    "component": "A direction in which many pixels change together; its share of the variance"
    " tells how much of the uncertainty it is.",
    "−ln p(u|y)": "The depth of a mode: the smaller, the more probable is this very point. A wide"
    " mode may be heavier than a deeper one.",
    "χ² per datum": "The squared difference between data and prediction in units of what noise and"
    " model error explain, per datum: about 1 for a fit as good as it should be, below it where"
    " more error is assumed than there is.",
    "computed": "The first mark: is this the posterior of the model, as far as draws that do not"
    " depend on each other can tell? It says nothing about whether the model is right.",
    "fit": "The second mark: could the model have made these data, and did they teach anything?",
    "prior checked": "The third mark: what a test on images that were kept from training has"
    " shown, and whether there was one.",
    "reliable": "Computed well, and the data do not contradict the model. It does not mean that"
    " the picture is right.",
    "ln evidence": "The logarithm of the probability of the data under prior and noise. It compares"
    " priors or noise levels for the same data. The number after ± is its standard error.",
    "k-hat": "How heavy the tail of the weights is, where all draws come from Gaussians at the"
    " modes. Below 0.3 these Gaussians describe the posterior well enough; else chains run, and"
    " k-hat is no part of the verdict.",
    "chains": "Points that wander through the posterior, each to wherever its images are probable."
    " They run in eight independent groups; how much these differ tells how uncertain the answer"
    " is.",
    "effective draws": "How many independent draws the weighted ones are worth. Beside it stands,"
    " where chains ran, how many independent draws one chain has made of the coordinate that"
    " changes most slowly; fewer than 1.3 are too few.",
    "missed mass": "The probability in modes that at most one start of the search found. If it is"
    " not small, other modes may have been missed.",
    "chance of a new basin": "The chance that one more start of the search, drawn from the prior,"
    " finds another mode, however improbable that mode is.",
    "rounds of chains": "How many rounds of moves the chains made; 0 if"
    " Gaussians at the modes sufficed and no chains were needed.",
    "forward equivalents": "The cost of the answer, in images drawn by the generator.",
    "posterior predictive check": "Its p-value is the chance that the model makes data that fit"
    " worse than these. Below 0.001 the data are called a misfit.",
    "information": "How much the data have taught, in nats: the distance from prior to posterior."
    " Each nat leaves about a third of what was possible before.",
    "variance left": "The share of the prior's variance that the data have not removed: 100 % if"
    " they taught nothing.",
    "90 % interval": "The range of values that holds a pixel with a probability of 90 %. If"
    " intervals are right, 90 % of the true pixels lie in theirs.",
}
"""Terms and their explanations, in the order of a report."""
