"""Index files: the search index of consecutive records of a log, so that no request has to build it.

An index file (``companion`` in the name of the lake table) holds the same columns that :mod:`strandline.query.index`
builds in memory, with sorted words and the positions of each word, and the sums of every rollup. The server builds and
merges them in the background (:mod:`.indexer`) in its data directory (:mod:`.directory`), the pipeline in the lake
(:mod:`.catalog`). Searches find and use the valid ones (:mod:`.answers`).
"""
