"""Learning: EM for generative models, conditional training by gradients; functions of data."""

from inout._core.errors import TrainingError as TrainingError
from inout.learning.conditional import ConditionalResult as ConditionalResult
from inout.learning.conditional import fit_conditional as fit_conditional
from inout.learning.em import EMResult as EMResult
from inout.learning.em import EMRun as EMRun
from inout.learning.em import em as em
from inout.learning.hidden_markov import HiddenMarkovModel as HiddenMarkovModel
from inout.learning.model import GenerativeModel as GenerativeModel
from inout.learning.model import log_softmax as log_softmax
from inout.learning.priors import Additive as Additive
from inout.learning.priors import Dirichlet as Dirichlet
from inout.learning.program_model import ProgramModel as ProgramModel
from inout.learning.progress import Progress as Progress
from inout.learning.steps import auxiliary as auxiliary
from inout.learning.steps import expected_counts as expected_counts
from inout.learning.steps import maximum_likelihood as maximum_likelihood
from inout.learning.steps import tree_counts as tree_counts
from inout.learning.stepwise import Stepwise as Stepwise
