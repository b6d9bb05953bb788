"""Thresholds and limits of all kernels, with the reason for each.

Kernels of the dense families work in real arithmetic, relative to the largest number of a block;
much smaller numbers underflow. These limits say when that may matter, so that an element is
recomputed more slowly; how much is computed at a time; and what is too large.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ByDtype(NamedTuple):
    """A limit for each kind of floating-point number."""

    float32: float
    float64: float

    def of(self, dtype: Any) -> float:
        """The limit for a dtype of torch or of numpy."""
        return self.float64 if dtype.itemsize == 8 else self.float32


# Chains. Sums of at least EXACT are exact, whatever underflows beside them; a SHARE of a total may
# be lost. An element for which neither can be shown goes to log space. Both EXACT and what can
# underflow in a sum of thousands of terms (about the smallest normal number times their number)
# leave room for SHARE between them.
CHAIN_EXACT = ByDtype(1e-25, 1e-280)
CHAIN_SHARE = ByDtype(1e-9, 1e-18)
# On a GPU, finite terms below exp(LOWEST) (1.6e-18), or messages below LEAST but above 0, could
# underflow together in float32; sums above HUGE could overflow.
CHAIN_GPU_LOWEST, CHAIN_GPU_LEAST, CHAIN_GPU_HUGE = -41.0, 1e-18, 1e30
# Labels of which a Triton program can hold all pairs in its registers.
CHAIN_GPU_LABELS = 128
# Bytes of shared memory for one program: two are to fit on a multiprocessor.
CHAIN_GPU_SHARED_MEMORY = 96 * 1024
# Entries of the table of all pairs of labels that one step of Viterbi makes at a time (512 MiB).
CHAIN_GPU_PAIRS = 2**27

# Dependency trees. Real arithmetic is for up to so many words, above which inside values of
# exp(0.91 n) could overflow, and for a Z whose logarithm is above LEAST + n: what underflows, or is
# below 1e-290 = exp(-668), times an outside value of exp(0.91 n) is then below 1e-18 Z.
DEPENDENCY_WORDS = 700
DEPENDENCY_LEAST = -600.0

# Segments. A possible label below this share of the best one would lose digits: log space.
SEGMENTS_TINY = ByDtype(1e-28, 1e-280)
# Offsets of blocks beyond this would lose the potentials' digits, or overflow in float32.
SEGMENTS_FAR = 1e30
# Potentials that a Triton program holds in registers; a row of labels must fit.
SEGMENTS_GPU_TILE = 4096
SEGMENTS_GPU_LABELS = 1024

# Grammars. Totals below TINY (a span's best split and best rule being 1) would lose digits.
# Whether it mattered is shown by an upper bound of log Z, from a pass in which all totals start
# from MULTIPLE times TINY: it may be SLACK above log Z. So a share of (e^SLACK - 1) / MULTIPLE of
# Z may be lost, 1e-8 and 1e-16. MULTIPLE times TINY must still be small, and SLACK larger than the
# rounding errors of two passes.
GRAMMAR_TINY = ByDtype(1e-28, 1e-280)
GRAMMAR_MULTIPLE = ByDtype(1e6, 1e10)
GRAMMAR_SLACK = ByDtype(1e-2, 1e-6)
# In log space, a head this near to its best rule and its span's best pair may be computed from
# products of weights: what underflows in them is then below a 1e-40th of the head's value.
GRAMMAR_REACH = 600.0
# Factored chains and grammars use the limits of grammars on the CPU. In their torch code a product
# below TINY, of numbers up to 1 in float64, is computed again from logarithms: its reciprocal to
# the fifth is still in range, as fourth derivatives of its logarithm need.
LOWRANK_TINY = 1e-60
# On a GPU a product of two factors is made first, and totals below TINY are set to 0: what
# underflows in the products of one step is then below a millionth of them. Products, words or
# roots all of which are below FAR would spoil that.
LOWRANK_GPU_TINY = ByDtype(1e-24, 1e-270)
LOWRANK_GPU_FAR = ByDtype(1e-10, 1e-20)
# Chains with kernels of their own: numbers of a factor, at least; elements and latent values, at
# most, which a program is to hold in its registers.
LOWRANK_GPU_LARGE = 2**20, 64, 4096
# Numbers that a step of a sampler makes at a time (512 MiB in float64).
LOWRANK_DRAWS = 2**26
# Entries of their tables that are made at a time, where a query needs them (32 MiB).
LOWRANK_BLOCK = 2**22

# Projective dependency trees. On a GPU, numbers within these limits have products, also with the
# weight of an arc, that neither overflow nor lose digits. One more word multiplies the number of
# trees by exp(GROWTH), 27 / 4, in the limit.
DEPENDENCIES_GPU_LEAST, DEPENDENCIES_GPU_HUGE = 1e-100, 1e100
DEPENDENCIES_GROWTH = 1.9095

# Sparse grammars. Values below TINY, the largest of their span being about 1, are set to 0 or
# raised to RAISED. Where that changes log Z by less than SLACK, a share of SLACK * TINY / RAISED is
# lost at most.
SPARSE_TINY, SPARSE_RAISED, SPARSE_SLACK = 1e-280, 1e-270, 1e-6
# Added to what is possible, so that it stays above 0: far below TINY, however often it is added.
SPARSE_SPECK = 1e-300
# A product below this may have lost digits, or may be nothing but specks and underflow.
SPARSE_SURE = 1e-290
# Left corners that multiply a value by more than this (10^6) could bring back what has been dropped
# as too small; between SPECK and TINY there is room for this much.
SPARSE_LOG_GROWTH = 14.0
# Numbers that the distributions of a sampler may keep, 16 bytes each.
SPARSE_MOST_KEPT = 1 << 22

# Sparse grammars, spans of several sentences side by side. A strip has WIDE spans, or fewer, but at
# least NARROW, where its left parts would be more than STRIP numbers; a block has BLOCK sentences,
# or fewer where its chart would be more than CHART numbers: both are to stay in a core's cache.
LANES_WIDE, LANES_NARROW, LANES_STRIP = 128, 16, 1 << 16
LANES_BLOCK, LANES_CHART = 32, 1 << 17
# Measured on random grammars of 10 to 200 symbols, with 5 % to all of their pairs, and sentences
# of 5 to 40 words: where all pairs meet, batches are 2 to 12 times as fast side by side, whatever
# the number of symbols; a single sentence is between 0.8 and 5 times as fast. Time goes with all
# pairs there, and with those that meet elsewhere: with words of one symbol each and few rules, it
# was up to 30 times as slow. So at least this share of the pairs is to meet.
LANES_MEETING = 0.1
# Words squared, and times pairs: below these the estimate would cost more than it can save.
LANES_SQUARES, LANES_WORK = 400, 40_000
# Above so many symbols the scratch of a strip leaves the cache of a core.
LANES_SYMBOLS = 512

# Latent-variable grammars. The exponent of a vector of zeros: far below all others, and sums of a
# few of them still fit.
LATENT_NOTHING = -(1 << 28)
# Entries below 2^-1022 of the largest of their vector are lost, and with them what they would have
# brought. That may show where block · outside · left · right of an edge, by their largest entries,
# are this many powers of two above Z; the rest is for sums over latent values and edges.
LATENT_REACH = 900
# Rules whose gradients are made together: so many blocks stay in cache.
LATENT_RULES = 32
# Numbers, about, that a sampler keeps for later samples, 8 bytes each.
LATENT_MOST_KEPT = 1 << 22
# Edges of a chart, which take about 3 GB.
LATENT_MOST_EDGES = 1 << 27

# Lattices of contexts. The length of a string that has no bound: above all lengths, and one more
# still fits 32 bits.
LATTICE_UNBOUNDED = 1 << 30
# New histories after which those that share rows are forgotten: they can be found again.
LATTICE_TIED = 1 << 20

# Forests. A number is a mantissa and an exponent in steps of this many bits. Mantissas are within
# half a step of 1; products of them go on to two steps, and one more factor is still in range of
# float64, which has four.
FOREST_BITS = 256
# Edges of the derivations that are written out as trees at a time (2 GiB), and partial derivations
# that a search keeps: a few derivations of a small forest may be larger than any memory. A search
# of SMALL_SEARCH partial derivations (44 MiB) is small, however few edges are allowed.
FOREST_MAX_EDGES, FOREST_SMALL_SEARCH = 2**28, 2**20
# A thread is worth starting for this many samples.
FOREST_SAMPLES_PER_THREAD = 256
# Of their generating functions: means are kept as multiples of the largest value divided by GRID,
# plus a small rest. Half of the digits each: sums of multiples are exact. Differences between means
# this far below a multiple are what rounding left of zero.
FOREST_GRID, FOREST_NOTHING = 2.0**26, 2.0**-44
# Values at points need no centres while they stay within exp(+-REACH): exp(709) is the largest.
FOREST_REACH = 300.0
# Numbers in the rows of one pass (1 GiB); more points than fit go in several passes.
FOREST_NUMBERS = 2**27

# Products in compiled loops. OpenBLAS does those of at most this many multiplications in the thread
# that calls it; ROWS of a piece where pieces are cut in both directions.
PRODUCT_MULTIPLICATIONS, PRODUCT_ROWS = 2**18, 32

# Generating functions. Numbers of lanes, and of conditional probabilities, made at a time (32 and
# 512 MiB): enough for the operations to be efficient.
LANES_AT_A_TIME = 2**22
CHANCES_AT_A_TIME = 2**26
# Of grammars: totals below this, the largest of their span being 1, are not trusted, nor are
# variances below this share of the expected sum of squares of the rules' values: too much cancels.
GENERATING_TINY = 1e-200
GENERATING_STEADY = 1 / 16

# Recordings of GPU work that are kept at a time, and the share of the GPU's memory that they may
# keep together.
RECORDINGS, RECORDED_SHARE = 64, 0.1
# One makes room for another if it was not needed in this many turns for each one that is kept.
RECORDING_PATIENCE = 10
# Shapes that are remembered as having been asked for before they are recorded.
REMEMBERED_SHAPES = 10_000

# Arborescences. Arcs further than FAR below the best into the same word, or weights that become
# smaller than TINY when words are eliminated, might underflow where it matters, or their
# reciprocals overflow. The root's may become larger than HUGE, where they count in no pivot. Such
# an element goes to log space. All leave half of the range of float64.
ARBORESCENCE_FAR, ARBORESCENCE_TINY, ARBORESCENCE_HUGE = 300.0, 1e-140, 1e140
# On a GPU the inverse of so many words is held in registers. A probability that is a difference of
# terms above TERMS would lose digits: such an element is eliminated word by word.
ARBORESCENCE_GPU_WORDS, ARBORESCENCE_GPU_TERMS = 128, 1e3

# CTC on a GPU. States of longer targets do not fit the registers of one program: they take the
# slower way of all alignments.
CTC_GPU_LANES = 4096

# Transducers. Numbers of a block of joint outputs (16 MiB in float32). Sums of products of
# exponentials below TINY may have lost digits: what underflowed in a factor is far below that.
JOINER_BLOCK = 2**22
# On a GPU: numbers that a Triton program has in registers, and symbols among them.
JOINER_GPU_TILE, JOINER_GPU_SYMBOLS = 2048, 1024
JOINER_TINY = ByDtype(1e-28, 1e-280)
# The same where it is differentiated again: the reciprocal to the third is still in range.
JOINER_STEEP = ByDtype(1e-12, 1e-60)

# Alignments. In linear space, beside the largest of a step: nodes and weights that are no larger
# than these are too small, and moves whose factors are below 2^FACTOR. They are raised to that: the
# product of a node, two weights and a factor is still a normal number. A share of SLACK of Z may be
# lost, which must be larger than the rounding errors of two passes.
ALIGNMENT_NODE, ALIGNMENT_WEIGHT, ALIGNMENT_FACTOR = 2.0**-400, 2.0**-200, -200.0
ALIGNMENT_SLACK = ByDtype(1e-9, 1e-12)
