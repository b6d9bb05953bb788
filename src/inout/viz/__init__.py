"""Drawing: pure functions from plain data to text, SVG and HTML."""

from . import page as page
from . import svg as svg
from . import text as text
from .model import Graph as Graph
from .model import HyperEdge as HyperEdge
from .model import Node as Node
from .model import TreeNode as TreeNode
