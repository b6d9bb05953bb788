"""Latent-variable grammars: the model, its estimation from trees, and parsing with it."""

from inout.latent.clustering import cluster_nodes as cluster_nodes
from inout.latent.clustering import clustered_model as clustered_model
from inout.latent.decoding.analyses import LatentAnalyses as LatentAnalyses
from inout.latent.decoding.parser import LatentParse as LatentParse
from inout.latent.decoding.parser import LatentParser as LatentParser
from inout.latent.grammar import LatentGrammar as LatentGrammar
from inout.latent.grammar import TrainingSet as TrainingSet
from inout.latent.layout import Layout as Layout
from inout.latent.model import LPCFG as LPCFG
from inout.latent.refined import refined_grammar as refined_grammar
from inout.latent.skeleton import Skeleton as Skeleton
from inout.latent.spectral import Features as Features
from inout.latent.spectral import Shrinkage as Shrinkage
from inout.latent.spectral import SpectralEstimate as SpectralEstimate
from inout.latent.spectral import fit_spectral as fit_spectral
from inout.latent.starts import latent_sizes as latent_sizes
from inout.latent.starts import random_model as random_model
from inout.latent.starts import smoothed as smoothed
from inout.latent.starts import split as split
from inout.latent.starts import treebank_model as treebank_model
from inout.latent.treebank import skeletal_tree as skeletal_tree
from inout.latent.treebank import skeletal_trees as skeletal_trees
from inout.latent.treebank import treebank_tree as treebank_tree
from inout.latent.treebank import with_classes as with_classes
from inout.latent.trees import SkeletalTrees as SkeletalTrees
