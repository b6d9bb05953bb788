"""Dense distributions in the style of torch.distributions: one base, one file per family."""

from inout.distributions.alignment import Alignment as Alignment
from inout.distributions.alignment import soft_dtw as soft_dtw
from inout.distributions.base import StructuredDistribution as StructuredDistribution
from inout.distributions.chain import LinearChain as LinearChain
from inout.distributions.ctc import CTC as CTC
from inout.distributions.dependency_tree import DependencyTree as DependencyTree
from inout.distributions.factored_chain import FactoredChain as FactoredChain
from inout.distributions.factored_chain import FactoredHMM as FactoredHMM
from inout.distributions.factored_pcfg import FactoredPCFG as FactoredPCFG
from inout.distributions.factors import RuleFactors as RuleFactors
from inout.distributions.factors import TransitionFactors as TransitionFactors
from inout.distributions.hmm import HMM as HMM
from inout.distributions.pcfg import PCFG as PCFG
from inout.distributions.semi_markov import SemiMarkov as SemiMarkov
from inout.distributions.span_tree import SpanTree as SpanTree
from inout.distributions.spanning_tree import SpanningTree as SpanningTree
from inout.distributions.transducer import RNNT as RNNT
