"""Places in which a loop may keep a value: the table, one entry for each.

`open(first)` puts a first value, a tensor or an array of floats, into the place, and returns a function that reads
what is there and one that writes. Nothing else holds it.
"""

from __future__ import annotations

from tests.corpus.place import Place
from tests.corpus.places_classes import CLASSES
from tests.corpus.places_functions import FUNCTIONS
from tests.corpus.places_libraries import LIBRARIES
from tests.corpus.places_memory import MEMORY
from tests.corpus.places_modules import MODULES
from tests.corpus.places_objects import OBJECTS

__all__ = ["PLACES"]

PLACES: dict[str, Place] = {one.id: one for one in (*CLASSES, *FUNCTIONS, *MODULES, *MEMORY, *OBJECTS, *LIBRARIES)}
"""Id to place."""
