"""All entries of the catalogue of hostile and broken files."""

from tests.hostile import archives, documents, filesystem, pickles, runfiles, seals, stores, structures

ENTRIES = [
    *pickles.ENTRIES,
    *structures.ENTRIES,
    *archives.ENTRIES,
    *documents.ENTRIES,
    *seals.ENTRIES,
    *filesystem.ENTRIES,
    *stores.ENTRIES,
    *runfiles.ENTRIES,
]
"""Some hundreds; ids are unique."""
