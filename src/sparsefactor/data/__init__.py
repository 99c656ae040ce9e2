"""The border: everything a user passes as X becomes one `Data`, checked once, transposed once."""

from .making import as_data as as_data
from .making import is_in_memory as is_in_memory
from .matrix import Data as Data
from .matrix import chunks_of as chunks_of
from .reading import read_matrix as read_matrix
from .reading import stays_sparse as stays_sparse
