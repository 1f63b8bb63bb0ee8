"""Files of other tools, read without a framework: recognised, opened as a tree, their arrays read by boxes.

Nothing of a file is executed. Knows nothing of training: what a tree means is `parity.convert`'s.
"""

from parity.formats.array import (
    BLOCK_BYTES,
    Array,
    Box,
    InMemory,
    MappedArray,
    boxes,
    contiguous,
    count_of,
    dtype_named,
    extents,
    number_of,
)
from parity.formats.dcp import open_dcp
from parity.formats.dcp_tree import DCP_TREE, dcp_tree_text
from parity.formats.document import TREE_ENTRY, decode_tree, encode_tree
from parity.formats.flax_msgpack import open_flax
from parity.formats.joblib_file import read_joblib, without_gaps
from parity.formats.mapping import map_file
from parity.formats.megatron import TRACKER, newest_of_megatron
from parity.formats.ocdbt import StorePlace, files_of, place_of, stored_values
from parity.formats.orbax import EMPTY_ARRAYS, open_orbax
from parity.formats.pickle_graph import read_pickle_graph
from parity.formats.pointers import not_pointed, put_text
from parity.formats.raw_chunks import chunk_name
from parity.formats.recognise import (
    FAMILIES,
    FORMATS,
    WRITTEN,
    Family,
    Format,
    is_checkpoint,
    open_checkpoint,
    recognise,
    steps_of,
)
from parity.formats.scalars import MOST_BITS, are_keys, decode_scalar, encode_scalar, is_spelled
from parity.formats.symbolic import PLAIN_CALLS, read_pickle
from parity.formats.torch_file import open_torch_file, open_zip
from parity.formats.tree import Key, Opaque, Source, Tree, TreeLeaf, leaf_name, leaves, map_leaves
from parity.formats.write_hugging_face import HUGGING_FACE, copy_companions
from parity.formats.write_safetensors import SAFETENSORS
from parity.formats.writer import Writer, is_text, misfits
from parity.formats.zip_directory import ZipDirectory

__all__ = [
    "BLOCK_BYTES",
    "DCP_TREE",
    "EMPTY_ARRAYS",
    "FAMILIES",
    "FORMATS",
    "HUGGING_FACE",
    "MOST_BITS",
    "PLAIN_CALLS",
    "SAFETENSORS",
    "TRACKER",
    "TREE_ENTRY",
    "WRITTEN",
    "Array",
    "Box",
    "Family",
    "Format",
    "InMemory",
    "Key",
    "MappedArray",
    "Opaque",
    "Source",
    "StorePlace",
    "Tree",
    "TreeLeaf",
    "Writer",
    "ZipDirectory",
    "are_keys",
    "boxes",
    "chunk_name",
    "contiguous",
    "copy_companions",
    "count_of",
    "dcp_tree_text",
    "decode_scalar",
    "decode_tree",
    "dtype_named",
    "encode_scalar",
    "encode_tree",
    "extents",
    "files_of",
    "is_checkpoint",
    "is_spelled",
    "is_text",
    "leaf_name",
    "leaves",
    "map_file",
    "map_leaves",
    "misfits",
    "newest_of_megatron",
    "not_pointed",
    "number_of",
    "open_checkpoint",
    "open_dcp",
    "open_flax",
    "open_orbax",
    "open_torch_file",
    "open_zip",
    "place_of",
    "put_text",
    "read_joblib",
    "read_pickle",
    "read_pickle_graph",
    "recognise",
    "steps_of",
    "stored_values",
    "without_gaps",
]
