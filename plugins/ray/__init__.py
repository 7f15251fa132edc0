"""The flag `--cluster`: commands whose work is done on a Ray cluster.

- `cluster` connects to a cluster, and refuses one that does not answer or lacks GPUs
  or cores; `nodes` refuses nodes that have other versions, or that do not share a
  folder. `flags` declares `--cluster` and the size of a worker. These three are what
  every command on a cluster begins with:

      with connected(args.cluster):
          size = WorkerSize(cores=1, gpus=0)
          require_capacity(size, workers=2)
          require_same_nodes(read=[model], written=[folder])
          ...  # tasks or actors of Ray

- Data generation: `generating` extends the command `datagen`. `datagen` divides the
  stages into tasks, of which `survey` counts pairs, and `task_runner` runs them.

- Bulk translation: `translating` and `scoring` extend the commands `translate` and
  `score`. `input_files` finds the files, `model_files` those of the model, and
  `faulty_lines` reads lines that may be faulty. `windows` makes batches by length
  across files, `text_worker` is the actor that computes them, `worker_pool` places the
  actors, gives them batches and repeats those of a lost one. `output_files` knows which
  outputs are finished, and `bulk` joins these.

- Training: `launching` extends `launch`. `training_worker` is the actor that runs a
  process, which the core's `training.launched_processes` starts and watches.

`process_environment` is what the processes of a training get of the user's environment.

Ray is imported inside functions of the files that a command line imports, because it
takes a second, and may be absent. An extension of a command is a
`t2t_keras.cli.command.Extension`, whose `select` returns another `Command` if
`--cluster` is given.
"""
