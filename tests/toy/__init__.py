"""Toy data, models and runs that tests share.

`models` draws a model of any kind and writes its file and its training sets. `run` trains a translator that copies
letters, and compares resumed runs. `translator` translates with random models over a few words, in all variants of the
architecture. The toy of an add-on, in the folder of its tests, has its sentences, labels and sizes alone.
"""
