"""Trains in several processes on one machine: `verb` is `t2t launch`."""
