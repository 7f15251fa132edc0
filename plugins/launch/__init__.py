"""Trains in several processes on one machine: `command` is `t2t launch`."""
