"""Companions: files with the index of consecutive records of a log, so that a server need not make it.

A companion holds the very columns that :mod:`strandline.query.index` makes in memory, words sorted and with the places
of each word, and what every rollup adds up. Pipelines build and merge them (:mod:`.making`), servers find and open them
(:mod:`.shelf`), and answer from them as from their own (:mod:`.serving`).
"""
