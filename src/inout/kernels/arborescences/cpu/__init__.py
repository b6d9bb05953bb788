"""Compiled kernels for arborescences.

One elimination carries everything (Grassmann, Taksar & Heyman 1985; accuracy: Alfa, Xue & Ye 2002).
Word k leaves the graph. Its pivot is the sum of the weights of its heads that are left, and each
dependent j of k gets their arcs instead: w(i, j) += w(i, k) / pivot * w(k, j). Z is the product of
the pivots. That is Gaussian elimination of the Laplacian, of which only the entries outside the
diagonal are kept: the diagonal is the sum of the column, so nothing is ever subtracted. Every
number is exact up to a relative error of O(n) roundings, whatever the weights; no error bound and
no condition number is needed.

If the root is to have one dependent, its weights are infinitesimal: they count in no pivot but the
last. So both kinds of trees are one algorithm.
"""
