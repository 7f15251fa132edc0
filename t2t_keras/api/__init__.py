"""The commands of `t2t` as functions of Python, for programs and notebooks.

`functions` has the public functions, `run` the object that `load` and `train` return.
They call the classes of `t2t_keras.cli` by way of `calling`, which also has the objects
that they return.
"""
