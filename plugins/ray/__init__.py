"""The flag `--cluster`: commands whose work is done on a Ray cluster.

- `cluster` has the flags, connects to a cluster, and refuses one that does not answer,
  lacks GPUs or cores, or has nodes with other versions or without a folder. Every
  command on a cluster begins with

      with connected(self.cluster):
          size = WorkerSize(cores=1, gpus=0)
          require_capacity(size, workers=2)
          require_same_nodes(read=[model], written=[folder])
          ...  # tasks or actors of Ray

- `bulk` extends `translate` and `score`: many files, by Ray Data. `bulk_files` finds
  and reads them, `bulk_worker` is the actor with the model, and `bulk_outputs` writes
  what it returns and skips what is finished.

- Data generation: `generating` extends the command `datagen`. `datagen` divides the
  stages into tasks, of which `survey` counts pairs, and `task_runner` runs them.

- `launch` extends `t2t launch`: an actor on each node runs a process of the training,
  which the plugin `launch` starts and watches.

Ray is imported inside functions of the files that a command line imports, because it
takes a second, and may be absent. An extension of a command is a subclass of it, which
takes its place if `--cluster` is given.
"""
