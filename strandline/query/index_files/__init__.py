"""Index files: files of the lake with the search index of consecutive records of a log, so that a server need not build
it.

An index file (``companion`` in the name of the lake table) holds the same columns that :mod:`strandline.query.index`
builds in memory, with sorted words and the positions of each word, and the sums of every rollup. The pipeline builds
and merges index files (:mod:`.builder`); servers find and open them (:mod:`.catalog`) and answer from them
(:mod:`.answers`).
"""
